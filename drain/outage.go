package drain

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// An outage tells the log when the store begins to fail the claimers and when it
// serves them all again: one line each, however many claimers there are.
type outage struct {
	log *zap.Logger

	mu       sync.Mutex
	claimers int // that the store fails
	since    time.Time
}

func (o *outage) begins(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.claimers++; o.claimers == 1 {
		o.since = time.Now()
		o.log.Warn("store failing, claims paused", zap.Error(err))
	}
}

func (o *outage) ends() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.claimers--; o.claimers == 0 {
		o.log.Info("store serves claims again", zap.Duration("after", time.Since(o.since)))
	}
}

// A refusalLog names a partition that the store refuses, once a quarantine for a
// namespace: a person has to look.
type refusalLog struct {
	log *zap.Logger

	mu   sync.Mutex
	last time.Time
}

func (r *refusalLog) add(what string, err error, fields ...zap.Field) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.last) < quarantine {
		return
	}
	r.last = time.Now()
	r.log.Error(what, append(fields, zap.Error(err))...)
}
