package drain

import (
	"context"
	"time"
)

// backoff is the full-jitter wait after the given attempt (1, 2, …): roll, in
// [0, 1), of min(limit, base·2^(attempt−1)).
func backoff(base, limit time.Duration, attempt int, roll float64) time.Duration {
	ceiling := limit
	if shift := max(attempt, 1) - 1; shift < 62 && base <= limit>>shift {
		ceiling = base << shift
	}
	return time.Duration(roll * float64(ceiling))
}

// retryIn is when a batch deserves its next attempt: after the back-off and the
// sink's own wish, but never after the moment its youngest entry goes stale.
// At that moment the next claim counts it expired and frees the partition for
// what is fresh.
func retryIn(wait, after, life time.Duration) time.Duration {
	return max(0, min(max(wait, after), life))
}

// Sleep waits for d. It is false where ctx ends before.
func Sleep(ctx context.Context, d time.Duration) bool { return waitFor(ctx, nil, d) }
