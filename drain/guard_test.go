package drain

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

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
			clocktest.Pass(time.Second)
			if second > 60 && r.value(r.metrics().Tripped) != 0 {
				t.Fatalf("partitions that are known to fail tripped the breaker in second %d", second)
			}
		}
		clocktest.Pass(5 * time.Second)
		if got := len(flat(r.sink.of("ok"))); got != 120 {
			t.Errorf("%d of 120 entries of the healthy partition got through", got)
		}
		if limit := 3 * r.ns.Policy.Linger; late > limit {
			t.Errorf("the healthy partition's entries were up to %v old, want %v at most", late, limit)
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
			clocktest.Pass(10 * time.Second)
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
			clocktest.Pass(100 * time.Millisecond)
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

func TestSinkThatHoldsOnlySoManyWritesIsNotGivenMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Batch = 1 })
		var mu sync.Mutex
		running := 0
		r.sink.write = func(context.Context, []*sink.Batch) error {
			mu.Lock()
			running++
			n := running
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				running--
			}()
			if n > 24 {
				clocktest.Take(time.Millisecond)
				return sink.Throttle(errDown, 100*time.Millisecond)
			}
			clocktest.Take(20 * time.Millisecond)
			return nil
		}
		r.start()
		for range size(40, 20) {
			for p := range 400 {
				r.store.produce(r.ns, fmt.Sprintf("p%d", p), 2, 0)
			}
			clocktest.Pass(time.Second / 2)
		}
		if got := r.metrics().Concurrency; r.value(got) > 40 {
			t.Errorf("%v Writes at once to a sink that holds 24", r.value(got))
		}
		r.drained(time.Minute)
		r.stop()
	})
}

// The rule: what a sink throttles, or hangs on, for some costs the others nothing.
func TestPartitionsThatAreThrottledOrHangDoNotLowerTheLimitForOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Batch = 1 })
		r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
			switch batches[0].Partition[0] {
			case 't':
				return sink.Throttle(errDown, time.Second)
			case 'h':
				return hang(ctx, batches)
			}
			clocktest.Take(20 * time.Millisecond)
			return nil
		}
		r.start()
		for range 60 {
			for p := range 100 {
				r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
			}
			for p := range 10 {
				r.store.produce(r.ns, fmt.Sprintf("t%d", p), 1, 0)
				r.store.produce(r.ns, fmt.Sprintf("h%d", p), 1, 0)
			}
			clocktest.Pass(time.Second / 2)
		}
		if got := r.metrics().Concurrency; r.value(got) < 50 {
			t.Errorf("%v Writes at once", r.value(got))
		}
		r.stop()
	})
}
