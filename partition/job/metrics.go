package job

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
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
	outbox     prometheus.Gauge
	outboxAge  prometheus.Gauge
	untraced   prometheus.Counter

	droppedEvents *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "spillway_jobs_" + name, Help: help})
	}
	m := &metrics{
		promoted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_jobs_promoted_total", Help: "Jobs that this process moved because they were due or their lease lapsed, by the state they are in since.",
		}, []string{"outcome"}),
		expired:   counter("expired_total", "Expired jobs that this process met and dropped."),
		lost:      counter("lost_total", "Jobs that something other than Spillway removed, as met by this process."),
		reverted:  counter("reverted_total", "Claimed jobs given back because the answer of the claim was lost."),
		repaired:  counter("repaired_total", "Jobs made ready again because something other than Spillway removed their place in the queue."),
		malformed: counter("malformed_total", "Claimed jobs that were not handed out, because something other than Spillway wrote their record."),
		rolledBack: counter("rolled_back_total",
			"Published jobs that a rollback of the store removed together with their ledger: a lower bound, "+
				"from what this process knew."),
		untraced: counter("trace_events_dropped_total",
			"Events of traces of jobs that this process did not write, as there were too many or the store did not take them."),
		rejected: counter("reads_rejected_total",
			"Reads of queues and ledgers rejected because too many were under way."),
	}
	m.stranded = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "spillway_jobs_stranded", Help: "Jobs in shards where no claim of their queue asks, because its spread was lowered. The store's " +
			"figure: the same in every process.",
	}, []string{"namespace"})
	held := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_jobs_claims_held_total",
		Help: "Queues of which a claim of this process got fewer jobs than were ready, by what held them back.",
	}, []string{"by"})
	m.held, m.full = held.WithLabelValues("rate"), held.WithLabelValues("concurrency")
	m.outbox = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_outbox_jobs",
		Help: "Follow-ups of jobs that ended which are not in their queues yet. The store's figure: the same in every process.",
	})
	m.outboxAge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_outbox_age_seconds", Help: "Age of the oldest of them.",
	})
	m.droppedEvents = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_jobs_events_dropped_total",
		Help: "Events of queues that listeners did not get from this process: it had too many to send (full), the store did not take them " +
			"(store), or the listener was slow, counted for each (slow).",
	}, []string{"reason"})
	for _, reason := range []string{eventsFull, eventsStore, eventsSlow} {
		m.droppedEvents.WithLabelValues(reason)
	}
	for _, state := range []State{Ready, Dead, Expired} {
		m.promoted.WithLabelValues(state.String())
	}
	reg.MustRegister(m.promoted, m.expired, m.lost, m.reverted, m.repaired, m.malformed, m.rolledBack,
		m.rejected, m.stranded, held, m.outbox, m.outboxAge, m.untraced, m.droppedEvents)
	return m
}

// Promoted is how many jobs this process made ready because they were due or their lease lapsed.
func (s *Store) Promoted() int64 {
	var m dto.Metric
	if s.metrics.promoted.WithLabelValues(Ready.String()).Write(&m) != nil {
		return 0
	}
	return int64(m.GetCounter().GetValue())
}
