package drain

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/drain/guard"
)

// Outcomes of entries. The first three count what a commit settled, or a claim
// dropped as stale; they follow the store's ledger.
const (
	outcomeDelivered   = "delivered"
	outcomeExpired     = "expired"
	outcomeDead        = "dead"
	outcomeRetried     = "retried"     // a Write failed and the entry waits for another attempt
	outcomeUnconfirmed = "unconfirmed" // done, but the commit was lost: it may come again
	outcomeLost        = "lost"        // something other than Spillway removed it while it was leased
	outcomeFailed      = "failed"      // at-most-once only: settled as delivered, but not accepted, or too old after the commit
)

// Outcomes of claims.
const (
	claimLeased      = "leased"
	claimIdle        = "idle"   // another drainer won, or nothing fresh was there
	claimPaused      = "paused" // the partition or the namespace is paused
	claimUnavailable = "unavailable"
	claimUnknown     = "unknown"
	claimBroken      = "broken"
)

type metrics struct {
	batches, entries, failures, claims         *prometheus.CounterVec
	fenced, lapsed, retries, panics            *prometheus.CounterVec
	writeSeconds, batchEntries, lag            *prometheus.HistogramVec
	leases, sinkOpen, sinkTripped, sinkFailing *prometheus.GaugeVec
	concurrency, paused                        *prometheus.GaugeVec
	closed, givenBack                          *prometheus.CounterVec
	writeEntries                               *prometheus.HistogramVec
}

// newMetrics registers everything; it fails when the names are taken.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "spillway", Subsystem: "drain", Name: name, Help: help,
		}, append([]string{"namespace"}, labels...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "spillway", Subsystem: "drain", Name: name, Help: help,
		}, []string{"namespace"})
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "spillway", Subsystem: "drain", Name: name, Help: help, Buckets: buckets,
		}, []string{"namespace"})
	}
	m := &metrics{
		batches:  counter("batches_total", "Batches written to the sink, every attempt counted."),
		entries:  counter("entries_total", "Entries by outcome: delivered, expired, dead, retried, unconfirmed, lost or failed.", "outcome"),
		failures: counter("sink_failures_total", "Writes and opens of the sink that failed, by reason.", "reason"),
		claims:   counter("claims_total", "Claims of partitions by outcome.", "outcome"),
		fenced:   counter("fenced_total", "Commits refused because another drainer had the lease."),
		lapsed:   counter("lapsed_total", "Leases that were left to lapse because the store did not answer in time or refused to settle them."),
		retries:  counter("commit_retries_total", "Commits and releases sent again."),
		panics:   counter("panics_total", "Panics of sinks and of workers."),

		writeSeconds: histogram("write_seconds", "Seconds that one write to the sink took.", prometheus.ExponentialBuckets(0.0001, 3, 12)),
		batchEntries: histogram("batch_entries", "Entries in a batch written to the sink.", guard.FillBuckets),
		lag: histogram("lag_seconds", "Age in seconds of a delivered batch's oldest entry, beyond the linger.",
			[]float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 180}),

		closed:       counter("groups_total", "Groups of batches of several partitions that were closed for one write, by reason.", "reason"),
		givenBack:    counter("given_back_total", "Leases given back without a write while they waited for others, by reason.", "reason"),
		writeEntries: histogram("write_entries", "Entries in one write to a sink that takes several partitions at once.", prometheus.ExponentialBuckets(1, 4, 9)),

		concurrency: gauge("sink_concurrency", "Writes to the sink that may run at once: fewer than workers while it slows down or throttles."),
		paused:      gauge("paused", "1 while claims are answered that the namespace is paused."),
		leases:      gauge("leases", "Leases that workers have now."),
		sinkOpen:    gauge("sink_open", "1 while the sink is open."),
		sinkTripped: gauge("sink_tripped", "1 while the breaker lets only probes reach the sink."),
		sinkFailing: gauge("sink_failing", "1 from the first failed write or open until a write succeeds, or where no write failed, an open."),
	}
	for _, c := range []prometheus.Collector{
		m.batches, m.entries, m.failures, m.claims, m.fenced, m.lapsed, m.retries, m.panics,
		m.writeSeconds, m.batchEntries, m.lag, m.leases, m.sinkOpen, m.sinkTripped, m.sinkFailing,
		m.closed, m.givenBack, m.writeEntries, m.concurrency, m.paused,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register drain metrics: %w", err)
		}
	}
	return m, nil
}

// namespaceMetrics are the children of one namespace, looked up once, by the room
// that counts them.
type namespaceMetrics struct {
	claimMetrics
	leaseMetrics
	guard.Metrics
	groupMetrics
	leases, paused prometheus.Gauge
}

type claimMetrics struct {
	claims *prometheus.CounterVec
	stale  prometheus.Counter // entries that claims dropped
}

type leaseMetrics struct {
	entries                  *prometheus.CounterVec
	delivered, expired, dead prometheus.Counter // of entries
	fenced, lapsed, retries  prometheus.Counter
	lag                      prometheus.Observer
}

type groupMetrics struct {
	closed, givenBack *prometheus.CounterVec
	writeEntries      prometheus.Observer
}

// of makes the children of a namespace, so that each shows as 0 from the start.
func (m *metrics) of(namespace string) *namespaceMetrics {
	with := prometheus.Labels{"namespace": namespace}
	entries := m.entries.MustCurryWith(with)
	n := &namespaceMetrics{
		claimMetrics: claimMetrics{claims: m.claims.MustCurryWith(with), stale: entries.WithLabelValues(outcomeExpired)},
		leaseMetrics: leaseMetrics{
			entries: entries, delivered: entries.WithLabelValues(outcomeDelivered),
			expired: entries.WithLabelValues(outcomeExpired), dead: entries.WithLabelValues(outcomeDead),
			fenced: m.fenced.With(with), lapsed: m.lapsed.With(with), retries: m.retries.With(with), lag: m.lag.With(with),
		},
		Metrics: guard.Metrics{
			Failures: m.failures.MustCurryWith(with), Batches: m.batches.With(with), Panics: m.panics.With(with),
			WriteSeconds: m.writeSeconds.With(with), BatchEntries: m.batchEntries.With(with),
			Open: m.sinkOpen.With(with), Tripped: m.sinkTripped.With(with), Failing: m.sinkFailing.With(with), Concurrency: m.concurrency.With(with),
		},
		groupMetrics: groupMetrics{closed: m.closed.MustCurryWith(with), givenBack: m.givenBack.MustCurryWith(with), writeEntries: m.writeEntries.With(with)},
		leases:       m.leases.With(with), paused: m.paused.With(with),
	}
	for _, outcome := range []string{outcomeRetried, outcomeUnconfirmed, outcomeLost, outcomeFailed} {
		n.entries.WithLabelValues(outcome)
	}
	for _, outcome := range []string{claimLeased, claimIdle, claimPaused, claimUnavailable, claimUnknown, claimBroken} {
		n.claims.WithLabelValues(outcome)
	}
	for _, reason := range []string{
		closedEntries, closedBytes, closedBatches, closedLinger, closedDeadline, closedBacklog, closedSuspects, closedAlone, closedStop,
	} {
		n.closed.WithLabelValues(reason)
	}
	for _, reason := range []string{backLease, backSuspects, backNotConnected, backStopped} {
		n.givenBack.WithLabelValues(reason)
	}
	n.Metrics.ShowReasons()
	return n
}

// settled counts entries that the store has settled, by their class.
func (m *leaseMetrics) settled(n [classes]int) {
	m.delivered.Add(float64(n[delivered]))
	m.expired.Add(float64(n[expired]))
	m.dead.Add(float64(n[dead]))
}
