package guard

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
	metrics *Metrics

	mu          sync.Mutex
	failing     bool
	since, last time.Time // the first and the last failure
	unanswered  time.Time // the first failure since the last answer
	answered    time.Time // the first answer after the last failure; zero: none yet
	failures    int
	onlyOpens   bool        // since it began to fail, only Open has failed
	quiet       *time.Timer // looks whether the sink has recovered when no Write follows

	retries int64 // failed Writes and Opens, since the start
	words   string
	wordsAt time.Time // when a Write or an Open last failed, or was rejected, with words
}

// recordWrite is told of every Write. A rejection is an answer: the sink works.
func (h *health) recordWrite(o Outcome, err error) {
	switch {
	case o.Reason == ReasonStopped:
		h.metrics.Failures.WithLabelValues(o.Reason).Inc()
	case o.All == Retryable || o.noneTaken:
		h.failed(o.Reason, err)
	default:
		if o.Reason != "" {
			h.metrics.Failures.WithLabelValues(o.Reason).Inc()
			h.mu.Lock()
			h.say(err)
			h.mu.Unlock()
		}
		h.succeeded()
	}
}

// openFailed is told of every Open that failed.
func (h *health) openFailed(err error) { h.fail(reasonOf(err), err, true) }

// opened is told of every Open that succeeded. It ends a failure only where no Write
// failed, for a sink that opens may still take nothing.
func (h *health) opened() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing && h.onlyOpens {
		h.answer()
	}
}

func (h *health) failed(reason string, err error) { h.fail(reason, err, false) }

func (h *health) fail(reason string, err error, opening bool) {
	h.metrics.Failures.WithLabelValues(reason).Inc()
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.failing || !h.answered.IsZero() {
		h.unanswered = now
	}
	h.last, h.answered = now, time.Time{}
	h.failures++
	h.retries++
	h.say(err)
	h.metrics.Failing.Set(1)
	h.onlyOpens = opening && (h.onlyOpens || !h.failing)
	if h.failing {
		return
	}
	h.failing = true
	h.since = now
	h.failures = 1
	fields := []zap.Field{zap.String("reason", reason), zap.Error(err)}
	if p := (*panicError)(nil); errors.As(err, &p) {
		fields = append(fields, zap.ByteString("stack", p.stack))
	}
	h.log.Warn("sink failing", fields...)
}

// say keeps what a Write or an Open failed with; h.mu is held.
func (h *health) say(err error) { h.words, h.wordsAt = WordsOf(err), time.Now() }

func (h *health) succeeded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing {
		h.answer()
	}
}

// answer notes that a failing sink works, and that it has recovered once nothing has
// failed for a quietPeriod; h.mu is held.
func (h *health) answer() {
	h.metrics.Failing.Set(0)
	if h.answered.IsZero() {
		h.answered = time.Now()
	}
	if left := quietPeriod - time.Since(h.last); left > 0 {
		if h.quiet == nil {
			h.quiet = time.AfterFunc(left, h.recovered)
		}
		return
	}
	h.failing = false
	h.log.Info("sink recovered", zap.Int("failures", h.failures),
		zap.Duration("failed_for", h.answered.Sub(h.since)))
}

// recovered looks once more when the quietPeriod of an answer is over: perhaps no Write
// follows for hours.
func (h *health) recovered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quiet = nil
	if h.failing && !h.answered.IsZero() {
		h.answer()
	}
}

// stop ends the look at the sink.
func (h *health) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.quiet != nil {
		h.quiet.Stop()
	}
}
