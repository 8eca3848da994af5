package drain

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestCommitWithALostReplyCountsOnceAndIsNotWrittenAgain(t *testing.T) {
	for name, f := range map[string]fault{"reply lost": lostReply, "request lost": lostRequest, "rejected": unavailable} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				n := 0
				r.store.settleFault = func(*partition.Lease) fault {
					if n++; n <= 3 {
						return f
					}
					return fault{}
				}
				r.store.produce(r.ns, "p", 10, 0)
				r.start()
				r.drained(time.Minute)
				r.stop()
				r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 10})
				if got := len(r.sink.seen()); got != 1 {
					t.Errorf("%d writes", got)
				}
				// The last commit of a range ends the lease, so one whose reply was lost
				// answers "gone" when repeated: that is not fencing.
				if got := r.value(r.metrics().fenced); got != 0 {
					t.Errorf("fenced %v", got)
				}
			})
		})
	}
}

func TestCommitOfAPrefixWithALostReplyIsNotCountedTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Batch = 10 })
		calls, settles := 0, 0
		r.sink.write = func(context.Context, []*sink.Batch) error {
			clocktest.Take(time.Millisecond)
			if calls++; calls == 5 {
				return errDown
			}
			return nil
		}
		r.store.settleFault = func(*partition.Lease) fault {
			if settles++; settles == 2 || settles == 3 {
				return lostReply
			}
			return fault{}
		}
		r.store.produce(r.ns, "p", 100, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 100, Delivered: 100})
		if got := r.outcome(outcomeDelivered); got != 100 {
			t.Errorf("delivered metric %d", got)
		}
		if got := len(flat(r.sink.seen())); got != 110 {
			t.Errorf("%d entries written, want 110: only the failed batch comes again", got)
		}
	})
}

func TestCrashBetweenSinkAndCommitReplaysTheSameRange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		crashed := time.Now().Add(10 * time.Second)
		r.store.settleFault = func(*partition.Lease) fault {
			if time.Now().Before(crashed) {
				return unavailable
			}
			return fault{}
		}
		crashed = time.Now().Add(16 * time.Second)
		r.store.produce(r.ns, "p", 200, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		list := r.sink.of("p")
		if len(list) != 3 || !slices.Equal(list[0].seqs, list[1].seqs) || list[0].id != list[1].id {
			t.Fatalf("written %+v", list)
		}
		if list[0].attempt != 1 || list[1].attempt != 2 || list[2].attempt != 1 {
			t.Errorf("attempts %d %d %d, want 1 2 1", list[0].attempt, list[1].attempt, list[2].attempt)
		}
		r.wantLedger(partition.Ledger{Accepted: 200, Delivered: 200})
		if got := r.value(r.metrics().lapsed); got != 1 {
			t.Errorf("lapsed %v", got)
		}
		if got := r.outcome(outcomeUnconfirmed); got != 128 {
			t.Errorf("unconfirmed %v", got)
		}
		if r.value(r.metrics().retries) < 10 {
			t.Errorf("commit retries %v", r.value(r.metrics().retries))
		}
	})
}

func TestFencedWorkerStopsAndCountsIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Batch = 10 })
		var calls atomic.Int64
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if calls.Add(1) == 2 {
				r.store.fence(r.ns, "p")
			}
			clocktest.Take(10 * time.Millisecond)
			return nil
		}
		r.store.produce(r.ns, "p", 80, 0)
		r.cfg.MaxLeaseBatches = 8
		r.start()
		// The first lease is of one batch, for the sink's pace is unknown.
		clocktest.Pass(2 * time.Second)
		if n := calls.Load(); n > 4 {
			t.Errorf("%d writes: the worker went on with a lease that is gone", n)
		}
		if got := r.value(r.metrics().fenced); got != 1 {
			t.Errorf("fenced %v", got)
		}
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 80, Delivered: 80})
	})
}

func TestEntriesRemovedDuringTheirWriteAreLostAndTheRestIsCommitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(_ context.Context, b []*sink.Batch) error {
			if b[0].Partition == "p" {
				r.store.remove(r.ns, "p", 4)
			}
			return nil
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 6, Lost: 4})
		if r.outcome(outcomeDelivered) != 6 || r.outcome(outcomeLost) != 4 {
			t.Errorf("metrics: delivered %d lost %d", r.outcome(outcomeDelivered), r.outcome(outcomeLost))
		}
	})
}

func TestEntriesRemovedBeforeTheirWriteAreNeitherWrittenNorCounted(t *testing.T) {
	for name, n := range map[string]int{"within the next batch": 15, "to the end of the range": 80} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, func(p *partition.Policy) { p.Batch = 10 })
				calls := 0
				r.sink.write = func(context.Context, []*sink.Batch) error {
					// The first lease is of one batch, for the sink's pace is unknown.
					if calls++; calls == 2 {
						r.store.remove(r.ns, "p", n)
					}
					clocktest.Take(time.Millisecond)
					return nil
				}
				r.store.produce(r.ns, "p", 100, 0)
				r.start()
				r.drained(10 * time.Second)
				r.stop()
				r.wantLedger(partition.Ledger{Accepted: 100, Delivered: int64(100 - n), Lost: int64(n)})
				if r.outcome(outcomeDelivered) != 100-n || r.outcome(outcomeLost) != n {
					t.Errorf("metrics: delivered %d lost %d", r.outcome(outcomeDelivered), r.outcome(outcomeLost))
				}
				// The answer to a commit comes beside the next Write, so one more
				// batch may have been on its way.
				if got := len(flat(r.sink.seen())); got > 100-n+20 {
					t.Errorf("%d entries written of the %d that remained", got, 100-n)
				}
				if got := r.value(r.metrics().lapsed); got != 0 || r.lines("settlement rejected") != 0 {
					t.Errorf("lapsed %v", got)
				}
			})
		})
	}
}

func TestStoreThatLostItsNewestWritesIsToldAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Batch = 10 })
		calls := 0
		var before fakePartition
		var ledger partition.Ledger
		r.sink.write = func(context.Context, []*sink.Batch) error {
			clocktest.Take(time.Millisecond)
			p := r.store.spaces["games"].partitions["p"]
			r.store.mu.Lock()
			defer r.store.mu.Unlock()
			switch calls++; calls {
			case 2: // the first of the lease of several
				before, ledger = *p, r.store.spaces["games"].ledger
			case 5:
				*p, r.store.spaces["games"].ledger = before, ledger
			}
			return nil
		}
		r.store.produce(r.ns, "p", 90, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 90, Delivered: 90})
		if got := len(flat(r.sink.seen())); got != 90 {
			t.Errorf("%d entries written, want each once", got)
		}
	})
}

func TestRejectedSettlementLeavesThePartitionAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.settleFault = func(l *partition.Lease) fault {
			if l.Partition == "broken" {
				return fault{err: partition.ErrBroken}
			}
			return fault{}
		}
		r.store.produce(r.ns, "broken", 10, 0)
		r.store.produce(r.ns, "whole", 10, 0)
		r.start()
		clocktest.Pass(2 * time.Minute)
		r.stop()
		if got := len(r.sink.of("broken")); got > 5 {
			t.Errorf("a partition that cannot be settled was written %d times in 2 minutes", got)
		}
		if got := len(r.sink.of("whole")); got != 1 {
			t.Errorf("its neighbour was written %d times", got)
		}
		if got := r.lines("settlement rejected"); got < 1 || got > 5 {
			t.Errorf("%d lines", got)
		}
	})
}

func TestLeaseLapsesWhenTheStoreKeepsMovingItsRange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		n := 0
		r.store.settleFault = func(l *partition.Lease) fault {
			if n++; n > 50 {
				t.Error("asked for ever")
			}
			return fault{err: &partition.RangeError{From: l.From + int64(n%2)}}
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		clocktest.Pass(10 * time.Second)
		r.stop()
		if got := r.value(r.metrics().lapsed); got != 1 {
			t.Errorf("lapsed %v", got)
		}
		if got := r.lines("settlement rejected"); got != 1 {
			t.Errorf("%d lines", got)
		}
	})
}

func TestSettlementsOfManyWorkersShareRoundTrips(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.roundTrip = time.Millisecond
		for p := range 64 {
			r.store.produce(r.ns, string(rune('a'+p%26))+string(rune('a'+p/26)), 1, 0)
		}
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		if got := r.store.counts().settle; got > 16 { // workers that the scheduler is slow to run come later
			t.Errorf("%d Settle calls for 64 commits", got)
		}
	})
}

func TestSettlerAnswersWhatComesAfterItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSettler(newFakeStore())
		go s.run(t.Context())
		s.close()
		w := s.submit(&settleRequest{commit: &partition.Commit{}})
		<-w.done
		if w.err() != errSettlerStopped {
			t.Errorf("got %v", w.err())
		}
	})
}
