package drain

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
				if !g.begin() {
					t.Fatal("the sink is not open")
				}
				g.ended(writeOutcome{all: retryable, reason: reason}, nil, share{fmt.Sprint(p), true})
			}
		}
		fail(tripAt/newFailure, reasonError)
		due := []string{"0"}
		for i := range 30 {
			due = append(due, fmt.Sprint("new", i))
		}
		if got := g.pass(due); len(got) != 0 {
			t.Fatalf("%v pass right after the breaker tripped", got)
		}
		g.wait(t.Context())
		got := g.pass(due)
		if len(got) != probesAtOnce || slices.Contains(got, "0") {
			t.Fatalf("%v pass as probes", got)
		}
		if again := g.pass(due); len(again) != 0 {
			t.Fatalf("%v pass beside the probes", again)
		}
		g.unused(len(got))
		if got := g.pass(due[:1]); len(got) != 1 {
			t.Fatalf("%v pass after the probes were given back", got)
		}
		g.begin()
		g.ended(writeOutcome{all: rejected, reason: reasonPermanent}, nil, share{"p", false})
		if got := g.pass(due); len(got) != len(due) {
			t.Fatalf("%v pass after an answer", got)
		}
		fail(tripAt/newFailure, reasonError)
		if got := g.pass(due); len(got) != len(due) {
			t.Fatalf("%v pass after as many failed that are known to", got)
		}
		fail(tripAt/sinkWideFailure, reasonTimeout)
		if got := g.pass(due); len(got) != 0 {
			t.Fatalf("%v pass after a round of time-outs", got)
		}
	})
}

func TestProbesThatHangSlowTheNextOnesDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newTestGuard(t)
		for range probesAtOnce {
			g.begin()
		}
		for p := range tripAt / newFailure {
			g.begin()
			g.ended(writeOutcome{all: retryable, reason: reasonError}, nil, share{fmt.Sprint(p), true})
		}
		g.wait(t.Context())
		if got := g.pass([]string{"a", "b"}); len(got) != 1 {
			t.Errorf("%v pass while %d probes hang", got, probesAtOnce)
		}
		if pause := time.Until(g.breaker.nextProbe); pause < maxProbePause/2 {
			t.Errorf("the next follows in %v", pause)
		}
	})
}

// newTestGuard makes the guard of a sink that is open.
func newTestGuard(t *testing.T) *sinkGuard {
	t.Helper()
	cfg := guardConfig{sinkTimeout: time.Second, backoffBase: time.Second, backoffMax: time.Minute, writes: 64}
	g := newSinkGuard(t.Context(), quiet{}, cfg, zap.NewNop(), newTestMetrics())
	go g.keep(t.Context())
	if !g.wait(t.Context()) {
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
