package drain

import "github.com/prometheus/client_golang/prometheus"

// sinkMetrics are what a guard counts of its sink.
type sinkMetrics struct {
	failures                           *prometheus.CounterVec
	batches, panics                    prometheus.Counter
	writeSeconds, batchEntries         prometheus.Observer
	sinkOpen, sinkTripped, sinkFailing prometheus.Gauge
	concurrency                        prometheus.Gauge // Writes that may run at once
}

// showReasons makes each reason show as 0 from the start.
func (m *sinkMetrics) showReasons() {
	for _, reason := range []string{
		reasonError, reasonTimeout, reasonThrottled, reasonPermanent, reasonPartial,
		reasonNotConnected, reasonUnsent, reasonPanic, reasonBadBatchError, reasonStopped,
	} {
		m.failures.WithLabelValues(reason)
	}
}
