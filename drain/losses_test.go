package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/drops"
)

func withIDs(r *rig, partition string) {
	r.store.set(func() {
		for i := range r.store.spaces["games"].partitions[partition].entries {
			r.store.spaces["games"].partitions[partition].entries[i].ID = []byte("id-" + string(rune('a'+i)))
		}
	})
}

func TestDeadAndExpiredEntriesAreSampledWithTheirIDs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.MaxAge = 10 * time.Second })
		log := drops.NewLog()
		r.cfg.Drops = log
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			if batches[0].Partition == "down" {
				return errDown
			}
			var e sink.BatchError
			e.Fail(0, 1, sink.Permanent(sink.WithDetail(errDown, "the payload")))
			return &e
		}
		r.store.produce(r.ns, "bad", 3, time.Second)
		r.store.produce(r.ns, "down", 2, 0)
		withIDs(r, "bad")
		withIDs(r, "down")
		r.start()
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 5, Delivered: 2, Dead: 1, Expired: 2})
		dead := log.Recent(drops.Query{Reason: drops.Dead})
		if len(dead) != 1 || dead[0].ID != "id-b" || dead[0].Partition != "bad" || dead[0].Detail != errDown.Error() || dead[0].Age < time.Second || dead[0].Entries != 1 {
			t.Errorf("dead %+v: want entry id-b, its age, and the sink's words without the payload", dead)
		}
		sent := log.Recent(drops.Query{Reason: drops.Delivered, ID: "id-a"})
		if len(sent) != 1 || sent[0].Partition != "bad" || sent[0].Age < time.Second || log.Totals("games")[drops.Delivered].Entries != 2 || len(log.Recent(drops.Query{})) != 3 {
			t.Errorf("delivered %+v, totals %+v: want them counted, sampled, and in no query of drops", sent, log.Totals("games"))
		}
		if got := log.Totals("games")[drops.Dead].Entries; got != 1 {
			t.Errorf("%d dead", got)
		}
	})
}

func TestEntriesThatExpireInALeaseAreSampled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.MaxAge = 40 * time.Second; p.Linger = 100 * time.Millisecond })
		log := drops.NewLog()
		r.cfg.Drops = log
		r.sink.write = func(context.Context, []*sink.Batch) error { clocktest.Take(5 * time.Second); return nil }
		r.store.produce(r.ns, "p", 1, 0)
		r.start()
		r.drained(time.Minute) // the pace is known
		r.store.produce(r.ns, "p", 3, 35*time.Second)
		r.store.produce(r.ns, "p", 1, 0)
		withIDs(r, "p")
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 5, Delivered: 2, Expired: 3})
		list := log.Recent(drops.Query{Reason: drops.Expired, Partition: "p", ID: "id-a"})
		if len(list) != 1 || list[0].Age < 35*time.Second || log.Totals("")[drops.Expired].Entries != 3 {
			t.Errorf("%+v, totals %+v", list, log.Totals(""))
		}
	})
}

func TestFailedAndLostEntriesAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, atMostOnce)
		log := drops.NewLog()
		r.cfg.Drops = log
		r.sink.write = func(context.Context, []*sink.Batch) error { return errDown }
		r.store.produce(r.ns, "p", 200, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		list := log.Recent(drops.Query{Reason: drops.Failed})
		if len(list) != 2 || list[0].Entries+list[1].Entries != 200 || list[0].Detail != errDown.Error() {
			t.Errorf("failed %+v", list)
		}
		w := &run{leaseWorker: &leaseWorker{drops: log.Of("games")}, account: newAccount(leaseOf(3))}
		w.recordLost(2)
		if list := log.Recent(drops.Query{Reason: drops.Lost}); len(list) != 1 || list[0].Entries != 2 || !strings.Contains(list[0].Detail, "other than Spillway") {
			t.Errorf("lost %+v", list)
		}
	})
}

func atMostOnce(p *partition.Policy) { p.Delivery = partition.AtMostOnce }

func TestAtMostOnceWritesEachBatchOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Delivery = partition.AtMostOnce })
		calls, running := 0, 0
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if running++; running > 1 {
				t.Error("two batches of a partition side by side")
			}
			defer func() { running-- }()
			clocktest.Take(50 * time.Millisecond)
			switch calls++; calls {
			case 2:
				return errDown
			case 3:
				return sink.Permanent(errDown)
			case 4:
				panic("sink")
			case 5:
				var e sink.BatchError
				e.Fail(0, 1, errDown)
				return &e
			}
			return nil
		}
		r.store.produce(r.ns, "p", 1000, 0)
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 1000, Delivered: 1000})
		r.ordered("p")
		if calls != 8 || r.store.counts().settle != 8 {
			t.Errorf("%d writes, %d settles", calls, r.store.counts().settle)
		}
		if d, f := r.outcome(outcomeDelivered), r.outcome(outcomeFailed); f != 3*128+1 || d != 1000-f {
			t.Errorf("metrics: delivered %d failed %d", d, f)
		}
	})
}

func TestAtMostOnceCountsOnlyWhatTheSinkAcceptedAsDelivered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, atMostOnce, func(p *partition.Policy) { p.MaxAge = 10 * time.Second })
		r.sink.write = func(context.Context, []*sink.Batch) error { clocktest.Take(time.Second); return nil }
		r.store.produce(r.ns, "p", 128, 0)
		r.start()
		r.drained(5 * time.Second) // the pace is known
		r.store.produce(r.ns, "p", 280, 9*time.Second)
		r.store.produce(r.ns, "p", 120, 0)
		r.drained(30 * time.Second)
		r.stop()
		l := r.store.ledger(r.ns)
		if got := len(flat(r.sink.seen())); l.Delivered != int64(got) || l.Delivered+l.Expired != 528 {
			t.Errorf("the sink was handed %d entries: %+v", got, l)
		}
		if d, e := r.outcome(outcomeDelivered), r.outcome(outcomeExpired); int64(d) != l.Delivered || int64(e) != l.Expired {
			t.Errorf("metrics: delivered %d expired %d: %+v", d, e, l)
		}
	})
}

func TestAtMostOnceWritesOnlyWhatIsKnownToBeCommitted(t *testing.T) {
	for name, c := range map[string]struct {
		fault  fault
		faults int // 0: for ever
		ledger partition.Ledger
		writes int
	}{
		// Gone is no proof that our commit ran, so nothing is written.
		"reply lost":                  {lostReply, 1, partition.Ledger{Accepted: 128, Delivered: 128}, 0},
		"request lost":                {lostRequest, 3, partition.Ledger{Accepted: 128, Delivered: 128}, 1},
		"not run":                     {unavailable, 3, partition.Ledger{Accepted: 128, Delivered: 128}, 1},
		"rejected":                    {fault{err: partition.ErrBroken}, 0, partition.Ledger{Accepted: 128, Buffered: 128}, 0},
		"not run, for ever":           {unavailable, 0, partition.Ledger{Accepted: 128, Buffered: 128}, 0},
		"unknown, for ever":           {lostRequest, 0, partition.Ledger{Accepted: 128, Buffered: 128}, 0},
		"another's by now":            {fault{err: partition.ErrGone}, 0, partition.Ledger{Accepted: 128, Buffered: 128}, 0},
		"a range that starts nowhere": {fault{err: &partition.RangeError{From: 1}}, 0, partition.Ledger{Accepted: 128, Buffered: 128}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, atMostOnce)
				n := 0
				r.store.settleFault = func(*partition.Lease) fault {
					if n++; c.faults == 0 || n <= c.faults {
						return c.fault
					}
					return fault{}
				}
				r.store.produce(r.ns, "p", 128, 0)
				r.start()
				clocktest.Pass(time.Minute)
				r.stop()
				r.wantLedger(c.ledger)
				if got := len(r.sink.seen()); got != c.writes {
					t.Errorf("%d writes, want %d", got, c.writes)
				}
				if d, f := r.outcome(outcomeDelivered), r.outcome(outcomeFailed); d != 128*c.writes || f != 0 {
					t.Errorf("metrics: delivered %d failed %d", d, f)
				}
			})
		})
	}
}

func TestAtMostOnceGoesOnAfterACommitOfAPrefixWithALostReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, atMostOnce, func(p *partition.Policy) { p.Batch = 10 })
		r.store.produce(r.ns, "p", 30, 0)
		// A range of three batches, as at-least-once left it behind.
		p := r.store.spaces["games"].partitions["p"]
		p.held, p.to, p.cuts = true, p.head+30, []int64{p.head + 10, p.head + 20, p.head + 30}
		n := 0
		r.store.settleFault = func(*partition.Lease) fault {
			if n++; n == 2 {
				return lostReply
			}
			return fault{}
		}
		r.start()
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 30, Delivered: 30})
		if got := flat(r.sink.of("p")); len(got) != 30 || r.outcome(outcomeDelivered) != 30 {
			t.Errorf("%d entries written, %d counted", len(got), r.outcome(outcomeDelivered))
		}
	})
}

func TestAtMostOnceWritesWhatIsLeftAfterEntriesWereRemoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, atMostOnce)
		r.store.produce(r.ns, "p", 20, 0)
		var once atomic.Bool
		r.store.stall = func() {
			if len(r.store.leased()) > 0 && once.CompareAndSwap(false, true) { // freshness is being judged
				r.store.remove(r.ns, "p", 4)
			}
		}
		r.start()
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 20, Delivered: 16, Lost: 4})
		if got := len(flat(r.sink.seen())); got != 16 || r.outcome(outcomeDelivered) != 16 {
			t.Errorf("%d entries written, %d counted", got, r.outcome(outcomeDelivered))
		}
	})
}

func TestAtMostOnceDoesNotWriteWhatGoesStaleDuringItsCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, atMostOnce, func(p *partition.Policy) { p.MaxAge = 10 * time.Second })
		r.store.roundTrip = 3 * time.Second
		// A Due call, a claim and a commit: nine seconds.
		r.store.produce(r.ns, "p", 28, 2*time.Second)
		r.store.produce(r.ns, "p", 100, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 128, Delivered: 128})
		if got := flat(r.sink.seen()); len(got) != 100 {
			t.Errorf("%d entries written, want those that were still fresh", len(got))
		}
		if d, f := r.outcome(outcomeDelivered), r.outcome(outcomeFailed); d != 100 || f != 28 {
			t.Errorf("metrics: delivered %d failed %d", d, f)
		}
	})
}

func TestAtMostOnceLearnsHowLongACommitTakes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, atMostOnce, func(p *partition.Policy) { p.MaxAge, p.Linger = 10*time.Second, 9*time.Second })
		r.store.roundTrip = 400 * time.Millisecond
		r.start()
		for i := range 50 { // each has 200 ms of life when its commit begins
			r.store.produce(r.ns, fmt.Sprint("p", i), 1, 0)
			clocktest.Pass(time.Second)
		}
		r.drained(time.Minute)
		r.stop()
		if failed := r.outcome(outcomeFailed); failed > 2 {
			t.Errorf("%d entries went stale in their commits", failed)
		}
	})
}

func TestAtMostOnceReleasesWhatIsNotCommittedWhenTheContextOfStopEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, atMostOnce, func(p *partition.Policy) { p.Batch = 10 })
		r.sink.write = hang
		r.store.produce(r.ns, "p", 30, 0)
		p := r.store.spaces["games"].partitions["p"]
		p.held, p.to, p.cuts = true, p.head+30, []int64{p.head + 10, p.head + 20, p.head + 30}
		r.start()
		clocktest.Pass(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = r.d.Stop(ctx)
		r.verify()
		r.wantLedger(partition.Ledger{Accepted: 30, Delivered: 10, Buffered: 20})
		if got := r.store.leased(); len(got) > 0 {
			t.Errorf("still leased: %v", got)
		}
		if got := r.outcome(outcomeFailed); got != 10 {
			t.Errorf("failed metric %d", got)
		}
	})
}

// presentedOnce fails the test if an entry was presented twice.
func (r *rig) presentedOnce(partition string) {
	r.t.Helper()
	seqs := flat(r.sink.of(partition))
	slices.Sort(seqs)
	if n := len(slices.Compact(slices.Clone(seqs))); n != len(seqs) {
		r.t.Errorf("partition %s: %d of %d entries were presented again", partition, len(seqs)-n, len(seqs))
	}
}
