package guard

import "github.com/prometheus/client_golang/prometheus"

// Metrics are what a guard counts of its sink.
type Metrics struct {
	Failures                   *prometheus.CounterVec
	Batches, Panics            prometheus.Counter
	WriteSeconds, BatchEntries prometheus.Observer
	Open, Tripped, Failing     prometheus.Gauge
	Concurrency                prometheus.Gauge // Writes that may run at once
}

// ShowReasons makes each reason show as 0 from the start.
func (m *Metrics) ShowReasons() {
	for _, reason := range []string{
		reasonError, ReasonTimeout, reasonThrottled, ReasonPermanent, reasonPartial,
		reasonNotConnected, ReasonUnsent, ReasonPanic, ReasonBadBatchError, ReasonStopped,
	} {
		m.Failures.WithLabelValues(reason)
	}
}
