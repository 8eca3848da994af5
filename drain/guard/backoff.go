package guard

import (
	"context"
	"time"
)

// stopGrace is what Stop takes beyond its context, for the releases of what it
// cancelled and for closing sinks.
const StopGrace = 2 * time.Second

// leaseMargin is the end of a lease in which no Write may run any more: it is
// kept for the last commit or release, and for the difference between the speeds
// of two clocks.
const LeaseMargin = time.Second

// Backoff is the full-jitter wait after the given attempt (1, 2, …): roll, in
// [0, 1), of min(limit, base·2^(attempt−1)).
func Backoff(base, limit time.Duration, attempt int, roll float64) time.Duration {
	ceiling := limit
	if shift := max(attempt, 1) - 1; shift < 62 && base <= limit>>shift {
		ceiling = base << shift
	}
	return time.Duration(roll * float64(ceiling))
}

// Sleep waits for d. It is false where ctx ends before.
func Sleep(ctx context.Context, d time.Duration) bool { return waitFor(ctx, nil, d) }

func endsWithin(limit time.Duration, ended <-chan struct{}) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-ended:
		return true
	case <-t.C:
		return false
	}
}
