package partition

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	repaired   prometheus.Counter
	expired    prometheus.Counter
	rolledBack prometheus.Counter
	refused    prometheus.Counter
	evicted    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		repaired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_store_janitor_mended_total", Help: "Partitions repaired by the janitor.",
		}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_store_janitor_expired_total", Help: "Stale entries that the janitor expired in partitions that nobody drained.",
		}),
		rolledBack: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_store_rolled_back_entries_total",
			Help: "Accepted entries that a rollback of the store removed together with their ledger: a lower bound, from what this process knew.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_store_reads_refused_total", Help: "Reads of partitions and ledgers refused because too many were under way.",
		}),
	}
	m.evicted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_store_evicted_entries_total",
		Help: "Oldest entries evicted from full partitions by produces of this process.",
	}, []string{"namespace"})
	reg.MustRegister(m.repaired, m.expired, m.rolledBack, m.refused, m.evicted)
	return m
}
