package drain

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// What a target does to some partitions must cost the others nothing measurable, and
// another sink neither. Time is the bubble's, so the ratio is free of noise.
func TestBadPartitionsAndDeadSinksCostTheOthersNothingMeasurable(t *testing.T) {
	bad := map[string]func(context.Context, []*sink.Batch) error{
		"nothing": nil,
		"fails":   func(context.Context, []*sink.Batch) error { return errDown },
		"hangs":   hang,
		"throttles": func(_ context.Context, batches []*sink.Batch) error {
			var e sink.BatchError
			for i, b := range batches {
				for j := range b.Entries {
					if isBad(b) {
						e.Fail(i, j, sink.Throttle(errDown, time.Second))
					}
				}
			}
			return &e
		},
		"half-fails": func(_ context.Context, batches []*sink.Batch) error {
			if batches[0].FirstSeq%2 == 0 {
				return errDown
			}
			return nil
		},
		"answers late": func(context.Context, []*sink.Batch) error {
			clocktest.Take(time.Second)
			return nil
		},
	}
	for name, caps := range map[string]sink.Caps{
		"coalescing":                 {MaxBatches: 10_000, PreferEntries: 1_000, Linger: time.Second},
		"coalescing, MaxInFlight 16": {MaxBatches: 10_000, PreferEntries: 1_000, Linger: time.Second, MaxInFlight: 16},
		"adaptive":                   {},
	} {
		if testing.Short() && caps.MaxInFlight > 0 {
			continue // a bound of Writes at once makes a coalescing sink slower, and nothing else
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				base := drainTime(t, caps, nil)
				for how, write := range bad {
					if how == "answers late" && caps.Linger > 0 {
						continue // a Write that is answered late, and whole, looks like a slow sink
					}
					ratio := float64(drainTime(t, caps, write)) / float64(base)
					if ratio > 1.1 { // the order of goroutines is chance: a few per cent
						ratio = float64(drainTime(t, caps, write)) / float64(drainTime(t, caps, nil))
					}
					if ratio > 1.1 {
						t.Errorf("%s: %.3f times as long as without", how, ratio)
					}
					t.Logf("%s: %.3f (%v without)", how, ratio, base)
				}
			})
		})
	}
}

func isBad(b *sink.Batch) bool { return strings.HasPrefix(b.Partition, "bad") }

// drainTime is how long most of a backlog of 100 partitions takes, beside three for
// which the sink does as bad says, and beside a namespace whose sink hangs.
func drainTime(t *testing.T, caps sink.Caps, bad func(context.Context, []*sink.Batch) error) time.Duration {
	r := newRig(t)
	r.cfg.SinkTimeout, r.cfg.Lease = 2*time.Second, 6*time.Second
	r.sink.caps = caps
	r.store.roundTrip = time.Millisecond
	r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
		for _, b := range batches {
			if bad != nil && isBad(b) {
				return bad(ctx, batches)
			}
		}
		clocktest.Take(20 * time.Millisecond)
		return nil
	}
	dead := space("dead")
	r.store.spaces[dead.Name] = &fakeSpace{ns: dead, partitions: map[string]*fakePartition{}}
	if bad != nil {
		other := r.fakeSink(dead)
		other.caps, other.write = caps, hang
		r.more = []Target{{Namespace: dead, Sink: other}}
	}
	r.start()
	const partitions, entries = 100, 2_500
	produce := func(n int) {
		for p := range partitions {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), n, 0)
		}
		for p := range 3 {
			r.store.produce(r.ns, fmt.Sprintf("bad%d", p), 1, 0)
			r.store.produce(dead, fmt.Sprintf("p%d", p), 1, 0)
		}
	}
	// What the drain learns of the bad partitions costs something once.
	for range 40 {
		produce(1)
		clocktest.Pass(time.Second)
	}
	produce(entries)
	until := func(share float64) {
		for float64(r.store.ledger(r.ns).Buffered) > share*partitions*entries {
			clocktest.Pass(time.Millisecond)
		}
	}
	until(0.9) // the first Writes wait for what lingers
	begin := time.Now()
	until(0.2)
	took := time.Since(begin)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = r.d.Stop(ctx) // what hangs may be given back
	return took
}
