package drain

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
)

// quiet is how long no Write may have failed before a sink counts as recovered,
// so that one which fails now and then is one story in the log.
const quiet = 5 * time.Second

// A health tells the log when a sink begins to fail and when it has recovered:
// one line each.
type health struct {
	log     *zap.Logger // names the namespace and the sink
	metrics *outletMetrics

	mu          sync.Mutex
	failing     bool
	since, last time.Time
	failures    int

	letters int       // dead letters since the log last named one
	named   time.Time // when that was
}

// judged is told of every Write. A refusal is an answer: the sink works.
func (h *health) judged(v verdict, err error) {
	switch {
	case v.reason == reasonStopped:
		h.metrics.failures.WithLabelValues(v.reason).Inc()
	case v.all == unsettled:
		h.failed(v.reason, err)
	default:
		if v.reason != "" {
			h.metrics.failures.WithLabelValues(v.reason).Inc()
		}
		h.succeeded()
	}
}

func (h *health) failed(reason string, err error) {
	h.metrics.failures.WithLabelValues(reason).Inc()
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = now
	h.failures++
	h.metrics.fail.Set(1)
	if h.failing {
		return
	}
	h.failing, h.since, h.failures = true, now, 1
	fields := []zap.Field{zap.String("reason", reason), zap.Error(err)}
	if p := (*panicError)(nil); errors.As(err, &p) {
		fields = append(fields, zap.ByteString("stack", p.stack))
	}
	h.log.Warn("sink failing", fields...)
}

func (h *health) succeeded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.failing {
		return
	}
	h.metrics.fail.Set(0)
	if time.Since(h.last) < quiet {
		return
	}
	h.failing = false
	h.log.Info("sink recovered", zap.Int("failures", h.failures), zap.Duration("failed_for", h.last.Sub(h.since)))
}

// buried is told of every dead letter. The log names one now and then, with how
// many there were: a sink that refuses everything must not fill a disk.
func (h *health) buried(partition string, seq int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.letters++
	if time.Since(h.named) < quiet {
		return
	}
	h.log.Warn("entries given up as dead letters", zap.Int("entries", h.letters),
		zap.String("partition", partition), zap.Int64("seq", seq), zap.String("reason", reasonRejected), zap.Error(err))
	h.letters, h.named = 0, time.Now()
}
