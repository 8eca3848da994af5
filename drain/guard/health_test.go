package guard

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// The last failure is not the end of an outage: after a long back-off nobody tries.
func TestFailedForLastsUntilTheFirstAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		h := &health{log: zap.New(core), metrics: newTestMetrics()}
		h.failed(reasonError, errTestDown)
		time.Sleep(4 * time.Second)
		h.failed(reasonError, errTestDown)
		time.Sleep(26 * time.Second)
		h.succeeded()
		time.Sleep(time.Minute)
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
			time.Sleep(time.Second)
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
