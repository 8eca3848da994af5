package drain

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

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
