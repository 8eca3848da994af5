package drain

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/lifecycletest"
)

var _, _ Store = (*partition.Store)(nil), (*partition.Stores)(nil)

func TestHangingSinkOfOneNamespaceDoesNotHoldUpAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Workers = 2
		other := space("other")
		r.store.spaces["other"] = newFakeStore(other).spaces["other"]
		stuck := r.fakeSink(other)
		stuck.write = hang
		r.more = []Target{{Namespace: other, Sink: stuck, Label: "stuck:"}}
		for p := range 50 {
			r.store.produce(other, fmt.Sprintf("p%d", p), 10, 0)
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 10, 0)
		}
		r.start()
		r.drained(1100 * time.Millisecond)
		r.wantLedger(partition.Ledger{Accepted: 500, Delivered: 500})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = r.d.Stop(ctx)
		r.verify()
	})
}

func TestStopLetsLeasesFinish(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(context.Context, []*sink.Batch) error { clocktest.Take(3 * time.Second); return nil }
		for p := range 10 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 10, 0)
		}
		r.start()
		clocktest.Pass(1500 * time.Millisecond)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 100, Delivered: 100})
		if r.sink.closes != 1 {
			t.Errorf("closed %d times", r.sink.closes)
		}
	})
}

func TestStopReleasesLeasesForOthersWhenItsContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = hang
		for p := range 10 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 10, 0)
		}
		r.start()
		clocktest.Pass(1500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := r.d.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(start); took > 1100*time.Millisecond {
			t.Errorf("stop took %v", took)
		}
		r.verify()
		if got := r.store.leased(); len(got) > 0 {
			t.Errorf("still leased: %v", got)
		}
		for name, p := range r.store.spaces["games"].partitions {
			if p.due > r.store.now() || p.attempt != 1 {
				t.Errorf("%s: due in %d ms, attempt %d; another drainer should have it at once", name, p.due-r.store.now(), p.attempt)
			}
		}
		if r.failures(guard.ReasonStopped) != 10 || r.lines("sink failing") != 0 {
			t.Errorf("a cancelled Write is no failure of the sink")
		}
	})
}

func TestStopReturnsEvenWhenASinkDoesNot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		let := make(chan struct{})
		r.sink.write = func(context.Context, []*sink.Batch) error { <-let; return nil }
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		clocktest.Pass(1500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := r.d.Stop(ctx)
		if err == nil || err.Error() != "stop drain: sinks of games do not return: context deadline exceeded" {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(start); took > time.Second+guard.StopGrace+guard.StopGrace/5 {
			t.Errorf("stop took %v", took)
		}
		if r.sink.closes != 0 {
			t.Error("closed under a Write")
		}
		close(let)
		_ = r.d.Stop(t.Context())
		r.verify()
	})
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	lifecycletest.Run(t, func(t *testing.T) lifecycletest.Component {
		ns := space("games")
		store := newFakeStore(ns)
		d, err := New(DefaultConfig(), store, []Target{{
			Namespace: ns, Sink: &fakeSink{now: store.now, maxAge: ns.Policy.MaxAge}, Label: "fake:",
		}}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

func TestStopBeforeStartAndTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		d, err := New(r.cfg, r.store, []Target{{Namespace: r.ns, Sink: r.sink}}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := d.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if d.Start(t.Context()) == nil {
			t.Error("Start after Stop: got no error")
		}
		clocktest.Pass(time.Second)
		if r.sink.opens > 0 || r.sink.closes > 0 || r.store.counts().due > 0 {
			t.Error("something ran after Stop")
		}
	})
}

func TestStopTwiceAtOnceWaitsForTheEndEachTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(context.Context, []*sink.Batch) error { clocktest.Take(3 * time.Second); return nil }
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		if r.d.Start(t.Context()) == nil {
			t.Error("a second Start: got no error")
		}
		clocktest.Pass(1500 * time.Millisecond)
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- r.d.Stop(context.Background()) }()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
			if l := r.store.ledger(r.ns); l.Delivered != 10 {
				t.Error("Stop returned before the end")
			}
		}
		if r.sink.closes != 1 {
			t.Errorf("closed %d times", r.sink.closes)
		}
	})
}

func TestStopReportsWhatCloseSays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.close = func(context.Context) error { return errDown }
		r.start()
		clocktest.Pass(time.Second)
		if err := r.d.Stop(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("stop: %v", err)
		}
	})
}

func TestStopDoesNotWaitForASinkThatDoesNotOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.open = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		r.start()
		clocktest.Pass(time.Second)
		start := time.Now()
		r.stop()
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if r.lines("sink failing") != 0 {
			t.Error("an Open that Stop ended is no failure")
		}
	})
}

func TestStopDuringAClaimDoesNotLoseTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.roundTrip = 100 * time.Millisecond
		r.store.produce(r.ns, "p", 128, 0)
		r.start()
		clocktest.Pass(150 * time.Millisecond) // the claim is on the wire
		if r.store.counts().due != 1 || r.store.counts().claim != 0 {
			t.Fatalf("not at the moment that was meant: %+v", r.store.counts())
		}
		r.stop()
		if got := r.store.leased(); len(got) > 0 {
			t.Errorf("%v stay leased", got)
		}
		r.wantLedger(partition.Ledger{Accepted: 128, Delivered: 128})
	})
}

func TestNewReturnsAnErrorForWhatCannotWork(t *testing.T) {
	t.Parallel()
	ns := space("games")
	s := newFakeStore(ns)
	one := Target{Namespace: ns, Sink: &fakeSink{}}
	taken := prometheus.NewRegistry()
	if _, err := newMetrics(taken); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg     Config
		targets []Target
		reg     prometheus.Registerer
	}{
		"config":          {Config{}, []Target{one}, prometheus.NewRegistry()},
		"no targets":      {DefaultConfig(), nil, prometheus.NewRegistry()},
		"no sink":         {DefaultConfig(), []Target{{Namespace: ns}}, prometheus.NewRegistry()},
		"no namespace":    {DefaultConfig(), []Target{{Sink: &fakeSink{}}}, prometheus.NewRegistry()},
		"namespace twice": {DefaultConfig(), []Target{one, one}, prometheus.NewRegistry()},
		"backoff":         {DefaultConfig(), []Target{{Namespace: ns, Sink: &fakeSink{}, BackoffBase: time.Minute}}, prometheus.NewRegistry()},
		"metrics taken":   {DefaultConfig(), []Target{one}, taken},
	} {
		if _, err := New(c.cfg, s, c.targets, c.reg, zap.NewNop()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestConfigIsValidatedFieldByField(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Config){
		"workers":           func(c *Config) { c.Workers = 0 },
		"sink_timeout":      func(c *Config) { c.SinkTimeout = 0 },
		"lease":             func(c *Config) { c.Lease = c.SinkTimeout + time.Second },
		"backoff_base":      func(c *Config) { c.BackoffBase = 0 },
		"backoff_max":       func(c *Config) { c.BackoffMax = time.Millisecond },
		"max_lease_batches": func(c *Config) { c.MaxLeaseBatches = 0 },
		"poll":              func(c *Config) { c.Poll = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		var wrong *partition.FieldError
		if err := c.Validate(); !errors.As(err, &wrong) || wrong.Field != field || wrong.Want == "" {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestMetricsAreWellNamedAndShowFromTheStart(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := newMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	m.of("games")
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	if n, err := testutil.GatherAndCount(reg, "spillway_drain_entries_total"); n != 7 || err != nil {
		t.Errorf("%d outcomes, %v", n, err)
	}
}
