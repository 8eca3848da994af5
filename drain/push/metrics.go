package push

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition/metric"
)

// Outcomes of pushed jobs, as the store settled them.
const (
	acked    = "acked"
	deferred = "deferred" // the target took it, and somebody settles it later
	retried  = "retried"  // a Write failed and the job waits for another delivery
	dead     = "dead"     // rejected, or its tries are used up
	expired  = "expired"  // the same, where dead letters are not kept; or its time was over
	requeued = "requeued" // given back without a Write, or since Stop ended it, uncounted
	unsent   = "unsent"   // given back, uncounted, after a Write that did not reach the target
	gone     = "gone"     // the settlement came too late: the lease had ended, or the job
	lapsed   = "lapsed"   // the store rejected the settlement, or did not answer until the end
)

// Outcomes of claims.
const (
	claimLeased      = "leased"
	claimIdle        = "idle" // there was no ready job
	claimUnavailable = "unavailable"
	claimUnknown     = "unknown"
	claimBroken      = "broken"
)

var outcomes = []string{acked, deferred, retried, dead, expired, requeued, unsent, gone, lapsed}

type metrics struct {
	sinks        *guard.SinkVectors
	jobs, claims *prometheus.CounterVec
	queues       *prometheus.GaugeVec
	limit        *prometheus.GaugeVec
}

// newMetrics registers everything; it fails when the names are taken.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	r := metric.New(reg, "spillway_push_", "namespace", "sink")
	m := &metrics{
		sinks: guard.Sinks(r, "jobs"),
		jobs: r.Counters(
			"jobs_total",
			"Jobs by how a delivery ended: acked, deferred, retried, dead, expired, requeued, unsent, gone or lapsed.",
			"outcome",
		),
		claims: r.Counters("claims_total", "Claims of jobs of one queue by outcome.", "outcome"),
		queues: r.Gauges("queues", "Queues that match a rule of the sink and lately had jobs, or that a rule names."),
		limit:  r.Gauges("writes_limit", "Writes that the rules let run at once at present, of all those queues together."),
	}
	return m, r.Err()
}

// targetMetrics are the children of one namespace and sink.
type targetMetrics struct {
	guard.Metrics
	jobs, claims *prometheus.CounterVec
	queues       prometheus.Gauge
	limit        prometheus.Gauge // Writes that may run at once, of all queues together
}

// of makes the children of a target, so that each shows as 0 from the start.
func (m *metrics) of(namespace, name string) *targetMetrics {
	with := prometheus.Labels{"namespace": namespace, "sink": name}
	t := &targetMetrics{
		Metrics: m.sinks.Of(with),
		jobs:    m.jobs.MustCurryWith(with),
		claims:  m.claims.MustCurryWith(with),
		queues:  m.queues.With(with),
		limit:   m.limit.With(with),
	}
	for _, outcome := range outcomes {
		t.jobs.WithLabelValues(outcome)
	}
	for _, outcome := range []string{claimLeased, claimIdle, claimUnavailable, claimUnknown, claimBroken} {
		t.claims.WithLabelValues(outcome)
	}
	return t
}
