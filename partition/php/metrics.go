package php

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/partition/metric"
)

// metrics are those of a Store.
type metrics struct{ rejected prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	r := metric.New(reg, "spillway_php_")
	m := &metrics{rejected: r.Counter("reads_rejected_total",
		"Reads of PHP's queues that were rejected because too many were under way.")}
	r.Must()
	return m
}

var (
	phpJobs = metric.GaugeOf(
		"spillway_php_queue_jobs",
		"Jobs in PHP's queues when they were last summed up, by state: ready, delayed, reserved (held by PHP's own workers), leased and dead.",
		"namespace",
		"state",
	)
	phpJobsTotal = metric.CounterOf("spillway_php_jobs_total",
		"Deliveries and payloads of PHP's queues by what this service did, all processes together: published, claimed, acked, nacked, "+
			"requeued, buried, unfit, lapsed, moved (made ready as PHP would), twins, unreadable, died, respawned, deleted and purged. What PHP does is not counted.",
		"namespace", "outcome")
)

// sums shows the last sums of the namespaces of a store. It reads nothing.
func (s *Store) sums() metric.Figures {
	return metric.Figures{All: []metric.Figure{phpJobs, phpJobsTotal}, Read: func(send metric.Send) {
		for name, n := range s.namespaces {
			l := n.sums.last.Load()
			if l == nil {
				continue
			}
			for state, jobs := range l.jobs {
				send(phpJobs, float64(jobs), name, state)
			}
			for outcome, jobs := range l.outcomes {
				send(phpJobsTotal, float64(jobs), name, outcome)
			}
		}
	}}
}
