package guard

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/partition/metric"
)

// Metrics are what a guard counts of its sink.
type Metrics struct {
	Failures                   *prometheus.CounterVec
	Batches, Panics            prometheus.Counter
	WriteSeconds, BatchEntries prometheus.Observer
	Open, Tripped, Failing     prometheus.Gauge
	Concurrency                prometheus.Gauge // Writes that may run at once
}

// SinkVectors are the metrics of all sinks of a subsystem.
type SinkVectors struct {
	failures, batches, panics   *prometheus.CounterVec
	writeSeconds, batchEntries  *prometheus.HistogramVec
	open, tripped, failing, may *prometheus.GaugeVec
}

// Sinks makes the metrics of sinks that take unit, such as entries.
func Sinks(r *metric.Maker, unit string) *SinkVectors {
	return &SinkVectors{
		failures: r.Counters("sink_failures_total",
			"Writes and opens of the sink that failed, by reason.", "reason"),
		batches: r.Counters("batches_total", "Batches written to the sink, every attempt counted."),
		panics:  r.Counters("panics_total", "Panics of sinks and of what writes to them."),

		writeSeconds: r.Histograms("write_seconds", "Seconds that one write to the sink took.",
			prometheus.ExponentialBuckets(0.0001, 3, 12)),
		batchEntries: r.Histograms("batch_"+unit, "Number of "+unit+" in a batch written to the sink.",
			fillBuckets),

		open:    r.Gauges("sink_open", "1 while the sink is open."),
		tripped: r.Gauges("sink_tripped", "1 while the breaker lets only probes reach the sink."),
		failing: r.Gauges(
			"sink_failing",
			"1 from the first failed write or open until a write succeeds, or where no write failed, an open.",
		),
		may: r.Gauges("sink_concurrency", "Writes to the sink that may run at once: fewer while it throttles."),
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
