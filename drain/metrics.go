package drain

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition/metric"
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
	sinks                   *guard.SinkVectors
	entries, claims         *prometheus.CounterVec
	fenced, lapsed, retries *prometheus.CounterVec
	lag, writeEntries       *prometheus.HistogramVec
	leases, paused          *prometheus.GaugeVec
	closed, givenBack       *prometheus.CounterVec
	heldBack                *prometheus.CounterVec
}

// newMetrics registers everything; it fails when the names are taken.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	r := metric.New(reg, "spillway_drain_", "namespace")
	m := &metrics{
		sinks: guard.Sinks(r, "entries"),
		entries: r.Counters(
			"entries_total",
			"Entries by outcome: delivered, expired, dead, retried, unconfirmed, lost or failed.",
			"outcome",
		),
		claims: r.Counters("claims_total", "Claims of partitions by outcome.", "outcome"),
		heldBack: r.Counters("held_back_total",
			"Looks that left what was due to a process before this one, for 100 ms each: see spillway_drain_owned_shards."),
		fenced: r.Counters("fenced_total", "Commits rejected because another drainer had the lease."),
		lapsed: r.Counters(
			"lapsed_total",
			"Leases that were left to lapse because the store did not answer in time or rejected their settlement.",
		),
		retries: r.Counters("commit_retries_total", "Commits and releases sent again."),

		lag: r.Histograms("lag_seconds", "Age in seconds of a delivered batch's oldest entry, beyond the linger.",
			[]float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 180}),

		closed: r.Counters("groups_total",
			"Groups of batches of several partitions that were closed for one write, by reason.", "reason"),
		givenBack: r.Counters(
			"given_back_total",
			"Leases given back without a write while they waited for others, by reason.",
			"reason",
		),
		writeEntries: r.Histograms(
			"write_entries",
			"Entries in one write to a sink that takes several partitions at once.",
			prometheus.ExponentialBuckets(1, 4, 9),
		),

		paused: r.Gauges("paused", "1 while claims are answered that the namespace is paused."),
		leases: r.Gauges("leases", "Leases that workers have now."),
	}
	return m, r.Err()
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
	// heldBack is looks that left what was due to others.
	heldBack prometheus.Counter
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
		claimMetrics: claimMetrics{claims: m.claims.MustCurryWith(with),
			stale:    entries.WithLabelValues(outcomeExpired),
			heldBack: m.heldBack.With(with)},
		leaseMetrics: leaseMetrics{
			entries:   entries,
			delivered: entries.WithLabelValues(outcomeDelivered),
			expired:   entries.WithLabelValues(outcomeExpired),
			dead:      entries.WithLabelValues(outcomeDead),
			fenced:    m.fenced.With(with),
			lapsed:    m.lapsed.With(with),
			retries:   m.retries.With(with),
			lag:       m.lag.With(with),
		},
		Metrics: m.sinks.Of(with),
		groupMetrics: groupMetrics{
			closed:       m.closed.MustCurryWith(with),
			givenBack:    m.givenBack.MustCurryWith(with),
			writeEntries: m.writeEntries.With(with),
		},
		leases: m.leases.With(with),
		paused: m.paused.With(with),
	}
	for _, outcome := range []string{outcomeRetried, outcomeUnconfirmed, outcomeLost, outcomeFailed} {
		n.entries.WithLabelValues(outcome)
	}
	for _, outcome := range []string{claimLeased, claimIdle, claimPaused, claimUnavailable, claimUnknown,
		claimBroken} {
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
	return n
}

// settled counts entries that the store has settled, by their class.
func (m *leaseMetrics) settled(n [classes]int) {
	m.delivered.Add(float64(n[delivered]))
	m.expired.Add(float64(n[expired]))
	m.dead.Add(float64(n[dead]))
}

var (
	ownedShards = metric.GaugeOf("spillway_drain_owned_shards",
		"Shards for which this process is the first of those that drain them: it works alone while it keeps up.", "namespace")
	drainProcesses = metric.GaugeOf("spillway_drain_processes",
		"Live processes that drain the namespace, as this one read them last; 0 while it cannot.", "namespace")
)

// ranks shows how the shards of each namespace are shared out among the processes that drain it:
// see space.Home.Rank. It reads nothing.
func ranks(namespaces []*namespaceDrain) metric.Figures {
	return metric.Figures{All: []metric.Figure{ownedShards, drainProcesses}, Read: func(send metric.Send) {
		for _, n := range namespaces {
			owned := 0
			for shard := range n.ns.Shards() {
				if n.ns.Home().Rank(shard) == 0 {
					owned++
				}
			}
			send(ownedShards, float64(owned), n.name)
			send(drainProcesses, float64(n.ns.Home().Drainers()), n.name)
		}
	}}
}
