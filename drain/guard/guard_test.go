package guard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// The last failure is not the end of an outage: after a long back-off nobody tries.
func TestFailedForLastsUntilTheFirstAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		h := &health{log: zap.New(core), metrics: newTestMetrics()}
		h.failed(reasonError, errTestDown)
		clocktest.Pass(4 * time.Second)
		h.failed(reasonError, errTestDown)
		clocktest.Pass(26 * time.Second)
		h.succeeded()
		clocktest.Pass(time.Minute)
		h.succeeded()
		line := logs.FilterMessage("sink recovered").All()
		if len(line) != 1 || line[0].ContextMap()["failed_for"] != 30*time.Second {
			t.Errorf("got %v, want one line with 30s", line)
		}
	})
}

// A sink that fails now and then works: what an operator is told counts from its last answer.
func TestASinkFailsSinceNothingSucceeded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &health{log: zap.NewNop(), metrics: newTestMetrics()}
		since := func() (time.Duration, bool) {
			var s TargetStatus
			failing := h.describe(&s)
			if failing == s.FailingSince.IsZero() {
				t.Fatalf("failing %v since %v", failing, s.FailingSince)
			}
			return time.Since(s.FailingSince), failing
		}
		for range 100 {
			h.failed(reasonError, errTestDown)
			clocktest.Pass(time.Second)
			h.failed(reasonError, errTestDown)
			if d, failing := since(); !failing || d != time.Second {
				t.Fatalf("fails %v for %v, 1 s after its last answer", failing, d)
			}
			h.succeeded()
			if _, failing := since(); failing {
				t.Fatal("fails right after an answer")
			}
		}
		h.stop()
	})
}

func newTestMetrics() *Metrics {
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "failures"}, []string{"reason"})
	gauge := func() prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts{Name: "gauge"}) }
	counter := func() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{Name: "counter"}) }
	return &Metrics{Failures: failures, Batches: counter(), Panics: counter(), Open: gauge(), Tripped: gauge(), Failing: gauge(), Concurrency: gauge()}
}

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

var (
	errTestDown   = errors.New("target is down")
	errTestUnsent = sink.Unsent(errors.New("connection refused"))
)

func TestOutcomeOfAWrite(t *testing.T) {
	t.Parallel()
	batches := []*sink.Batch{{Entries: make([]sink.Entry, 2)}, {Entries: make([]sink.Entry, 1)}}
	no := sink.Permanent(errors.New("no"))
	failed := func(list ...sink.EntryError) error { return fmt.Errorf("write: %w", &sink.BatchError{Failed: list}) }
	wait := sink.Throttle(errTestDown, time.Minute)
	gone := fmt.Errorf("write: %w", sink.ErrNotConnected)
	// want are the dispositions of the three entries: accepted, rejected, tried again.
	for name, c := range map[string]struct {
		err    error
		want   string
		reason string
		after  time.Duration
		reopen bool
	}{
		"nil":                        {nil, "aaa", "", 0, false},
		"plain":                      {errTestDown, "ttt", "error", 0, false},
		"timeout":                    {fmt.Errorf("x: %w", context.DeadlineExceeded), "ttt", "timeout", 0, false},
		"unsent":                     {fmt.Errorf("x: %w", errTestUnsent), "ttt", "unsent", 0, false},
		"unsent in time":             {sink.Unsent(context.DeadlineExceeded), "ttt", "timeout", 0, false},
		"panic":                      {newPanicError("x", nil), "ttt", "panic", 0, false},
		"not connected":              {gone, "ttt", "not_connected", 0, true},
		"permanent":                  {no, "rrr", "permanent", 0, false},
		"throttle":                   {wait, "ttt", "throttled", time.Minute, false},
		"throttle of a permanent":    {sink.Throttle(no, time.Second), "ttt", "throttled", time.Second, false},
		"permanent of a throttle":    {sink.Permanent(wait), "ttt", "throttled", time.Minute, false},
		"throttle, not connected":    {sink.Throttle(gone, time.Second), "ttt", "throttled", time.Second, true},
		"names nothing":              {failed(), "ttt", "bad_batch_error", 0, false},
		"names no such batch":        {failed(sink.EntryError{Batch: 2, Err: errTestDown}), "ttt", "bad_batch_error", 0, false},
		"names no such entry":        {failed(sink.EntryError{Batch: 1, Entry: 1, Err: no}), "ttt", "bad_batch_error", 0, false},
		"names a negative":           {failed(sink.EntryError{Entry: -1, Err: no}), "ttt", "bad_batch_error", 0, false},
		"one plain":                  {failed(sink.EntryError{Entry: 1, Err: errTestDown}), "ata", "partial", 0, false},
		"one without an error":       {failed(sink.EntryError{Entry: 1}), "ata", "partial", 0, false},
		"one permanent":              {failed(sink.EntryError{Batch: 1, Err: no}), "aar", "partial", 0, false},
		"one throttled":              {failed(sink.EntryError{Batch: 1, Err: wait}), "aat", "partial", time.Minute, false},
		"one not connected":          {failed(sink.EntryError{Entry: 1, Err: gone}), "ata", "partial", 0, true},
		"both in permanent":          {sink.Permanent(failed(sink.EntryError{Entry: 1, Err: errTestDown})), "ata", "partial", 0, false},
		"twice, plain last":          {failed(sink.EntryError{Err: no}, sink.EntryError{Err: errTestDown}), "taa", "partial", 0, false},
		"twice, permanent last":      {failed(sink.EntryError{Err: errTestDown}, sink.EntryError{Err: no}), "taa", "partial", 0, false},
		"all plain":                  {failed(sink.EntryError{Err: errTestDown}, sink.EntryError{Entry: 1, Err: errTestDown}, sink.EntryError{Batch: 1, Err: errTestDown}), "ttt", "error", 0, false},
		"all permanent":              {failed(sink.EntryError{Err: no}, sink.EntryError{Entry: 1, Err: no}, sink.EntryError{Batch: 1, Err: no}), "rrr", "partial", 0, false},
		"deadline after the partial": {fmt.Errorf("%w: %w", context.DeadlineExceeded, failed(sink.EntryError{Entry: 1, Err: no})), "ara", "partial", 0, false},
	} {
		o := outcomeOf(c.err, batches)
		var got strings.Builder
		for i, b := range batches {
			for j := range b.Entries {
				what, _ := o.Of(i, j, c.err)
				got.WriteByte("art"[what])
			}
		}
		if got.String() != c.want || o.Reason != c.reason || o.After != c.after || o.reopen != c.reopen {
			t.Errorf("%s: dispositions %s reason %q after %v reopen %v, want %s %q %v %v",
				name, got.String(), o.Reason, o.After, o.reopen, c.want, c.reason, c.after, c.reopen)
		}
	}
}

func TestPanicTextHoldsNoPayload(t *testing.T) {
	t.Parallel()
	if got := newPanicError("secret", nil).Error(); got != "sink panicked: a string" {
		t.Errorf("got %q", got)
	}
	defer func() {
		if got := newPanicError(recover(), nil).Error(); !strings.Contains(got, "index out of range") {
			t.Errorf("got %q", got)
		}
	}()
	_ = []int{}[len(t.TempDir())]
}

func TestBackoffGrowsFromBaseToMax(t *testing.T) {
	t.Parallel()
	const base, limit = 100 * time.Millisecond, 30 * time.Second
	for attempt, want := range map[int]time.Duration{
		0: base, 1: base, 2: 2 * base, 3: 4 * base, 9: 256 * base, 10: limit, 63: limit, 64: limit, 1 << 40: limit,
	} {
		if got := Backoff(base, limit, attempt, 1); got != want {
			t.Errorf("attempt %d: ceiling %v, want %v", attempt, got, want)
		}
		if got := Backoff(base, limit, attempt, 0); got != 0 {
			t.Errorf("attempt %d: floor %v: full jitter begins at 0", attempt, got)
		}
	}
}

func TestNoticeFollowsTheSinksPaceWithinBounds(t *testing.T) {
	t.Parallel()
	var p Pace
	const timeout, maxAge = 10 * time.Second, 3 * time.Minute
	if got := p.minLife(timeout, maxAge); got != 0 {
		t.Errorf("minLife %v before the first Write", got)
	}
	p.Took(time.Second, false)
	if got := p.minLife(timeout, maxAge); got != 2*time.Second {
		t.Errorf("minLife %v at a pace of 1s", got)
	}
	p.cut(3 * time.Second)
	p.cut(time.Second)
	if got := p.Get(); got != 3*time.Second {
		t.Errorf("pace %v after a Write was cut off at 3s", got)
	}
	p.cut(time.Hour)
	if got := p.minLife(timeout, maxAge); got != timeout {
		t.Errorf("minLife %v, a Write ends after %v", got, timeout)
	}
	if got := p.minLife(timeout, 8*time.Second); got != 2*time.Second {
		t.Errorf("minLife %v of a max age of 8s: a quarter of it is the most", got)
	}
	for range 40 {
		p.Took(10*time.Millisecond, false)
	}
	if got := p.Get(); got > 11*time.Millisecond {
		t.Errorf("pace %v after 40 quick Writes", got)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

func newTestLimit(n int) (*limit, *Slots) {
	s := NewSlots(n)
	return newLimit(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: "limit"})), s
}

// answer makes the limit see Writes of a duration for a time, with all slots taken.
func answer(l *limit, each, lasting time.Duration) {
	for end := time.Now().Add(lasting); time.Now().Before(end); {
		n, began := l.slots.More(l.slots.Size()), time.Now()
		clocktest.Pass(each)
		l.answered(began)
		l.slots.Put(n)
	}
}

func TestLimitFallsWhileTheSinkThrottlesAndRecovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, s := newTestLimit(64)
		for range 5 {
			clocktest.Pass(time.Second)
			l.throttled(time.Now())
		}
		low := l.get()
		if low > 32 || s.Available() != low {
			t.Errorf("%d Writes, %d slots, after five seconds of throttling", low, s.Available())
		}
		answer(l, 50*time.Millisecond, 30*time.Second)
		if got := l.get(); got != 64 || s.Available() != 64 {
			t.Errorf("%d Writes, %d slots, once it took all again", got, s.Available())
		}
	})
}

func TestLimitIgnoresHowLongWritesTake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := newTestLimit(64)
		for i := range 20 {
			answer(l, time.Duration(1+i)*100*time.Millisecond, 2*time.Second)
		}
		if got := l.get(); got != 64 {
			t.Errorf("%d Writes", got)
		}
	})
}

func TestLimitFallsToOneWhenEverythingIsThrottledAndNoFurther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, s := newTestLimit(64)
		for range 60 * 100 {
			l.throttled(time.Now())
			clocktest.Pass(10 * time.Millisecond)
		}
		if l.get() != 1 || s.Available() != 1 {
			t.Errorf("%d Writes, %d slots", l.get(), s.Available())
		}
	})
}

func TestSlotsThatAreTakenAreWithdrawnWhenTheyComeBack(t *testing.T) {
	t.Parallel()
	s := NewSlots(8)
	taken := s.More(6)
	s.withdraw(5)
	if s.Available() != 0 {
		t.Errorf("%d free", s.Available())
	}
	s.restore(1)
	s.Put(taken)
	if s.Available() != 4 {
		t.Errorf("%d free, want 4", s.Available())
	}
	s.restore(4)
	if s.Available() != s.Size() {
		t.Errorf("%d free, want all", s.Available())
	}
}

func TestRecentWritesForgetsAfterAMinute(t *testing.T) {
	bubble(t, func(*testing.T) {
		w := newRecentWrites()
		for range 99 {
			w.took(time.Millisecond)
		}
		w.took(time.Second)
		near := func(got, want time.Duration) bool { return math.Abs(float64(got-want)) <= float64(want)/8 }
		if p50, p99, _ := w.figures(); !near(p50, time.Millisecond) || !near(p99, time.Millisecond) {
			t.Errorf("p50 %v p99 %v", p50, p99)
		}
		w.took(time.Second)
		if _, p99, perSecond := w.figures(); !near(p99, time.Second) || perSecond != 101 {
			t.Errorf("p99 %v, %v a second", p99, perSecond)
		}
		clocktest.Pass(30 * time.Second)
		w.took(time.Minute)
		if p50, _, perSecond := w.figures(); !near(p50, time.Millisecond) || perSecond != 0.1 {
			t.Errorf("p50 %v, %v a second", p50, perSecond)
		}
		clocktest.Pass(45 * time.Second)
		if p50, _, _ := w.figures(); !near(p50, time.Minute) {
			t.Errorf("p50 %v", p50)
		}
		clocktest.Pass(time.Hour)
		if p50, p99, perSecond := w.figures(); p50 != 0 || p99 != 0 || perSecond != 0 {
			t.Errorf("after an hour: %v %v %v", p50, p99, perSecond)
		}
	})
}

func TestBucketsHoldEachDurationWithinAnEighth(t *testing.T) {
	t.Parallel()
	for d := 100 * time.Microsecond; d < 15*time.Minute; d += d/7 + 1 {
		got := bucketMiddle(bucketOf(d))
		if off := math.Abs(float64(got-d)) / float64(d); off > 0.13 {
			t.Errorf("%v is shown as %v", d, got)
		}
	}
	if bucketOf(-time.Second) != 0 || bucketOf(100*time.Hour) != recentBuckets-1 {
		t.Error("a duration out of range")
	}
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
		clocktest.Pass(letterPause)
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
