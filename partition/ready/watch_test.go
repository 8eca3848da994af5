package ready

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/lifecycletest"
)

type fakeChecker func(ctx context.Context) ([]string, error)

var _ Checker = fakeChecker(nil)

func (f fakeChecker) Check(ctx context.Context) ([]string, error) { return f(ctx) }

func TestWatchLogsChangesOnly(t *testing.T) {
	t.Parallel()
	// One answer per second. The text of an outage differs each time.
	down := func(i int) error { return fmt.Errorf("%w: from port %d", partition.ErrUnavailable, i) }
	answers := []error{nil, nil, down(1), down(2), partition.ErrIncompatible, partition.ErrIncompatible, down(3), nil, nil}
	want := []string{
		"info store ready",
		"error store unusable, checked again every second", // unavailable
		"error store unusable, checked again every second", // incompatible
		"error store unusable, checked again every second", // unavailable
		"info store ready",
	}
	core, logs := observer.New(zap.DebugLevel)
	i := 0
	w := New(fakeChecker(func(context.Context) ([]string, error) {
		i++
		return nil, answers[i-1]
	}), prometheus.NewRegistry(), zap.New(core))
	if w.Ready() == nil {
		t.Error("ready before the store was asked")
	}
	for n, answer := range answers {
		_ = w.check(t.Context())
		if got := w.Ready(); !errors.Is(got, answer) {
			t.Errorf("answer %d: got %v, want %v", n, got, answer)
		}
	}
	var got []string
	for _, e := range logs.All() {
		got = append(got, e.Level.String()+" "+e.Message)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWatchLogsAWarningOnce(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	warnings := []string{"persistence is off"}
	w := New(fakeChecker(func(context.Context) ([]string, error) { return warnings, nil }), prometheus.NewRegistry(), zap.New(core))
	w.err = nil // ready
	_ = w.check(t.Context())
	warnings = append(warnings, "something new")
	_ = w.check(t.Context())
	_ = w.check(t.Context())
	if logs.Len() != 2 {
		t.Errorf("got %v, want each warning once", logs.All())
	}
	warnings = warnings[:1]
	_ = w.check(t.Context())
	warnings = append(warnings, "something new")
	_ = w.check(t.Context())
	if logs.Len() != 4 || logs.FilterMessage("store guarantee restored").Len() != 1 {
		t.Errorf("got %v, want a line for a warning that went and one for it when it came back", logs.All())
	}
}

func TestWatchChecksEverySecondAndStaysNotReadyAfterShutDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int64
		reg := prometheus.NewRegistry()
		w := New(fakeChecker(func(context.Context) ([]string, error) {
			checks.Add(1)
			return nil, nil
		}), reg, zap.NewNop())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.run(ctx) }()
		clocktest.Pass(10*time.Second + time.Millisecond) // of the bubble
		if checks.Load() != 10 || w.Ready() != nil {
			t.Errorf("after 10 s: %d checks, ready: %v", checks.Load(), w.Ready())
		}
		if n, err := testutil.GatherAndCount(reg, "spillway_ready"); n != 1 || err != nil {
			t.Errorf("got %d gauges, %v", n, err)
		}
		w.ShutDown()
		clocktest.Pass(2 * time.Second)
		if !errors.Is(w.Ready(), ErrShuttingDown) {
			t.Errorf("got %v, want shutting down for good", w.Ready())
		}
		cancel()
		<-ended
	})
}

func TestWatchTimesOutOnAStoreThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := New(fakeChecker(func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			return nil, partition.ErrUnknown
		}), prometheus.NewRegistry(), zap.NewNop())
		start := time.Now()
		if err := w.check(t.Context()); !errors.Is(err, partition.ErrUnknown) || time.Since(start) != watchTimeout {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestWatchKeepsTheLifecycleContract(t *testing.T) {
	t.Parallel()
	lifecycletest.Run(t, func(*testing.T) lifecycletest.Component {
		healthy := fakeChecker(func(context.Context) ([]string, error) { return nil, nil })
		return aliveWatch{New(healthy, prometheus.NewRegistry(), zap.NewNop())}
	})
}

type aliveWatch struct{ *Watch }

func (w aliveWatch) Alive(context.Context) error { return w.Ready() }

// What a pool answers to each of the Checks, and what they say together.
func TestPoolsAreReadyWhileOneIs(t *testing.T) {
	t.Parallel()
	down := func(port int) error { return fmt.Errorf("%w: from port %d", partition.ErrUnavailable, port) }
	var answers [2]error
	checks := &Pools{}
	for i, name := range []string{"default", "fast"} {
		checks.Pools = append(checks.Pools, &Pool{Name: name, Ask: []Checker{fakeChecker(func(context.Context) ([]string, error) {
			if answers[i] != nil {
				return nil, answers[i]
			}
			return []string{"AOF off"}, nil
		})}})
	}
	const off, away = "pool default: AOF off", "pool fast cannot be used, its namespaces are rejected: "
	for i, row := range []struct {
		answers  [2]error
		want     error
		warnings []string
	}{
		{[2]error{nil, partition.ErrIncompatible}, partition.ErrIncompatible, nil}, // the first alone
		{[2]error{nil, nil}, nil, []string{off, "pool fast: AOF off"}},
		{[2]error{nil, down(1)}, nil, []string{off, away + down(1).Error()}},
		{[2]error{nil, down(2)}, nil, []string{off, away + down(1).Error()}}, // the log says it once
		{[2]error{nil, partition.ErrIncompatible}, nil, []string{off, away + partition.ErrIncompatible.Error()}},
		{[2]error{down(3), down(4)}, partition.ErrUnavailable, nil},
		{[2]error{nil, nil}, nil, []string{off, "pool fast: AOF off"}},
		{[2]error{nil, down(5)}, nil, []string{off, away + down(5).Error()}},
	} {
		answers = row.answers
		if warnings, err := checks.Check(t.Context()); !errors.Is(err, row.want) || !slices.Equal(warnings, row.warnings) {
			t.Errorf("row %d: got %q, %v", i, warnings, err)
		}
	}
}
