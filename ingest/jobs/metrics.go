package jobs

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the engine's own. No label holds what a client chose.
type metrics struct {
	laneWait, flushSeconds, flushRequests prometheus.Histogram
	woken, returned, notReturned, panics  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, e *Engine) (*metrics, error) {
	var failed error
	register := func(c prometheus.Collector) {
		if err := reg.Register(c); err != nil {
			failed = errors.Join(failed, fmt.Errorf("register metric: %w", err))
		}
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "spillway_jobs_" + name, Help: help})
		register(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "spillway_jobs_" + name, Help: help,
			Buckets: buckets})
		register(h)
		return h
	}
	register(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "spillway_jobs_polls", Help: "Claims with a wait that are open now."},
		func() float64 {
			e.mu.Lock()
			defer e.mu.Unlock()
			return float64(len(e.polls))
		}))
	return &metrics{
		laneWait: histogram("lane_wait_seconds", "Time that the oldest request of a flush about jobs waited for the flush to begin.",
			prometheus.ExponentialBuckets(0.0001, 2, 17)),
		flushSeconds: histogram("flush_seconds", "Duration of a flush of requests about jobs.",
			prometheus.ExponentialBuckets(0.0001, 2, 17)),
		flushRequests: histogram("flush_requests", "Number of requests about jobs in a flush.",
			prometheus.ExponentialBuckets(1, 2, 12)),
		woken: counter("polls_woken_total",
			"Claims that waited and were woken, because their queues have jobs."),
		returned: counter("returned_total", "Jobs given back uncounted, because the client went away before their answer was sent."),
		notReturned: counter("not_returned_total",
			"Jobs that could not be given back: they are claimed again when their lease ends."),
		panics: counter("flush_panics_total",
			"Panics recovered in flushes of requests about jobs. Each is a bug."),
	}, failed
}
