package partition

import (
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// produceAlert logs when produces begin to fail although the store answers, and
// when they work again. A full store and missing replicas cause that, and a probe
// sees neither.
type produceAlert struct {
	log    OutageLog
	active atomic.Bool
	last   atomic.Int64 // when a produce last failed so, Unix ns
}

// quietTime is how long no produce may fail before the alert ends.
const quietTime = 5 * time.Second

func newProduceAlert(log *zap.Logger) *produceAlert {
	return &produceAlert{log: OutageLog{
		Log:   log,
		Level: zap.ErrorLevel,
		Began: "produces fail although the store answers",
		Ended: "produces work again",
	}}
}

// observe takes note of how each group ended.
func (a *produceAlert) observe(groups []*Group) {
	for _, g := range groups {
		switch {
		case errors.Is(g.Err, ErrFull), errors.Is(g.Err, ErrUnconfirmed):
			a.last.Store(time.Now().UnixNano())
			if a.active.CompareAndSwap(false, true) {
				a.log.Begin(zap.Error(g.Err))
			}
		case g.Err == nil:
			if a.active.Load() && time.Since(time.Unix(0, a.last.Load())) > quietTime &&
				a.active.CompareAndSwap(true, false) {
				a.log.End()
			}
		}
	}
}
