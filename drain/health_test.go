package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

func TestEachKindOfDeadLetterIsLoggedAtMostOnceAMinute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			var e sink.BatchError
			for i, entry := range batches[0].Entries {
				words := "line %d is no JSON"
				if batches[0].Partition == "q" {
					words = "column %d is unknown"
				}
				e.Fail(0, i, sink.Permanent(fmt.Errorf(words, entry.Seq)))
			}
			return &e
		}
		r.store.produce(r.ns, "p", 100, 0)
		r.start()
		r.drained(time.Minute)
		r.store.produce(r.ns, "q", 1, 0)
		r.drained(time.Minute)
		time.Sleep(letterPause)
		r.store.produce(r.ns, "p", 1, 0)
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 102, Dead: 102})
		var got []string
		for _, line := range r.logs.FilterMessage("entries given up as dead letters").All() {
			m := line.ContextMap()
			got = append(got, fmt.Sprint(m["partition"], " ", m["entries"], " ", withoutNumbers(m["error"].(string))))
		}
		if want := []string{"p 1 line 0 is no JSON", "q 1 column 0 is unknown", "p 100 line 0 is no JSON"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestKindsOfDeadLettersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		l := letterLog{log: zap.New(core)}
		for i := range 10_000 {
			l.add("p", zap.Int64("seq", int64(i)), errors.New(strings.Repeat("x", 1+i%299)))
		}
		if n := logs.Len(); n != maxLetterKinds+1 || len(l.kinds) != maxLetterKinds+1 {
			t.Errorf("%d lines, %d kinds", n, len(l.kinds))
		}
	})
}

// Words with an id in hexadecimal are a kind each. Those that came twice within a minute
// must not stand in the way of later ones.
func TestKindsOfDeadLettersThatEndedMakeRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		l := letterLog{log: zap.New(core)}
		for i := range 2 * maxLetterKinds {
			l.add("p", zap.Int64("seq", int64(i)), errors.New(strings.Repeat("x", 1+i/2)))
		}
		time.Sleep(letterPause)
		for i := range maxLetterKinds - 1 { // the shared kind takes one place
			l.add("p", zap.Int64("seq", int64(i)), errors.New(strings.Repeat("y", 1+i)))
		}
		l.add("p", zap.Int64("seq", 0), errors.New("one kind too many"))
		var entries int64
		for _, line := range logs.All() {
			entries += line.ContextMap()["entries"].(int64)
		}
		if n := logs.Len(); n != 2*maxLetterKinds || entries != 3*maxLetterKinds {
			t.Errorf("%d lines that name %d entries, want %d and %d", n, entries, 2*maxLetterKinds, 3*maxLetterKinds)
		}
	})
}

// After an outage the backlog may be written at once, and then nothing for hours.
func TestRecoveryIsLoggedAlthoughNoWriteFollows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		up := time.Now().Add(20 * time.Second)
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if time.Now().Before(up) {
				return errDown
			}
			return nil
		}
		r.cfg.BackoffMax = time.Second
		r.store.produce(r.ns, "p", 1, 0)
		r.start()
		r.drained(time.Minute)
		time.Sleep(quietPeriod)
		if s := r.d.Status().Targets[0]; r.lines("sink recovered") != 1 || !s.FailingSince.IsZero() {
			t.Errorf("%+v, log %v", s, r.logs.All())
		}
		r.stop()
	})
}

func TestAnOpenEndsAFailureToOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		up := time.Now().Add(20 * time.Second)
		r.sink.open = func(context.Context) error {
			if time.Now().Before(up) {
				return errDown
			}
			return nil
		}
		r.start()
		time.Sleep(19 * time.Second)
		if r.value(r.metrics().sinkFailing) != 1 {
			t.Error("sink_failing is 0 while the sink cannot be opened")
		}
		time.Sleep(time.Minute)
		if r.value(r.metrics().sinkFailing) != 0 || r.lines("sink recovered") != 1 {
			t.Errorf("nothing was written, and the sink is open: %v", r.logs.All())
		}
		r.stop()
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

// A sink that fails now and then works: what an operator is told counts from its last answer.
func TestASinkFailsSinceNothingSucceeded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		h := &health{log: zap.NewNop(), metrics: &r.metrics().sinkMetrics}
		since := func() (time.Duration, bool) {
			var s TargetStatus
			failing := h.describe(&s)
			if failing == s.FailingSince.IsZero() {
				t.Fatalf("failing %v since %v", failing, s.FailingSince)
			}
			return time.Since(s.FailingSince), failing
		}
		for range 100 {
			h.failed(reasonError, errDown)
			time.Sleep(time.Second)
			h.failed(reasonError, errDown)
			if d, failing := since(); !failing || d != time.Second {
				t.Fatalf("fails %v for %v, 1 s after its last answer", failing, d)
			}
			h.succeeded()
			if _, failing := since(); failing {
				t.Fatal("fails right after an answer")
			}
		}
		h.stop()
		r.stop()
	})
}
