package php

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of a Store.
type metrics struct {
	rejected           prometheus.Counter
	lapsed, unreadable *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"namespace"})
		reg.MustRegister(v)
		return v
	}
	m := &metrics{
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_php_reads_rejected_total",
			Help: "Reads of PHP's queues that were rejected because too many were under way.",
		}),
		lapsed: counter("spillway_php_leases_lapsed_total",
			"Leases of PHP's jobs that ended without a settlement, as this process found them: the jobs came back."),
		unreadable: counter("spillway_php_unreadable_total",
			"Payloads of PHP's queues that are no JSON object, as this process found them: they became dead letters."),
	}
	reg.MustRegister(m.rejected)
	return m
}
