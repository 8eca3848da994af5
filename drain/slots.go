package drain

import "context"

// slots are the leases a namespace may have in hand.
type slots chan struct{}

func newSlots(n int) slots {
	s := make(slots, n)
	s.put(n)
	return s
}

// take waits for one slot. It is false when ctx ends.
func (s slots) take(ctx context.Context) bool {
	select {
	case <-s:
		return true
	case <-ctx.Done():
		return false
	}
}

// more takes up to n slots that are free now.
func (s slots) more(n int) int {
	for got := range n {
		select {
		case <-s:
		default:
			return got
		}
	}
	return max(n, 0)
}

func (s slots) put(n int) {
	for range n {
		s <- struct{}{}
	}
}
