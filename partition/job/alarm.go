package job

import "sync/atomic"

// An alarm wakes the promoter of this process before it means to look.
type alarm struct {
	until atomic.Int64  // ms on the store's clock until which it sleeps; 0: it is about to look anyway
	wake  chan struct{} // has room for one signal
}

// ring wakes the promoter now.
func (a *alarm) ring() {
	a.until.Store(0)
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// comesDue tells that something of a shard comes due at a time, in ms on the store's clock.
func (s *Store) comesDue(sh *shard, at int64) {
	for {
		look := sh.look.Load()
		if at >= look {
			return // the promoter looks before
		}
		if sh.look.CompareAndSwap(look, at) {
			break
		}
	}
	if at < s.alarm.until.Load() {
		s.alarm.ring()
	}
}
