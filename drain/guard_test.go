package drain

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

func TestNothingIsClaimedBeforeTheSinkIsOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		fails := 6
		r.sink.open = func(context.Context) error {
			if fails--; fails >= 0 {
				return errDown
			}
			if r.store.counts().claim > 0 {
				t.Error("claimed before the sink was open")
			}
			return nil
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(2 * time.Minute)
		time.Sleep(quietPeriod)
		r.store.produce(r.ns, "p", 1, 0)
		r.drained(10 * time.Second)
		r.stop()
		if r.sink.opens != 7 || r.sink.closes != 1 {
			t.Errorf("opened %d times, closed %d times", r.sink.opens, r.sink.closes)
		}
		if r.lines("sink failing") != 1 || r.lines("sink recovered") != 1 || r.lines("sink open") != 1 {
			t.Errorf("log %v", r.logs.All())
		}
	})
}

func TestOpenThatPanicsIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.open = func(context.Context) error {
			if opens, _ := r.sink.state(); opens == 1 {
				panic("not yet")
			}
			return nil
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		if got := r.value(r.metrics().panics); got != 1 {
			t.Errorf("panics %v", got)
		}
	})
}

func TestSinkThatLostItsConnectionIsReopenedWhenNoWriteRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var connected atomic.Bool
		r.sink.open = func(context.Context) error {
			opens, running := r.sink.state()
			if running > 0 {
				t.Errorf("opened under %d Writes", running)
			}
			if opens > 1 {
				before := r.store.counts().claim
				time.Sleep(3 * time.Second)
				if r.store.counts().claim != before {
					t.Error("claimed while the sink was not connected")
				}
			}
			connected.Store(true)
			return nil
		}
		var calls atomic.Int64
		r.sink.write = func(context.Context, []*sink.Batch) error {
			n := calls.Add(1)
			if n == 10 {
				connected.Store(false)
			}
			ok := connected.Load()
			time.Sleep(time.Duration(n) * time.Millisecond)
			if !ok {
				return fmt.Errorf("write: %w", sink.ErrNotConnected)
			}
			return nil
		}
		for p := range 40 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 100, 0)
		}
		r.start()
		r.drained(time.Minute)
		r.stop()
		if r.sink.opens != 2 {
			t.Errorf("opened %d times", r.sink.opens)
		}
		r.wantLedger(partition.Ledger{Accepted: 4000, Delivered: 4000})
	})
}

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

func TestFailingPartitionCostsOnlyItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		good := make(chan struct{})
		r.sink.write = func(_ context.Context, b []*sink.Batch) error {
			if b[0].Partition == "bad" {
				return errDown
			}
			good <- struct{}{}
			return nil
		}
		r.store.produce(r.ns, "bad", 10, 0)
		r.start()
		var late time.Duration
		for range 60 {
			born := time.Now()
			r.store.produce(r.ns, "good", 5, 0)
			<-good
			late = max(late, time.Since(born)-r.ns.Policy.Linger)
			time.Sleep(time.Millisecond) // the commit
		}
		r.drained(4 * time.Minute)
		r.stop()
		if late > 10*time.Millisecond {
			t.Errorf("a neighbour waited %v beyond the linger", late)
		}
		r.wantLedger(partition.Ledger{Accepted: 310, Delivered: 300, Expired: 10})
	})
}

func TestManyFailingPartitionsCostOnlyThemselves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var late time.Duration
		born := make(map[string]time.Time) // by payload
		var mu sync.Mutex
		r.sink.write = func(_ context.Context, b []*sink.Batch) error {
			if b[0].Partition != "ok" {
				return errDown
			}
			mu.Lock()
			defer mu.Unlock()
			for _, e := range b[0].Entries {
				late = max(late, time.Since(born[string(e.Payload)]))
			}
			return nil
		}
		r.start()
		for second := range 120 {
			payload := fmt.Sprint(second)
			mu.Lock()
			born[payload] = time.Now()
			mu.Unlock()
			r.store.produceAll(r.ns, "ok", 0, payload)
			for p := range 100 {
				if second >= 5 { // a neighbour begins to fail
					r.store.produce(r.ns, fmt.Sprintf("bad%d", p), 1, 0)
				}
			}
			time.Sleep(time.Second)
			if second > 60 && r.value(r.metrics().sinkTripped) != 0 {
				t.Fatalf("partitions that are known to fail tripped the breaker in second %d", second)
			}
		}
		time.Sleep(5 * time.Second)
		if got := len(flat(r.sink.of("ok"))); got != 120 {
			t.Errorf("%d of 120 entries of the healthy partition got through", got)
		}
		if limit := 3 * r.ns.Policy.Linger; late > limit {
			t.Errorf("the healthy partition's entries were up to %v old, want %v at most", late, limit)
		}
		r.stop()
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

func TestSinkThatHangsOnOnePartitionForEverCostsOneWorker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Workers = 3
		let := make(chan struct{})
		r.sink.write = func(_ context.Context, b []*sink.Batch) error {
			if b[0].Partition == "bad" {
				<-let // whatever the context says
			}
			return nil
		}
		r.store.produce(r.ns, "bad", 10, 0)
		r.start()
		for range 20 {
			r.store.produce(r.ns, "good", 5, 0)
			time.Sleep(10 * time.Second)
		}
		if got := len(r.sink.of("bad")); got != 1 {
			t.Errorf("%d workers hang on one partition", got)
		}
		if got := len(flat(r.sink.of("good"))); got != 100 {
			t.Errorf("%d of 100 entries got through", got)
		}
		if got := r.store.counts().due; got > 1000 {
			t.Errorf("%d Due calls in 200 s", got)
		}
		close(let)
		r.drained(10 * time.Second)
		r.stop()
	})
}

func TestFlappingSinkMakesTwoLogLines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		n := 0
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if n++; n < 100 && n%2 == 0 {
				return errDown
			}
			return nil
		}
		r.start()
		for p := range 200 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
			time.Sleep(100 * time.Millisecond)
		}
		r.drained(time.Minute)
		r.stop()
		if r.lines("sink failing") != 1 || r.lines("sink recovered") != 1 {
			t.Errorf("log %v", r.logs.All())
		}
		if got := r.logs.FilterMessage("sink recovered").All()[0].ContextMap()["failures"]; got != int64(49) {
			t.Errorf("failures %v", got)
		}
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
				g.ended(fmt.Sprint(p), writeOutcome{all: retryable, reason: reason})
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
		g.ended("p", writeOutcome{all: rejected, reason: reasonPermanent})
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
			g.ended(fmt.Sprint(p), writeOutcome{all: retryable, reason: reasonError})
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
