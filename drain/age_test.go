package drain

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/fallback"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestStaleEntriesAreExpiredAndNeverWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.MaxAge = 10 * time.Second })
		up := time.Now().Add(8 * time.Second)
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if time.Now().Before(up) {
				return errDown
			}
			return nil
		}
		// Unsorted times: devices report late.
		r.store.produce(r.ns, "p", 5, 0)
		r.store.produce(r.ns, "p", 5, 4*time.Second)
		r.store.produce(r.ns, "p", 5, 1*time.Second)
		r.start()
		r.drained(time.Minute)
		r.stop()
		got := r.store.ledger(r.ns)
		if got.Expired < 5 || got.Delivered+got.Expired != 15 {
			t.Errorf("ledger %+v", got)
		}
		if n := r.outcome(outcomeExpired); int64(n) != got.Expired {
			t.Errorf("expired metric %d, ledger %d", n, got.Expired)
		}
	})
}

func TestMalformedEntriesAreExpired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.produce(r.ns, "p", 5, 0)
		r.store.spaces["games"].partitions["p"].entries[2].Occurred = 0
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 5, Delivered: 4, Expired: 1})
		if got := r.sink.seen()[0].seqs; len(got) != 4 || got[2] != got[1]+2 {
			t.Errorf("written %v", got)
		}
	})
}

func TestBackoffNeverPassesTheMomentTheBatchGoesStale(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.MaxAge = 7 * time.Second })
		r.cfg.BackoffBase, r.cfg.BackoffMax = 5*time.Second, time.Hour
		r.sink.write = func(context.Context, []*sink.Batch) error {
			return sink.Throttle(errDown, time.Hour)
		}
		end := time.Now().Add(7 * time.Second)
		var waits []time.Duration
		r.store.released = func(s *partition.Release) {
			waits = append(waits, s.Delay)
			if past := time.Now().Add(s.Delay).Sub(end); past > 0 {
				t.Errorf("a retry %v after the batch is stale", past)
			}
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(7*time.Second + 50*time.Millisecond)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 10, Expired: 10})
		if len(waits) != 1 || waits[0] < 5900*time.Millisecond {
			t.Errorf("waits %v, want one to the end: the sink asked for an hour", waits)
		}
	})
}

func TestBacklogAtTheAgeLimitIsWrittenOnceAndNotCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// The sink takes less than comes in, so entries reach it at their age
		// limit: each batch has one that is about to go stale.
		r := newRig(t, func(p *partition.Policy) { p.MaxAge = 20 * time.Second; p.Capacity = 100_000 })
		r.sink.write = func(ctx context.Context, b []*sink.Batch) error {
			select {
			case <-time.After(200 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r.start()
		for range 600 { // a minute of 1,000 entries a second; the sink takes 640
			r.store.produce(r.ns, "p", 100, 0)
			clocktest.Pass(100 * time.Millisecond)
		}
		r.drained(time.Minute)
		r.stop()
		l := r.store.ledger(r.ns)
		if l.Delivered < 40_000 {
			t.Errorf("the backlog starved: %+v", l)
		}
		if cut := r.failures(guard.ReasonTimeout); cut > 3 {
			t.Errorf("%d writes were cut off", cut)
		}
	})
}

func TestEntryExpiredBeforeItsTimeIsNotWrittenAfterItsSuccessors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.MaxAge = 40 * time.Second; p.Linger = 100 * time.Millisecond })
		var quick atomic.Bool
		r.sink.write = func(_ context.Context, b []*sink.Batch) error {
			if b[0].Partition == "p" && b[0].Attempt == 1 {
				quick.Store(true)
				return errDown
			}
			if !quick.Load() {
				clocktest.Take(2 * time.Second)
			}
			return nil
		}
		r.store.produce(r.ns, "other", 1, 0)
		r.start()
		r.drained(10 * time.Second)
		r.store.produce(r.ns, "p", 1, 0)
		r.store.produce(r.ns, "p", 1, 37*time.Second)
		r.store.produce(r.ns, "p", 1, 0)
		for range 20 {
			r.store.produce(r.ns, "other", 1, 0)
			clocktest.Pass(110 * time.Millisecond)
		}
		r.drained(time.Minute)
		r.stop()
		r.ordered("p")
		if l := r.store.ledger(r.ns); l.Expired != 1 {
			t.Errorf("ledger %+v", l)
		}
	})
}

func TestSinkThatWasSlowOnceStillGetsEntriesThatComeDueLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.MaxAge, p.Linger = 10*time.Second, 9*time.Second })
		slow := true
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if slow {
				slow = false
				clocktest.Take(3 * time.Second)
			}
			return nil
		}
		r.store.produce(r.ns, "p", 128, 0) // full: due at once
		r.start()
		r.drained(4 * time.Second)
		for i := range 120 { // each comes due with a second of life
			r.store.produce(r.ns, fmt.Sprint("p", i), 1, 0)
			clocktest.Pass(time.Second)
		}
		r.drained(time.Minute)
		r.stop()
		l := r.store.ledger(r.ns)
		if l.Delivered+l.Expired != l.Accepted || l.Expired > 20 {
			t.Errorf("one slow Write, and of 120 later entries %d expired: %+v", l.Expired, l)
		}
	})
}

func TestSinkThatStaysTooSlowForItsEntriesGetsOnlyTrialWrites(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.MaxAge, p.Linger = 10*time.Second, 9*time.Second })
		r.sink.write = func(ctx context.Context, _ []*sink.Batch) error {
			select {
			case <-time.After(3 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r.store.produce(r.ns, "p", 128, 0)
		r.start()
		r.drained(4 * time.Second)
		before := len(r.sink.seen())
		for i := range 120 {
			for p := range 40 {
				r.store.produce(r.ns, fmt.Sprintf("p%d.%d", i, p), 1, 0)
			}
			clocktest.Pass(time.Second)
		}
		r.drained(time.Minute)
		r.stop()
		// A trial every 6 s, twice the pace.
		if got := len(r.sink.seen()) - before; got > 25 || got < 10 {
			t.Errorf("%d Writes in two minutes that age cut off", got)
		}
	})
}

// Whatever the first tier does wrong, and however short entries live, the second gets
// all of them: neither the breaker nor the pace of the sink lets any expire.
func TestNothingExpiresWhileAFallbackTakesEntries(t *testing.T) {
	rejects := func(context.Context, []*sink.Batch) error { return errDown }
	rejectsOdd := func(_ context.Context, batches []*sink.Batch) error {
		if len(batches[0].Partition)%2 == 1 {
			return errDown
		}
		return nil
	}
	throttles := func(context.Context, []*sink.Batch) error { return sink.Throttle(errDown, time.Hour) }
	slow := func(context.Context, []*sink.Batch) error { clocktest.Take(3 * time.Second); return errDown }
	for _, tt := range []struct {
		name   string
		first  func(context.Context, []*sink.Batch) error
		maxAge time.Duration
	}{
		{"rejects", rejects, 3 * time.Minute},
		{"rejects, short lives", rejects, 10 * time.Second},
		{"rejects some partitions", rejectsOdd, 3 * time.Minute},
		{"rejects some partitions, short lives", rejectsOdd, 20 * time.Second},
		{"throttles", throttles, 3 * time.Minute},
		{"hangs", hang, 3 * time.Minute},
		{"hangs, short lives", hang, 40 * time.Second},
		{"slow", slow, 3 * time.Minute},
		{"slow, short lives", slow, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, func(p *partition.Policy) { p.MaxAge = tt.maxAge })
				first := &fakeSink{write: tt.first, now: r.store.now, maxAge: tt.maxAge}
				cfg := fallback.Config{MaxAge: tt.maxAge, BackoffBase: r.cfg.BackoffBase, BackoffMax: r.cfg.BackoffMax}
				s := fallback.New(cfg, []fallback.Tier{{Sink: first, Label: "first:"}, {Sink: r.sink, Label: "second:"}}, zap.NewNop())
				d, err := New(r.cfg, r.store, []Target{{Namespace: r.ns, Sink: s, Label: "both:"}}, prometheus.NewRegistry(), zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				r.d = d
				if err := d.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				const partitions = 20
				rounds := size(240, 80)
				for range rounds {
					for p := range partitions {
						r.store.produce(r.ns, fmt.Sprintf("p%0*d", p%2+2, p), 2, 0)
					}
					clocktest.Pass(time.Second)
				}
				r.drained(2 * tt.maxAge)
				r.stop()
				all := int64(2 * rounds * partitions)
				r.wantLedger(partition.Ledger{Accepted: all, Delivered: all})
				if len(r.sink.seen()) == 0 || first.stale+first.late > 0 {
					t.Errorf("%d Writes to the second tier, %d stale and %d late in the first", len(r.sink.seen()), first.stale, first.late)
				}
			})
		})
	}
}
