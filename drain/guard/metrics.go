package guard

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what a guard counts of its sink.
type Metrics struct {
	Failures                   *prometheus.CounterVec
	Batches, Panics            prometheus.Counter
	WriteSeconds, BatchEntries prometheus.Observer
	Open, Tripped, Failing     prometheus.Gauge
	Concurrency                prometheus.Gauge // Writes that may run at once
}

// Registry makes metrics of one subsystem that all have the same first labels.
type Registry struct {
	subsystem string
	labels    []string
	made      []prometheus.Collector
}

// NewRegistry makes a Registry of metrics spillway_<subsystem>_….
func NewRegistry(subsystem string, labels ...string) *Registry {
	return &Registry{subsystem: subsystem, labels: labels}
}

// Counter makes counters.
func (r *Registry) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "spillway",
		Subsystem: r.subsystem,
		Name:      name,
		Help:      help,
	}, append(r.labels[:len(r.labels):len(r.labels)], labels...))
	r.made = append(r.made, v)
	return v
}

// Gauge makes gauges.
func (r *Registry) Gauge(name, help string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "spillway",
		Subsystem: r.subsystem,
		Name:      name,
		Help:      help,
	}, r.labels)
	r.made = append(r.made, v)
	return v
}

// Histogram makes histograms.
func (r *Registry) Histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "spillway",
		Subsystem: r.subsystem,
		Name:      name,
		Help:      help,
		Buckets:   buckets,
	}, r.labels)
	r.made = append(r.made, v)
	return v
}

// Register registers all that was made; it fails when a name is taken.
func (r *Registry) Register(reg prometheus.Registerer) error {
	for _, c := range r.made {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("register %s metrics: %w", r.subsystem, err)
		}
	}
	return nil
}

// SinkVectors are the metrics of all sinks of a subsystem.
type SinkVectors struct {
	failures, batches, panics   *prometheus.CounterVec
	writeSeconds, batchEntries  *prometheus.HistogramVec
	open, tripped, failing, may *prometheus.GaugeVec
}

// Sinks makes the metrics of sinks that take unit, such as entries.
func (r *Registry) Sinks(unit string) *SinkVectors {
	return &SinkVectors{
		failures: r.Counter("sink_failures_total",
			"Writes and opens of the sink that failed, by reason.", "reason"),
		batches: r.Counter("batches_total", "Batches written to the sink, every attempt counted."),
		panics:  r.Counter("panics_total", "Panics of sinks and of what writes to them."),

		writeSeconds: r.Histogram("write_seconds", "Seconds that one write to the sink took.",
			prometheus.ExponentialBuckets(0.0001, 3, 12)),
		batchEntries: r.Histogram("batch_"+unit, "Number of "+unit+" in a batch written to the sink.",
			fillBuckets),

		open:    r.Gauge("sink_open", "1 while the sink is open."),
		tripped: r.Gauge("sink_tripped", "1 while the breaker lets only probes reach the sink."),
		failing: r.Gauge("sink_failing", "1 from the first failed write or open until a write succeeds, or where no write failed, an open."),
		may:     r.Gauge("sink_concurrency", "Writes to the sink that may run at once: fewer while it slows down or throttles."),
	}
}

// Of makes the metrics of one sink, so that each shows as 0 from the start.
func (v *SinkVectors) Of(with prometheus.Labels) Metrics {
	m := Metrics{
		Failures:     v.failures.MustCurryWith(with),
		Batches:      v.batches.With(with),
		Panics:       v.panics.With(with),
		WriteSeconds: v.writeSeconds.With(with),
		BatchEntries: v.batchEntries.With(with),
		Open:         v.open.With(with),
		Tripped:      v.tripped.With(with),
		Failing:      v.failing.With(with),
		Concurrency:  v.may.With(with),
	}
	for _, reason := range []string{
		reasonError, ReasonTimeout, reasonThrottled, ReasonPermanent, reasonPartial,
		reasonNotConnected, ReasonUnsent, ReasonPanic, ReasonBadBatchError, ReasonStopped,
	} {
		m.Failures.WithLabelValues(reason)
	}
	return m
}
