package drain

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// quarantine is how long a partition or a queue that the store refuses is left alone.
const quarantine = 30 * time.Second

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
