package guard

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
)

func TestProbesForWhichNothingWasDueAreGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newTestGuard(t)
		fail := func(n int, reason string) {
			for p := range n {
				if !g.Begin() {
					t.Fatal("the sink is not open")
				}
				g.Ended(Outcome{All: Retryable, Reason: reason}, nil, Share{fmt.Sprint(p), true})
			}
		}
		fail(tripAt/newFailure, reasonError)
		due := []string{"0"}
		for i := range 30 {
			due = append(due, fmt.Sprint("new", i))
		}
		if got := g.Pass(due); len(got) != 0 {
			t.Fatalf("%v pass right after the breaker tripped", got)
		}
		g.Wait(t.Context())
		got := g.Pass(due)
		if len(got) != probesAtOnce || slices.Contains(got, "0") {
			t.Fatalf("%v pass as probes", got)
		}
		if again := g.Pass(due); len(again) != 0 {
			t.Fatalf("%v pass beside the probes", again)
		}
		g.Unused(len(got))
		if got := g.Pass(due[:1]); len(got) != 1 {
			t.Fatalf("%v pass after the probes were given back", got)
		}
		g.Begin()
		g.Ended(Outcome{All: Rejected, Reason: ReasonPermanent}, nil, Share{"p", false})
		if got := g.Pass(due); len(got) != len(due) {
			t.Fatalf("%v pass after an answer", got)
		}
		fail(tripAt/newFailure, reasonError)
		if got := g.Pass(due); len(got) != len(due) {
			t.Fatalf("%v pass after as many failed that are known to", got)
		}
		fail(tripAt/sinkWideFailure, ReasonTimeout)
		if got := g.Pass(due); len(got) != 0 {
			t.Fatalf("%v pass after a round of time-outs", got)
		}
	})
}

func TestProbesThatHangSlowTheNextOnesDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newTestGuard(t)
		for range probesAtOnce {
			g.Begin()
		}
		for p := range tripAt / newFailure {
			g.Begin()
			g.Ended(Outcome{All: Retryable, Reason: reasonError}, nil, Share{fmt.Sprint(p), true})
		}
		g.Wait(t.Context())
		if got := g.Pass([]string{"a", "b"}); len(got) != 1 {
			t.Errorf("%v pass while %d probes hang", got, probesAtOnce)
		}
		if pause := time.Until(g.breaker.nextProbe); pause < MaxProbePause/2 {
			t.Errorf("the next follows in %v", pause)
		}
	})
}

// newTestGuard makes the guard of a sink that is open.
func newTestGuard(t *testing.T) *Guard {
	t.Helper()
	cfg := Config{SinkTimeout: time.Second, BackoffBase: time.Second, BackoffMax: time.Minute, Writes: 64}
	g := New(t.Context(), quiet{}, cfg, zap.NewNop(), newTestMetrics())
	go g.Keep(t.Context())
	if !g.Wait(t.Context()) {
		t.Fatal("the sink is not open")
	}
	return g
}

// quiet is a sink that takes everything.
type quiet struct{}

func (quiet) Open(context.Context) error                 { return nil }
func (quiet) Write(context.Context, []*sink.Batch) error { return nil }
func (quiet) Close(context.Context) error                { return nil }
func (quiet) Caps() sink.Caps                            { return sink.Caps{} }
