package guard

import (
	"context"
	"sync/atomic"
)

// Slots bound how much runs at once. A namespace has slots for the leases in hand,
// and where its sink coalesces, others for the Writes. Some can be withdrawn for a
// time.
type Slots struct {
	Free   chan struct{}
	excess atomic.Int64 // to be withdrawn as soon as they come back
}

func NewSlots(n int) *Slots {
	s := &Slots{Free: make(chan struct{}, n)}
	s.Put(n)
	return s
}

// Size is how many there are, free, taken and withdrawn.
func (s *Slots) Size() int { return cap(s.Free) }

// Available is how many are free now.
func (s *Slots) Available() int { return len(s.Free) }

// Take waits for one slot. It is false when ctx ends.
func (s *Slots) Take(ctx context.Context) bool {
	select {
	case <-s.Free:
		return true
	case <-ctx.Done():
		return false
	}
}

// More takes up to n slots that are free now.
func (s *Slots) More(n int) int {
	for got := range n {
		select {
		case <-s.Free:
		default:
			return got
		}
	}
	return max(n, 0)
}

func (s *Slots) Put(n int) {
	for range n {
		if !s.keep() {
			s.Free <- struct{}{}
		}
	}
}

// keep withdraws a slot that came back. It is false when none is in excess.
func (s *Slots) keep() bool {
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
func (s *Slots) withdraw(n int) { s.excess.Add(int64(n - s.More(n))) }

// restore brings n withdrawn slots back.
func (s *Slots) restore(n int) { s.Put(n) }
