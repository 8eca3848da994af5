package drain

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/fallback"
	"github.com/spillway-io/spillway/partition"
)

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
	slow := func(context.Context, []*sink.Batch) error { time.Sleep(3 * time.Second); return errDown }
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
				const rounds, partitions = 240, 20
				for range rounds {
					for p := range partitions {
						r.store.produce(r.ns, fmt.Sprintf("p%0*d", p%2+2, p), 2, 0)
					}
					time.Sleep(time.Second)
				}
				r.drained(2 * tt.maxAge)
				r.stop()
				r.wantLedger(partition.Ledger{Accepted: 2 * rounds * partitions, Delivered: 2 * rounds * partitions})
				if len(r.sink.seen()) == 0 || first.stale+first.late > 0 {
					t.Errorf("%d Writes to the second tier, %d stale and %d late in the first", len(r.sink.seen()), first.stale, first.late)
				}
			})
		})
	}
}
