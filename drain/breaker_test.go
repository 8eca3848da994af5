package drain

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

func TestDeadSinkGetsOnlyProbes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var down atomic.Bool
		down.Store(true)
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if down.Load() {
				return errDown
			}
			return nil
		}
		for p := range 1000 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 2, 0)
		}
		r.start()
		time.Sleep(time.Minute)
		// 256 partitions newly fail, those of the workers' last round too, and then
		// come 232 probes until they are a second apart.
		if got := len(r.sink.seen()); got > 256+64+232+60 {
			t.Errorf("%d writes to a dead sink in a minute", got)
		}
		before := len(r.sink.seen())
		time.Sleep(time.Minute)
		if got := len(r.sink.seen()) - before; got > 100 {
			t.Errorf("%d writes to a dead sink in the next minute", got)
		}
		if got := r.value(r.metrics().sinkTripped); got != 1 {
			t.Errorf("tripped gauge %v", got)
		}
		down.Store(false)
		r.drained(maxProbePause + 40*time.Second)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 2000, Delivered: 2000})
		if r.value(r.metrics().sinkTripped) != 0 {
			t.Error("tripped gauge still 1")
		}
		if r.lines("sink failing") != 1 {
			t.Errorf("%d lines about the failure", r.lines("sink failing"))
		}
	})
}

func TestHealthyPartitionIsFoundAmongManyThatFailFromTheStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(_ context.Context, b []*sink.Batch) error {
			if b[0].Partition != "ok" {
				return errDown
			}
			return nil
		}
		for p := range 200 {
			r.store.produce(r.ns, fmt.Sprintf("bad%d", p), 1, 0)
		}
		r.store.produce(r.ns, "ok", 1, 0)
		r.start()
		// 200 new partitions do not trip the breaker.
		time.Sleep(2 * r.ns.Policy.Linger)
		if got := len(r.sink.accepted("ok")); got != 1 {
			t.Fatalf("the healthy partition was delivered %d times", got)
		}
		r.stop()
	})
}

func TestProbesForWhichNothingWasDueAreGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		time.Sleep(time.Millisecond)
		g := r.d.namespaces[0].guard
		fail := func(n int, reason string) {
			for p := range n {
				if !g.begin() {
					t.Fatal("the sink is not open")
				}
				g.ended(fmt.Sprint(p), writeOutcome{all: retryable, reason: reason}, nil)
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
		g.ended("p", writeOutcome{all: rejected, reason: reasonPermanent}, nil)
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
		r.stop()
	})
}

func TestProbesThatHangSlowTheNextOnesDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		time.Sleep(time.Millisecond)
		g := r.d.namespaces[0].guard
		for range probesAtOnce {
			g.begin()
		}
		for p := range tripAt / newFailure {
			g.begin()
			g.ended(fmt.Sprint(p), writeOutcome{all: retryable, reason: reasonError}, nil)
		}
		g.wait(t.Context())
		if got := g.pass([]string{"a", "b"}); len(got) != 1 {
			t.Errorf("%v pass while %d probes hang", got, probesAtOnce)
		}
		if pause := time.Until(g.breaker.nextProbe); pause < maxProbePause/2 {
			t.Errorf("the next follows in %v", pause)
		}
		r.stop()
	})
}
