package drain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// retries names the entries at the given positions of a Write's first batch.
func retries(positions ...int) error {
	var e sink.BatchError
	for _, at := range positions {
		e.Fail(0, at, errDown)
	}
	return &e
}

func TestAcceptedEntryIsDeliveredAlthoughItsNeighbourExpires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.MaxAge = 20 * time.Second })
		var first int64
		r.sink.write = func(_ context.Context, b []*sink.Batch) error {
			if first == 0 {
				first = b[0].FirstSeq
			}
			if b[0].FirstSeq == first {
				return retries(0)
			}
			return nil
		}
		r.store.produce(r.ns, "p", 128, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 128, Delivered: 127, Expired: 1})
		list := r.sink.seen()
		if len(list) < 3 || len(list[0].seqs) != 128 {
			t.Fatalf("%d writes", len(list))
		}
		for _, w := range list[1:] {
			if !slices.Equal(w.seqs, list[0].seqs[:1]) {
				t.Errorf("attempt %d has %d entries, want the one that the sink did not take", w.attempt, len(w.seqs))
			}
		}
		if got := r.outcome(outcomeRetried); got != len(list) {
			t.Errorf("retried metric %d after %d Writes with one entry to retry each", got, len(list))
		}
		if d, e := r.outcome(outcomeDelivered), r.outcome(outcomeExpired); d+e > 128 {
			t.Errorf("metrics: delivered %d expired %d", d, e)
		}
	})
}

func TestPlainErrorMarksNothingAsAccepted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		once := true
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if once {
				once = false
				return errDown
			}
			return nil
		}
		r.store.released = func(s *partition.Release) {
			if s.Done != nil {
				t.Errorf("released with %v done", s.Done)
			}
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		if list := r.sink.seen(); len(list) != 2 || len(list[1].seqs) != 10 {
			t.Errorf("written %+v", list)
		}
	})
}

func TestRetryWaitsNoLongerThanItsEntriesAreFresh(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.MaxAge = 20 * time.Second })
		r.cfg.BackoffBase, r.cfg.BackoffMax = time.Hour, time.Hour
		calls := 0
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if calls++; calls == 1 {
				return &sink.BatchError{Failed: []sink.EntryError{{Entry: 0, Err: sink.Throttle(errDown, time.Hour)}}}
			}
			return nil
		}
		r.store.produce(r.ns, "p", 1, 12*time.Second)
		r.store.produce(r.ns, "p", 9, 0)
		r.start()
		r.drained(9 * time.Second) // not the 20 s of the others
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 9, Expired: 1})
	})
}

func TestDeadLetterBehindAnEntryThatMustWaitIsPresentedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(_ context.Context, b []*sink.Batch) error {
			var e sink.BatchError
			if b[0].Attempt == 1 {
				e.Fail(0, 0, errDown)
				e.Fail(0, 2, sink.Permanent(errors.New("no")))
			} else {
				e.Fail(0, 1, sink.Permanent(errors.New("no")))
			}
			return &e
		}
		r.store.produce(r.ns, "p", 4, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 4, Delivered: 3, Dead: 1})
		list := r.sink.seen()
		if len(list) != 2 || !slices.Equal(list[1].seqs, []int64{list[0].seqs[0], list[0].seqs[2]}) {
			t.Errorf("written %+v", list)
		}
	})
}

// Whatever a sink names to be retried, and whatever expires or overflows
// meanwhile: delivered is what it accepted, to the entry, and it accepts none twice.
func TestDeliveredIsWhatTheSinkAccepted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		rejection := rapid.IntRange(1, 100).Draw(rt, "of 100 entries retried")
		deaths := rapid.IntRange(0, 10).Draw(rt, "of 100 entries dead")
		together := rapid.IntRange(0, 3).Draw(rt, "MaxBatches")
		partitions := rapid.IntRange(1, 4).Draw(rt, "partitions")
		policy := func(p *partition.Policy) {
			p.Batch = rapid.IntRange(1, 20).Draw(rt, "batch")
			p.Capacity = rapid.IntRange(2, 100).Draw(rt, "capacity")
			p.MaxAge = time.Duration(rapid.IntRange(2, 20).Draw(rt, "max age")) * time.Second
			p.Linger = time.Duration(rapid.IntRange(0, 1500).Draw(rt, "linger")) * time.Millisecond
		}
		rep := &report{TB: t}
		synctest.Test(t, func(*testing.T) {
			r := newRig(rep, policy)
			var mu sync.Mutex
			took := map[string]map[int64]bool{}
			r.sink.caps = sink.Caps{MaxBatches: together}
			r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
				mu.Lock()
				wait := time.Duration(rng.IntN(20)) * time.Millisecond
				mu.Unlock()
				clocktest.Take(wait)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				mu.Lock()
				defer mu.Unlock()
				var e sink.BatchError
				plain := rng.IntN(10) == 0
				for i, b := range batches {
					if took[b.Partition] == nil {
						took[b.Partition] = map[int64]bool{}
					}
					for j, entry := range b.Entries {
						roll := rng.IntN(100)
						switch {
						case plain:
						case roll < rejection:
							e.Fail(i, j, errDown)
						case roll < rejection+deaths:
							e.Fail(i, j, sink.Permanent(errDown))
						case took[b.Partition][entry.Seq]:
							rep.Errorf("%s: %d was accepted before and came again", b.Partition, entry.Seq)
						default:
							took[b.Partition][entry.Seq] = true
						}
					}
				}
				switch {
				case plain:
					return errDown
				case len(e.Failed) > 0:
					return &e
				}
				return nil
			}
			r.start()
			for range 40 {
				mu.Lock()
				name, n, pause := strings.Repeat("p", rng.IntN(partitions)+1), rng.IntN(40)+1, rng.IntN(800)
				mu.Unlock()
				r.store.produce(r.ns, name, n, 0)
				clocktest.Pass(time.Duration(pause) * time.Millisecond)
			}
			r.drained(time.Minute)
			r.stop()
			accepted := 0
			for _, seqs := range took {
				accepted += len(seqs)
			}
			if l := r.store.ledger(r.ns); l.Delivered != int64(accepted) {
				rep.Errorf("the sink accepted %d entries: %+v", accepted, l)
			}
		})
		if len(rep.texts) > 0 {
			rt.Fatalf("%s", strings.Join(rep.texts, "\n"))
		}
	})
}

func TestBisectHalvesWhatWasWritten(t *testing.T) {
	t.Parallel()
	entries := leaseOf(20).Entries
	batch := func(seqs ...int) *sink.Batch {
		b := &sink.Batch{}
		for _, i := range seqs {
			b.Entries = append(b.Entries, entries[i])
		}
		return b
	}
	for name, c := range map[string]struct {
		batches []*sink.Batch
		want    string
	}{
		"two":            {[]*sink.Batch{batch(4, 5)}, "[{4 5}] [{5 6}]"},
		"three":          {[]*sink.Batch{batch(4, 5, 6)}, "[{4 5}] [{5 7}]"},
		"stale between":  {[]*sink.Batch{batch(4, 9, 10, 19)}, "[{4 10}] [{10 20}]"},
		"three batches":  {[]*sink.Batch{batch(0, 1), batch(5), batch(6, 8)}, "[{0 2}] [{5 6} {6 9}]"},
		"single entries": {[]*sink.Batch{batch(0), batch(5)}, "[{0 1}] [{5 6}]"},
	} {
		left, right := bisect(guard.Pending{Batches: c.batches}, 1000)
		if got := fmt.Sprint(left.spans, " ", right.spans); got != c.want || !left.split || !right.split {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestBisectMemoIsBoundedAndMeantForOneRange(t *testing.T) {
	t.Parallel()
	var m bisectMemo
	l := leaseOf(10)
	m.put("p", bisectRange{1000, 4})
	if got := m.take(l); got != 4 {
		t.Errorf("took %d", got)
	}
	if got := m.take(l); got != 0 {
		t.Errorf("took %d again", got)
	}
	m.put("p", bisectRange{999, 4})
	if got := m.take(l); got != 0 {
		t.Errorf("took %d of another range", got)
	}
	for i := range 3 * maxBisectMemo {
		m.put(fmt.Sprint(i), bisectRange{1, 1})
	}
	if len(m.ranges) > maxBisectMemo {
		t.Errorf("%d ranges", len(m.ranges))
	}
}
