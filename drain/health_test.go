package drain

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

func TestDeadLettersAreLoggedAtMostOnceAQuietPeriod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(context.Context, []*sink.Batch) error { return sink.Permanent(errDown) }
		r.store.produce(r.ns, "p", 100, 0)
		r.start()
		r.drained(time.Minute)
		time.Sleep(quietPeriod)
		r.store.produce(r.ns, "q", 1, 0)
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 101, Dead: 101})
		named := r.logs.FilterMessage("entries given up as dead letters").All()
		if len(named) != 2 {
			t.Fatalf("%d lines for 101 dead letters in two bursts", len(named))
		}
		first, second := named[0].ContextMap(), named[1].ContextMap()
		if first["partition"] != "p" || first["error"] != errDown.Error() || second["partition"] != "q" || second["entries"] != int64(100) {
			t.Errorf("got %v, then %v", first, second)
		}
	})
}

// The last failure is not the end of an outage: after a long back-off nobody tries.
func TestFailedForLastsUntilTheFirstAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		r := newRig(t)
		r.start()
		h := &health{log: zap.New(core), metrics: &r.metrics().sinkMetrics}
		h.failed(reasonError, errDown)
		time.Sleep(4 * time.Second)
		h.failed(reasonError, errDown)
		time.Sleep(26 * time.Second)
		h.succeeded()
		time.Sleep(time.Minute)
		h.succeeded()
		r.stop()
		line := logs.FilterMessage("sink recovered").All()
		if len(line) != 1 || line[0].ContextMap()["failed_for"] != 30*time.Second {
			t.Errorf("got %v, want one line with 30s", line)
		}
	})
}

func TestFailingGaugeFallsWithTheFirstSuccess(t *testing.T) {
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
		r.store.produce(r.ns, "p", 1, 0)
		r.start()
		time.Sleep(5 * time.Second)
		if got := r.value(r.metrics().sinkFailing); got != 1 {
			t.Errorf("sink_failing is %v while the sink is down", got)
		}
		down.Store(false)
		r.drained(time.Minute)
		if got := r.value(r.metrics().sinkFailing); got != 0 {
			t.Errorf("sink_failing is %v after everything was delivered", got)
		}
		r.stop()
	})
}

func TestStopDoesNotWaitForAnUnreachableStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var away atomic.Bool
		r.sink.write = func(context.Context, []*sink.Batch) error { away.Store(true); return nil }
		r.store.settleFault = func(*partition.Lease) fault {
			if away.Load() {
				return unavailable
			}
			return fault{}
		}
		r.store.produce(r.ns, "p", 128, 0)
		r.start()
		time.Sleep(time.Second)
		began := time.Now()
		r.stop()
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("stop took %v", took)
		}
		// The lease lapses, and the range is delivered again: nothing is lost.
		r.wantLedger(partition.Ledger{Accepted: 128, Buffered: 128})
	})
}

// The gauge is what an alert reads, so it must not fall while nothing is delivered.
func TestFailingGaugeIsUpWhileEverythingWaitsForARetry(t *testing.T) {
	throttled := sink.Throttle(errDown, time.Second)
	named := func(batches []*sink.Batch, of func(entry int) error) error {
		var e sink.BatchError
		for b := range batches {
			for i := range batches[b].Entries {
				e.Fail(b, i, of(i))
			}
		}
		return &e
	}
	for name, write := range map[string]func(ctx context.Context, batches []*sink.Batch) error{
		"plain":     func(context.Context, []*sink.Batch) error { return errDown },
		"throttled": func(context.Context, []*sink.Batch) error { return throttled },
		"timeout":   hang,
		"panic":     func(context.Context, []*sink.Batch) error { panic("sink") },
		"named": func(_ context.Context, b []*sink.Batch) error {
			return named(b, func(int) error { return errDown })
		},
		"named, one of them rejected": func(_ context.Context, b []*sink.Batch) error {
			return named(b, func(i int) error {
				if i == 0 {
					return sink.Permanent(errDown)
				}
				return errDown
			})
		},
		"lost connection": func(context.Context, []*sink.Batch) error { return sink.ErrNotConnected },
	} {
		for _, caps := range []sink.Caps{{}, {MaxBatches: 100, Linger: time.Second}} {
			t.Run(fmt.Sprintf("%s/%v", name, caps.Linger), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t)
					r.sink.caps, r.sink.write = caps, write
					for p := range 20 {
						r.store.produce(r.ns, fmt.Sprint("p", p), 1000, 0)
					}
					r.start()
					time.Sleep(20 * time.Second)
					for range 60 {
						if got := r.value(r.metrics().sinkFailing); got != 1 {
							t.Fatalf("sink_failing is %v while nothing is delivered", got)
						}
						time.Sleep(500 * time.Millisecond)
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					_ = r.d.Stop(ctx)
				})
			})
		}
	}
}
