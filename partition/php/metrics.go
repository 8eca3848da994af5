package php

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of a Store.
type metrics struct{ rejected prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{rejected: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "spillway_php_reads_rejected_total",
		Help: "Reads of PHP's queues that were rejected because too many were under way.",
	})}
	reg.MustRegister(m.rejected)
	return m
}

var (
	phpJobs = prometheus.NewDesc("spillway_php_queue_jobs",
		"Jobs in PHP's queues when they were last summed up, by state: ready, delayed, reserved (held by PHP's own workers), leased and dead.",
		[]string{"namespace", "state"}, nil)
	phpJobsTotal = prometheus.NewDesc("spillway_php_jobs_total",
		"Deliveries and payloads of PHP's queues by what this service did, all processes together: published, claimed, acked, nacked, "+
			"requeued, buried, unfit, lapsed, moved (made ready as PHP would), twins, unreadable, died, respawned, deleted and purged. What PHP does is not counted.",
		[]string{"namespace", "outcome"}, nil)
)

// sums shows the last sums of the namespaces of a store. It reads nothing.
type sums struct{ *Store }

// Describe implements prometheus.Collector.
func (s sums) Describe(ch chan<- *prometheus.Desc) {
	ch <- phpJobs
	ch <- phpJobsTotal
}

// Collect implements prometheus.Collector.
func (s sums) Collect(ch chan<- prometheus.Metric) {
	for name, n := range s.namespaces {
		l := n.sums.last.Load()
		if l == nil {
			continue
		}
		for state, jobs := range map[string]int64{"ready": l.sum.Ready,
			"delayed": l.sum.Delayed, "leased": l.sum.Leased,
			"dead": l.sum.Dead, "reserved": l.reserved} {
			ch <- prometheus.MustNewConstMetric(phpJobs, prometheus.GaugeValue,
				float64(jobs), name, state)
		}
		for outcome, jobs := range l.outcomes {
			ch <- prometheus.MustNewConstMetric(phpJobsTotal, prometheus.CounterValue,
				float64(jobs), name, outcome)
		}
	}
}
