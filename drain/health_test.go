package drain

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

var numbers = regexp.MustCompile("[0-9]+")

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
		clocktest.Pass(time.Minute)
		r.store.produce(r.ns, "p", 1, 0)
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 102, Dead: 102})
		var got []string
		for _, line := range r.logs.FilterMessage("entries given up as dead letters").All() {
			m := line.ContextMap()
			got = append(got, fmt.Sprint(m["partition"], " ", m["entries"], " ", numbers.ReplaceAllString(m["error"].(string), "0")))
		}
		if want := []string{"p 1 line 0 is no JSON", "q 1 column 0 is unknown", "p 100 line 0 is no JSON"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
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
		clocktest.Pass(5 * time.Second)
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
		clocktest.Pass(19 * time.Second)
		if r.value(r.metrics().Failing) != 1 {
			t.Error("sink_failing is 0 while the sink cannot be opened")
		}
		clocktest.Pass(time.Minute)
		if r.value(r.metrics().Failing) != 0 || r.lines("sink recovered") != 1 {
			t.Errorf("nothing was written, and the sink is open: %v", r.logs.All())
		}
		r.stop()
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
		clocktest.Pass(5 * time.Second)
		if got := r.value(r.metrics().Failing); got != 1 {
			t.Errorf("sink_failing is %v while the sink is down", got)
		}
		down.Store(false)
		r.drained(time.Minute)
		if got := r.value(r.metrics().Failing); got != 0 {
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
		clocktest.Pass(time.Second)
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
					clocktest.Pass(20 * time.Second)
					for range 60 {
						if got := r.value(r.metrics().Failing); got != 1 {
							t.Fatalf("sink_failing is %v while nothing is delivered", got)
						}
						clocktest.Pass(500 * time.Millisecond)
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					_ = r.d.Stop(ctx)
				})
			})
		}
	}
}

func TestStatusFollowsTheSink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var openError, writeError atomic.Pointer[error]
		closed := fmt.Errorf("nobody listens on port 1")
		openError.Store(&closed)
		r.sink.open = func(context.Context) error {
			clocktest.Take(time.Second)
			if e := openError.Load(); e != nil {
				return *e
			}
			return nil
		}
		r.sink.write = func(context.Context, []*sink.Batch) error {
			clocktest.Take(40 * time.Millisecond)
			if e := writeError.Load(); e != nil {
				return *e
			}
			return nil
		}
		r.start()
		state := func() guard.TargetStatus { return r.d.Status().Targets[0] }
		if s := state(); s.State != guard.Opening || s.Type != "fake" || s.Namespace != "games" || s.LastError != "" || s.P99 != 0 {
			t.Errorf("before the first Open ends: %+v", s)
		}
		clocktest.Pass(1500 * time.Millisecond)
		if s := state(); s.State != guard.Failing || s.LastError != closed.Error() || s.FailingSince.IsZero() || s.Retries < 1 {
			t.Errorf("after a failed Open: %+v", s)
		}
		openError.Store(nil)
		clocktest.Pass(time.Minute)
		for p := range 100 {
			r.store.produce(r.ns, fmt.Sprint("p", p), 100, 0)
		}
		r.drained(time.Minute)
		synctest.Wait() // the last entries are settled before their worker is idle
		s := r.d.Status()
		if got := s.Targets[0]; got.State != guard.Open || got.P50 < 35*time.Millisecond || got.P99 > 45*time.Millisecond || got.WritesPerSecond <= 0 || got.Concurrency != 64 {
			t.Errorf("after 100 Writes of 40 ms: %+v", got)
		}
		if s.BatchFill[7] != 100 || s.Workers != (guard.WorkerStatus{Size: 64}) {
			t.Errorf("batches by entries %v, workers %+v", s.BatchFill, s.Workers)
		}
		down := fmt.Errorf("%s", strings.Repeat("ö", 1000))
		writeError.Store(&down)
		for p := range 2000 {
			r.store.produce(r.ns, fmt.Sprint("p", p), 1, 0)
		}
		clocktest.Pass(30 * time.Second)
		if got := state(); got.State != guard.Tripped || len(got.LastError) > 310 || !utf8.ValidString(got.LastError) || time.Since(got.FailingSince) > 30*time.Second {
			t.Errorf("while all Writes fail: %+v", got)
		}
		if words, at := r.d.LastError("games", "p7"); !strings.HasPrefix(words, "öö") || time.Since(at) > 30*time.Second {
			t.Errorf("last error of a partition: %q at %v", words, at)
		}
		if words, _ := r.d.LastError("other", "p7"); words != "" {
			t.Errorf("last error of another namespace: %q", words)
		}
		writeError.Store(nil)
		r.drained(10 * time.Minute)
		if words, _ := r.d.LastError("games", "p7"); words != "" || state().State != guard.Open {
			t.Errorf("after it recovered: %q, %+v", words, state())
		}
		r.stop()
	})
}

func TestStatusOfACoalescingSinkHasItsFill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Linger = 10 * time.Millisecond })
		r.sink.caps = sink.Caps{MaxBatches: 100, PreferEntries: 100, Linger: 5 * time.Second}
		r.store.produce(r.ns, "p", 25, 0)
		r.start()
		clocktest.Pass(time.Second)
		s := r.d.Status().Targets[0]
		if !s.Coalesces || s.Fill != 0.25 || s.Workers.Busy != 1 {
			t.Errorf("while 25 of 100 entries wait: %+v", s)
		}
		r.drained(time.Minute)
		r.stop()
		if s := r.d.Status().Targets[0]; s.Fill != 0 || s.Workers.Busy != 0 {
			t.Errorf("afterwards: %+v", s)
		}
	})
}
