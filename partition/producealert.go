package partition

import (
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// trouble tells the log when produces begin to fail although the store answers,
// and when that is over: a full store and missing replicas change nothing that
// a probe sees. One line each, however many requests there are.
type produceAlert struct {
	log   *zap.Logger
	since atomic.Int64 // Unix ns of the first failure of this trouble; 0 = none
	last  atomic.Int64 // and of the latest
}

// quietTime is how long no produce may have failed so before it counts as over.
const quietTime = 5 * time.Second

// judge is told how each group ended.
func (t *produceAlert) observe(groups []*Group) {
	for _, g := range groups {
		switch {
		case errors.Is(g.Err, ErrFull), errors.Is(g.Err, ErrUnconfirmed):
			now := time.Now().UnixNano()
			t.last.Store(now)
			if t.since.CompareAndSwap(0, now) {
				t.log.Error("produces are refused although the store answers", zap.Error(g.Err))
			}
		case g.Err == nil:
			since := t.since.Load()
			if since != 0 && time.Since(time.Unix(0, t.last.Load())) > quietTime && t.since.CompareAndSwap(since, 0) {
				t.log.Info("produces are taken again", zap.Duration("after", time.Since(time.Unix(0, since))))
			}
		}
	}
}
