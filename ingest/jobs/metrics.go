package jobs

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/partition/metric"
)

// metrics are the engine's own. No label holds what a client chose.
type metrics struct {
	laneWait, flushSeconds, flushRequests prometheus.Histogram
	woken, returned, notReturned, panics  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, e *Engine) (*metrics, error) {
	r := metric.New(reg, "spillway_jobs_")
	r.Read("polls", "Claims with a wait that are open now.", func() float64 {
		e.mu.Lock()
		defer e.mu.Unlock()
		return float64(len(e.polls))
	})
	m := &metrics{
		laneWait: r.Histogram("lane_wait_seconds", "Time that the oldest request of a flush about jobs waited for the flush to begin.",
			prometheus.ExponentialBuckets(0.0001, 2, 17)),
		flushSeconds: r.Histogram("flush_seconds", "Duration of a flush of requests about jobs.",
			prometheus.ExponentialBuckets(0.0001, 2, 17)),
		flushRequests: r.Histogram("flush_requests", "Number of requests about jobs in a flush.",
			prometheus.ExponentialBuckets(1, 2, 12)),
		woken: r.Counter("polls_woken_total",
			"Claims that waited and were woken, because their queues have jobs."),
		returned: r.Counter("returned_total", "Jobs given back uncounted, because the client went away before their answer was sent."),
		notReturned: r.Counter("not_returned_total",
			"Jobs that could not be given back: they are claimed again when their lease ends."),
		panics: r.Counter("flush_panics_total",
			"Panics recovered in flushes of requests about jobs. Each is a bug."),
	}
	return m, r.Err()
}
