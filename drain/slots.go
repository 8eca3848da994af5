package drain

import (
	"context"
	"sync/atomic"
)

// slots bound how much runs at once. A namespace has slots for the leases in hand,
// and where its sink coalesces, others for the Writes. Some can be withdrawn for a
// time.
type slots struct {
	free   chan struct{}
	excess atomic.Int64 // to be withdrawn as soon as they come back
}

func newSlots(n int) *slots {
	s := &slots{free: make(chan struct{}, n)}
	s.put(n)
	return s
}

// size is how many there are, free, taken and withdrawn.
func (s *slots) size() int { return cap(s.free) }

// available is how many are free now.
func (s *slots) available() int { return len(s.free) }

// take waits for one slot. It is false when ctx ends.
func (s *slots) take(ctx context.Context) bool {
	select {
	case <-s.free:
		return true
	case <-ctx.Done():
		return false
	}
}

// more takes up to n slots that are free now.
func (s *slots) more(n int) int {
	for got := range n {
		select {
		case <-s.free:
		default:
			return got
		}
	}
	return max(n, 0)
}

func (s *slots) put(n int) {
	for range n {
		if !s.keep() {
			s.free <- struct{}{}
		}
	}
}

// keep withdraws a slot that came back. It is false when none is in excess.
func (s *slots) keep() bool {
	for {
		n := s.excess.Load()
		if n <= 0 {
			return false
		}
		if s.excess.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// withdraw takes n slots out of use: those that are free at once, the others when
// they come back.
func (s *slots) withdraw(n int) { s.excess.Add(int64(n - s.more(n))) }

// restore brings n withdrawn slots back.
func (s *slots) restore(n int) { s.put(n) }
