package spillway

import (
	"context"
	"sync"
	"time"
)

// A breaker lets every attempt pass until so many in a row have failed; then one
// now and then, until one succeeds.
type breaker struct {
	after int
	every time.Duration

	mu       sync.Mutex
	failures int
	next     time.Time // when the next probe may go
}

// pass waits until an attempt may be made. It is false when that would be after
// latest, or ctx ends first.
func (b *breaker) pass(ctx context.Context, latest time.Time) bool {
	for {
		wait := b.wait()
		if wait <= 0 {
			return ctx.Err() == nil
		}
		if time.Until(latest) < wait || !sleep(ctx, wait) {
			return false
		}
	}
}

// wait is how long until an attempt may be made; 0 takes the turn.
func (b *breaker) wait() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < b.after {
		return 0
	}
	now := time.Now()
	if wait := b.next.Sub(now); wait > 0 {
		return wait
	}
	b.next = now.Add(b.every)
	return 0
}

// note enters how an attempt ended: whether the service answered for itself.
func (b *breaker) note(answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if answered {
		b.failures = 0
		return
	}
	if b.failures++; b.failures == b.after {
		b.next = time.Now().Add(b.every)
	}
}

// sleep is false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
