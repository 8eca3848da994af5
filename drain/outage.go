package drain

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// An outage tells the log when the store begins to fail the claim loops and
// when it serves them all again: one line each, however many loops there are.
type outage struct {
	log *zap.Logger

	mu    sync.Mutex
	loops int // that the store fails
	since time.Time
}

func (o *outage) begins(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.loops++; o.loops == 1 {
		o.since = time.Now()
		o.log.Warn("store failing, claims paused", zap.Error(err))
	}
}

func (o *outage) ends() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.loops--; o.loops == 0 {
		o.log.Info("store serves claims again", zap.Duration("after", time.Since(o.since)))
	}
}
