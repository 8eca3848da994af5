package partition

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// alarm wakes the one claim loop of a shard when a produce of this process
// makes a partition due earlier than the loop means to look again.
type alarm struct {
	mu      sync.Mutex
	pending int64 // earliest due time since the last reset; 0 = none
	until   int64 // when the sleeper wakes by itself; 0 = nobody sleeps
	hold    int64 // ms by which the sleeper takes everything for due later
	wake    lifecycle.Signal
}

// reset drops the pending time: the caller is about to read the active set, and takes what
// comes due for due hold ms later.
func (a *alarm) reset(hold int64) {
	a.mu.Lock()
	a.pending, a.hold = 0, hold
	a.mu.Unlock()
}

func (a *alarm) ring(due int64) {
	a.mu.Lock()
	due += a.hold
	if a.pending == 0 || due < a.pending {
		a.pending = due
		if due < a.until {
			a.wake.Ring()
		}
	}
	a.mu.Unlock()
}

// sleep waits until the clock reads due or an earlier pending time, but at most
// maxWait.
func (a *alarm) sleep(ctx context.Context, c *backend.Clock, due int64, maxWait time.Duration) {
	limit := time.NewTimer(maxWait)
	defer limit.Stop()
	for {
		a.mu.Lock()
		if a.pending != 0 && a.pending < due {
			due = a.pending
		}
		a.until = due
		a.mu.Unlock()

		wait := maxWait // without a clock it is unknown what is due
		if now, known := c.Now(); known {
			wait = time.Duration(due-now) * time.Millisecond
		}
		if wait <= 0 {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-a.wake:
			timer.Stop()
			continue
		case <-limit.C:
		case <-ctx.Done():
		}
		timer.Stop()
		break
	}
	a.mu.Lock()
	a.until = 0
	a.mu.Unlock()
}

// WaitDue sleeps until the store's clock reads due (Unix ms), but at most maxWait. It
// returns earlier when a produce of this process makes a partition of the shard due
// earlier, and when ctx ends.
func (verbs) WaitDue(ctx context.Context, ns *Namespace, shard int, due int64,
	maxWait time.Duration) {
	if sh := ns.shard(shard); sh != nil {
		sh.alarm.sleep(ctx, ns.store.backend.Clock(), due, maxWait)
	}
}
