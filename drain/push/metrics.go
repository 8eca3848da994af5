package push

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/drain/guard"
)

// Outcomes of pushed jobs, as the store settled them.
const (
	acked    = "acked"
	retried  = "retried"  // a Write failed and the job waits for another delivery
	dead     = "dead"     // rejected, or its tries are used up
	expired  = "expired"  // the same, where dead letters are not kept; or its time was over
	requeued = "requeued" // given back without a Write, uncounted
	unsent   = "unsent"   // given back, uncounted, after a Write that did not reach the target
	gone     = "gone"     // the settlement came too late: the lease had ended, or the job
	lapsed   = "lapsed"   // the store refused the settlement, or did not answer until the end
)

// Outcomes of claims.
const (
	claimLeased      = "leased"
	claimIdle        = "idle" // there was no ready job
	claimUnavailable = "unavailable"
	claimUnknown     = "unknown"
	claimBroken      = "broken"
)

var outcomes = []string{acked, retried, dead, expired, requeued, unsent, gone, lapsed}

type metrics struct {
	jobs, claims, batches, failures, panics *prometheus.CounterVec
	writeSeconds, batchJobs                 *prometheus.HistogramVec
	open, tripped, failing                  *prometheus.GaugeVec
	concurrency, queues                     *prometheus.GaugeVec
}

// newMetrics registers everything; it fails when the names are taken.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
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
	m := &metrics{
		jobs:     counter("jobs_total", "Jobs by how a delivery ended: acked, retried, dead, expired, requeued, unsent, gone or lapsed.", "outcome"),
		claims:   counter("claims_total", "Claims of jobs of one queue by outcome.", "outcome"),
		batches:  counter("batches_total", "Batches of jobs written to the sink, every attempt counted."),
		failures: counter("sink_failures_total", "Writes and opens of the sink that failed, by reason.", "reason"),
		panics:   counter("panics_total", "Panics of sinks and of push itself."),

		writeSeconds: histogram("write_seconds", "Seconds that one write to the sink took.", prometheus.ExponentialBuckets(0.0001, 3, 12)),
		batchJobs:    histogram("batch_jobs", "Jobs in a batch written to the sink.", guard.FillBuckets),

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

// targetMetrics are the children of one namespace and sink.
type targetMetrics struct {
	guard.Metrics
	jobs, claims *prometheus.CounterVec
	queues       prometheus.Gauge
}

// of makes the children of a target, so that each shows as 0 from the start.
func (m *metrics) of(namespace, name string) *targetMetrics {
	with := prometheus.Labels{"namespace": namespace, "sink": name}
	t := &targetMetrics{
		Metrics: guard.Metrics{
			Failures: m.failures.MustCurryWith(with), Batches: m.batches.With(with), Panics: m.panics.With(with),
			WriteSeconds: m.writeSeconds.With(with), BatchEntries: m.batchJobs.With(with),
			Open: m.open.With(with), Tripped: m.tripped.With(with), Failing: m.failing.With(with), Concurrency: m.concurrency.With(with),
		},
		jobs: m.jobs.MustCurryWith(with), claims: m.claims.MustCurryWith(with),
		queues: m.queues.With(with),
	}
	for _, outcome := range outcomes {
		t.jobs.WithLabelValues(outcome)
	}
	for _, outcome := range []string{claimLeased, claimIdle, claimUnavailable, claimUnknown, claimBroken} {
		t.claims.WithLabelValues(outcome)
	}
	t.Metrics.ShowReasons()
	return t
}
