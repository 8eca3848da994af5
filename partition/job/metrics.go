package job

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillway-io/spillway/partition/metric"
)

type metrics struct {
	promoted   *prometheus.CounterVec
	expired    prometheus.Counter
	lost       prometheus.Counter
	reverted   prometheus.Counter
	repaired   prometheus.Counter
	malformed  prometheus.Counter
	rolledBack prometheus.Counter
	rejected   prometheus.Counter
	stranded   *prometheus.GaugeVec
	held, full prometheus.Counter // claims, by rate and by concurrency
	limited    prometheus.Counter // runs of schedules, by the rate of a token
	outbox     prometheus.Gauge
	outboxAge  prometheus.Gauge
	untraced   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	r := metric.New(reg, "spillway_")
	held := r.Counters("jobs_claims_held_total",
		"Queues of which a claim of this process got fewer jobs than were ready, by what held them back: rate or concurrency. By token: "+
			"runs of schedules that it did not publish yet, at each try, as the rate of the token that put them had no room.", "by")
	m := &metrics{
		promoted: r.Counters(
			"jobs_promoted_total",
			"Jobs that this process moved because they were due or their lease lapsed, by the state they are in since.",
			"outcome",
		),
		expired:  r.Counter("jobs_expired_total", "Expired jobs that this process met and dropped."),
		lost:     r.Counter("jobs_lost_total", "Jobs that something other than Spillway removed, as met by this process."),
		reverted: r.Counter("jobs_reverted_total", "Claimed jobs given back because the answer of the claim was lost."),
		repaired: r.Counter(
			"jobs_repaired_total",
			"Jobs made ready again because something other than Spillway removed their place in the queue.",
		),
		malformed: r.Counter(
			"jobs_malformed_total",
			"Claimed jobs that were not handed out, because something other than Spillway wrote their record.",
		),
		rolledBack: r.Counter("jobs_rolled_back_total",
			"Published jobs that a rollback of the store removed together with their ledger: a lower bound, "+
				"from what this process knew."),
		untraced: r.Counter("jobs_trace_events_dropped_total",
			"Events of traces of jobs that this process did not write, as there were too many or the store did not take them."),
		rejected: r.Counter("jobs_reads_rejected_total",
			"Reads of queues and ledgers rejected because too many were under way."),
		stranded: r.Gauges(
			"jobs_stranded",
			"Jobs in shards where no claim of their queue asks, because its spread was lowered. The store's "+
				"figure: the same in every process.",
			"namespace",
		),
		held:    held.WithLabelValues("rate"),
		full:    held.WithLabelValues("concurrency"),
		limited: held.WithLabelValues("token"),
		outbox: r.Gauge("outbox_jobs",
			"Follow-ups of jobs that ended which are not in their queues yet. The store's figure: the same in every process."),
		outboxAge: r.Gauge("outbox_age_seconds", "Age of the oldest of them."),
	}
	for _, state := range []State{Ready, Dead, Expired} {
		m.promoted.WithLabelValues(state.String())
	}
	r.Must()
	return m
}

// Promoted is how many jobs this process made ready because they were due or their lease lapsed.
func (s *core) Promoted() int64 {
	var m dto.Metric
	if s.metrics.promoted.WithLabelValues(Ready.String()).Write(&m) != nil {
		return 0
	}
	return int64(m.GetCounter().GetValue())
}
