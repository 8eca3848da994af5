package backend

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	roundTrip prometheus.Histogram
	errors    *prometheus.CounterVec
	reloads   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, unreachable func() int) *metrics {
	m := &metrics{
		roundTrip: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_store_round_trip_seconds", Help: "Round-trip time of one pipeline of scripts.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_store_errors_total", Help: "Script calls that failed, by what is known of their outcome.",
		}, []string{"class"}),
		reloads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_store_script_reloads_total", Help: "Times that Redis had forgotten the scripts and they were sent again.",
		}),
	}
	for _, class := range []string{"unavailable", "full", "unknown", "unconfirmed", "broken"} {
		m.errors.WithLabelValues(class)
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_store_unreachable_shards", Help: "Shards whose server is unreachable; operations on them are rejected at once.",
	}, func() float64 { return float64(unreachable()) }))
	reg.MustRegister(m.roundTrip, m.errors, m.reloads)
	return m
}

func (m *metrics) failed(err error) {
	class := "broken"
	switch {
	case errors.Is(err, ErrFull):
		class = "full"
	case errors.Is(err, ErrUnavailable):
		class = "unavailable"
	case errors.Is(err, ErrUnconfirmed):
		class = "unconfirmed"
	case errors.Is(err, ErrUnknown):
		class = "unknown"
	}
	m.errors.WithLabelValues(class).Inc()
}
