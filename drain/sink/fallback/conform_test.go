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
		cfg   Config
		first *box
		// works: the first tier takes the entries
		works bool
	}{
		"the first tier works":                                    {config(), &box{caps: sink.Caps{MaxBatches: 4}}, true},
		"the first tier rejects all":                              {config(), &box{fail: everything}, false},
		"the first tier is dead and entries have no time to wait": {ending, &box{fail: always(errDead)}, false},
		"the first tier never opens and entries have no time":     {ending, &box{open: func() error { return errDead }}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, sinktest.Harness{New: func(testing.TB) sinktest.Fixture {
				first, second := &box{caps: x.first.caps, fail: x.first.fail, open: x.first.open}, &box{caps: sink.Caps{MaxBatches: 2, MaxInFlight: 3}}
				taker := second
				if x.works {
					taker = first
				}
				normally := x.first.fail
				if !x.works {
					normally = nil
				}
				fault := func(err error) func() func() {
					return func() func() {
						taker.set(always(err))
						return func() { taker.set(normally) }
					}
				}
				fixture := sinktest.Fixture{
					Sink:     newSink(x.cfg, zap.NewNop(), first, second),
					Received: func() ([]sinktest.Record, error) { return append(first.received(), second.received()...), nil },
					Stall: func() func() {
						taker.set(hang)
						return func() { taker.set(normally) }
					},
					Faults: []sinktest.Fault{
						{Name: "dead", Start: fault(errDead)},
						{Name: "throttled", Start: fault(sink.Throttle(errDead, time.Second))},
						{Name: "not connected", Start: fault(sink.ErrNotConnected)},
					},
				}
				if !x.works {
					fixture.Faults = append(fixture.Faults, sinktest.Fault{Name: "rejects", Permanent: true, Start: fault(sink.Permanent(errDead))})
				}
				return fixture
			}})
		})
	}
}
