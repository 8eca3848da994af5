package drain

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of pushed jobs, as the store settled them.
const (
	pushAcked    = "acked"
	pushRetried  = "retried"  // a Write failed and the job waits for another delivery
	pushDead     = "dead"     // rejected, or its tries are used up
	pushExpired  = "expired"  // the same, where dead letters are not kept; or its time was over
	pushRequeued = "requeued" // given back without a Write, uncounted
	pushUnsent   = "unsent"   // given back, uncounted, after a Write that did not reach the target
	pushGone     = "gone"     // the settlement came too late: the lease had ended, or the job
	pushLapsed   = "lapsed"   // the store refused the settlement, or did not answer until the end
)

// Outcomes of claims.
const (
	queueLeased      = "leased"
	queueIdle        = "idle" // there was no ready job
	queueUnavailable = "unavailable"
	queueUnknown     = "unknown"
	queueBroken      = "broken"
)

var pushOutcomes = []string{pushAcked, pushRetried, pushDead, pushExpired, pushRequeued, pushUnsent, pushGone, pushLapsed}

type pushMetrics struct {
	jobs, claims, batches, failures, panics *prometheus.CounterVec
	writeSeconds, batchJobs                 *prometheus.HistogramVec
	open, tripped, failing                  *prometheus.GaugeVec
	concurrency, queues                     *prometheus.GaugeVec
}

// newPushMetrics registers everything; it fails when the names are taken.
func newPushMetrics(reg prometheus.Registerer) (*pushMetrics, error) {
	target := []string{"namespace", "sink"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "spillway", Subsystem: "push", Name: name, Help: help}, append(target[:2:2], labels...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "spillway", Subsystem: "push", Name: name, Help: help}, target)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "spillway", Subsystem: "push", Name: name, Help: help, Buckets: buckets}, target)
	}
	m := &pushMetrics{
		jobs:     counter("jobs_total", "Jobs by how a delivery ended: acked, retried, dead, expired, requeued, unsent, gone or lapsed.", "outcome"),
		claims:   counter("claims_total", "Claims of jobs of one queue by outcome.", "outcome"),
		batches:  counter("batches_total", "Batches of jobs written to the sink, every attempt counted."),
		failures: counter("sink_failures_total", "Writes and opens of the sink that failed, by reason.", "reason"),
		panics:   counter("panics_total", "Panics of sinks and of push itself."),

		writeSeconds: histogram("write_seconds", "Seconds that one write to the sink took.", prometheus.ExponentialBuckets(0.0001, 3, 12)),
		batchJobs:    histogram("batch_jobs", "Jobs in a batch written to the sink.", fillBuckets),

		open:        gauge("sink_open", "1 while the sink is open."),
		tripped:     gauge("sink_tripped", "1 while the breaker lets only probes reach the sink."),
		failing:     gauge("sink_failing", "1 from the first failed write or open until a write succeeds, or where no write failed, an open."),
		concurrency: gauge("sink_concurrency", "Writes to the sink that may run at once, of all queues together: fewer while it slows down or throttles."),
		queues:      gauge("queues", "Queues that match a rule of the sink and lately had jobs, or that a rule names."),
	}
	for _, c := range []prometheus.Collector{
		m.jobs, m.claims, m.batches, m.failures, m.panics, m.writeSeconds, m.batchJobs, m.open, m.tripped, m.failing, m.concurrency, m.queues,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register push metrics: %w", err)
		}
	}
	return m, nil
}

// pushTargetMetrics are the children of one namespace and sink.
type pushTargetMetrics struct {
	sinkMetrics
	jobs, claims *prometheus.CounterVec
	queues       prometheus.Gauge
}

// of makes the children of a target, so that each shows as 0 from the start.
func (m *pushMetrics) of(namespace, name string) *pushTargetMetrics {
	with := prometheus.Labels{"namespace": namespace, "sink": name}
	t := &pushTargetMetrics{
		sinkMetrics: sinkMetrics{
			failures: m.failures.MustCurryWith(with), batches: m.batches.With(with), panics: m.panics.With(with),
			writeSeconds: m.writeSeconds.With(with), batchEntries: m.batchJobs.With(with),
			sinkOpen: m.open.With(with), sinkTripped: m.tripped.With(with), sinkFailing: m.failing.With(with), concurrency: m.concurrency.With(with),
		},
		jobs: m.jobs.MustCurryWith(with), claims: m.claims.MustCurryWith(with),
		queues: m.queues.With(with),
	}
	for _, outcome := range pushOutcomes {
		t.jobs.WithLabelValues(outcome)
	}
	for _, outcome := range []string{queueLeased, queueIdle, queueUnavailable, queueUnknown, queueBroken} {
		t.claims.WithLabelValues(outcome)
	}
	t.sinkMetrics.showReasons()
	return t
}
