package work

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillway-io/spillway/partition/metric"
)

// metrics are those of a worker.
type metrics struct {
	registry         *prometheus.Registry
	started          prometheus.Counter
	recycled, killed *prometheus.CounterVec
	seconds          prometheus.Histogram
}

func newMetrics() *metrics {
	reg := prometheus.NewRegistry()
	r := metric.New(reg, "spillway_work_")
	m := &metrics{
		registry: reg,
		started:  r.Counter("started_total", "Children that were started."),
		recycled: r.Counters("recycled_total",
			"Children that were replaced, by reason: restart, uses, time or memory.", "reason"),
		killed: r.Counters(
			"killed_total",
			"Children that were ended, by reason: timeout, memory, gone (its job is leased to somebody else), protocol (it closed a pipe), start (it was not ready in time), end (it did not end in time) or drain.",
			"reason",
		),
		seconds: r.Histogram("job_seconds", "Time that children took for a job.",
			prometheus.ExponentialBuckets(0.001, 4, 10)),
	}
	r.Must()
	return m
}

// serve answers /metrics and /readyz, where an address is set. close ends that.
func (m *metrics) serve(w *worker) (end func(), err error) {
	if w.Metrics == "" {
		return func() {}, nil
	}
	failing := func() int64 { _, n := w.pool.Size(); return int64(n) }
	busy := func() int64 {
		if w.Mode == "self" {
			return int64(len(w.pool.Children()))
		}
		return w.busy.Load()
	}
	idle := func() int64 { return max(int64(len(w.pool.Children()))-busy(), 0) }
	for state, count := range map[string]func() int64{"busy": busy, "idle": idle,
		"failing": failing} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spillway_work_children", Help: "Children by state: busy with a job, idle, or failing: they crash, and wait before another start.",
			ConstLabels: prometheus.Labels{"state": state}}, func() float64 { return float64(count()) }))
	}
	listener, err := net.Listen("tcp", w.Metrics)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry,
		promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /readyz", func(out http.ResponseWriter, _ *http.Request) {
		switch _, n := w.pool.Size(); {
		case w.stopping.Err() != nil:
			http.Error(out, "the worker stops", http.StatusServiceUnavailable)
		case n > 0:
			http.Error(out, fmt.Sprintf("%d children crash, and wait before another start",
				n), http.StatusServiceUnavailable)
		default:
			_, _ = fmt.Fprintln(out, "ok")
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ErrServerClosed
	}()
	return func() { _ = server.Close(); <-done }, nil
}
