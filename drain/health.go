package drain

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
)

// quietPeriod is how long no Write may have failed before a sink counts as recovered,
// so that one which fails now and then makes two log lines, not many.
const quietPeriod = 5 * time.Second

// A health tells the log when a sink begins to fail and when it has recovered:
// one line each.
type health struct {
	log     *zap.Logger // names the namespace and the sink
	metrics *sinkMetrics

	mu          sync.Mutex
	failing     bool
	since, last time.Time // the first and the last failure
	answered    time.Time // the first answer after the last failure; zero: none yet
	failures    int

	retries int64 // failed Writes and Opens, since the start
	words   string
	wordsAt time.Time // when a Write or an Open last failed, or was rejected, with words

	letters int       // dead letters since the log last named one
	named   time.Time // when that was
}

// recordWrite is told of every Write. A rejection is an answer: the sink works.
func (h *health) recordWrite(o writeOutcome, err error) {
	switch {
	case o.reason == reasonStopped:
		h.metrics.failures.WithLabelValues(o.reason).Inc()
	case o.all == retryable || o.noneTaken:
		h.failed(o.reason, err)
	default:
		if o.reason != "" {
			h.metrics.failures.WithLabelValues(o.reason).Inc()
			h.mu.Lock()
			h.say(err)
			h.mu.Unlock()
		}
		h.succeeded()
	}
}

func (h *health) failed(reason string, err error) {
	h.metrics.failures.WithLabelValues(reason).Inc()
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.answered = now, time.Time{}
	h.failures++
	h.retries++
	h.say(err)
	h.metrics.sinkFailing.Set(1)
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

// say keeps what a Write or an Open failed with; h.mu is held.
func (h *health) say(err error) { h.words, h.wordsAt = wordsOf(err), time.Now() }

func (h *health) succeeded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.failing {
		return
	}
	h.metrics.sinkFailing.Set(0)
	if h.answered.IsZero() {
		h.answered = time.Now()
	}
	if time.Since(h.last) < quietPeriod {
		return
	}
	h.failing = false
	h.log.Info("sink recovered", zap.Int("failures", h.failures), zap.Duration("failed_for", h.answered.Sub(h.since)))
}

// deadLettered is told of every dead letter. The log names at most one a
// quietPeriod, with how many there were: a sink that rejects everything must not
// fill a disk.
func (h *health) deadLettered(partition string, seq int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.letters++
	if time.Since(h.named) < quietPeriod {
		return
	}
	h.log.Warn("entries given up as dead letters", zap.Int("entries", h.letters),
		zap.String("partition", partition), zap.Int64("seq", seq), zap.String("reason", reasonRejected), zap.Error(err))
	h.letters, h.named = 0, time.Now()
}
