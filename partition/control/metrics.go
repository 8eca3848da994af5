package control

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	read   prometheus.Gauge
	grants *prometheus.CounterVec
}

// The results of asking Redis for a part of a shared rate.
const (
	grantGiven   = "granted"
	grantRefused = "refused"
	grantFailed  = "failed"
)

func newMetrics(reg prometheus.Registerer, c *Control) metrics {
	m := metrics{
		read: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_control_last_read_timestamp_seconds", Help: "When namespaces and tokens made at run time were last read, in Unix seconds.",
		}),
		grants: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_control_grants_total", Help: "Requests of this process to Redis for a part of a token's shared rate, by result.",
		}, []string{"result"}),
	}
	for _, result := range []string{grantGiven, grantRefused, grantFailed} {
		m.grants.WithLabelValues(result)
	}
	reg.MustRegister(m.read, m.grants, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_control_version", Help: "Version of the namespaces and tokens made at run time that this process uses. All processes have the same within a second.",
	}, func() float64 { return float64(c.Snapshot().Version) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_control_ignored_entries", Help: "Namespaces and tokens made at run time that are not used. /readyz of the admin port says why.",
	}, func() float64 { return float64(len(c.Snapshot().Ignored)) }))
	return m
}
