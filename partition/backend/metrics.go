package backend

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/partition/metric"
)

type metrics struct {
	roundTrip prometheus.Histogram
	errors    *prometheus.CounterVec
	reloads   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, unreachable func() int) *metrics {
	r := metric.New(reg, "spillway_store_")
	m := &metrics{
		roundTrip: r.Histogram("round_trip_seconds", "Round-trip time of one pipeline of scripts.",
			prometheus.ExponentialBuckets(0.0001, 2, 16)),
		errors: r.Counters("errors_total",
			"Script calls that failed, by what is known of their outcome.", "class"),
		reloads: r.Counter("script_reloads_total",
			"Times that Redis had forgotten the scripts and they were sent again."),
	}
	for _, class := range []string{"unavailable", "full", "unknown", "unconfirmed", "broken"} {
		m.errors.WithLabelValues(class)
	}
	r.Read("unreachable_shards", "Shards whose server is unreachable; operations on them are rejected at once.",
		func() float64 { return float64(unreachable()) })
	r.Must()
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
