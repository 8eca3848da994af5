package fallback

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

// everything rejects each entry by name.
func everything(_ context.Context, batches []*sink.Batch) error {
	failed := &sink.BatchError{}
	for i, b := range batches {
		for j := range b.Entries {
			failed.Fail(i, j, sink.Permanent(errors.New("not here")))
		}
	}
	return failed
}

func TestConforms(t *testing.T) {
	t.Parallel()
	// Entries of the suite have a minute to live, which is less than a quarter.
	ending := config()
	ending.MaxAge = time.Hour
	for name, x := range map[string]struct {
		cfg Config
		// how the first tier fails, for good; without any it takes the entries
		open func() error
		fail func(context.Context, []*sink.Batch) error
	}{
		"the first tier works":                                    {cfg: config()},
		"the first tier rejects all":                              {cfg: config(), fail: everything},
		"the first tier is dead and entries have no time to wait": {cfg: ending, fail: always(errDead)},
		"the first tier never opens and entries have no time":     {cfg: ending, open: func() error { return errDead }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, sinktest.Harness{New: func(testing.TB) sinktest.Fixture {
				first := &box{caps: sink.Caps{MaxBatches: 4}, fail: x.fail, open: x.open}
				second := &box{caps: sink.Caps{MaxBatches: 2, MaxInFlight: 3}}
				works := x.fail == nil && x.open == nil
				taker := second
				if works {
					taker = first
				}
				fault := func(err error) func() func() {
					return func() func() {
						taker.set(always(err))
						return func() { taker.set(nil) }
					}
				}
				fixture := sinktest.Fixture{
					Sink:     newSink(x.cfg, zap.NewNop(), first, second),
					Received: func() ([]sinktest.Record, error) { return append(first.received(), second.received()...), nil },
					Stall: func() func() {
						taker.set(hang)
						return func() { taker.set(nil) }
					},
					Faults: []sinktest.Fault{
						{Name: "dead", Start: fault(errDead)},
						{Name: "throttled", Start: fault(sink.Throttle(errDead, time.Second))},
						{Name: "not connected", Start: fault(sink.ErrNotConnected)},
					},
				}
				if !works {
					fixture.Faults = append(fixture.Faults, sinktest.Fault{Name: "rejects", Permanent: true, Start: fault(sink.Permanent(errDead))})
				}
				return fixture
			}})
		})
	}
}
