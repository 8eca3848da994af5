package control

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition/backend"

	"github.com/spillway-io/spillway/partition"
)

// slicesOfWindow is in how many parts a window is granted to the processes.
const slicesOfWindow = 64

// A Limiter is this process's share of a rate that all processes share. Redis grants it slices
// of a sixty-fourth of each window, so it is asked 64 times a window at most, and once more by
// each process that finds the window used up. All processes together never take more than the
// rate allows in a window. They may be rejected early by what others were granted and do not
// use: less than a slice each, and what was refunded to them.
//
// A nil Limiter is no limit.
type Limiter struct {
	rate  partition.Rate
	pool  string
	key   string
	grant func(ctx context.Context, l *Limiter, need int64) (granted, error)

	asking chan struct{} // held by who asks Redis

	mu     sync.Mutex
	window int64     // when the window ends, Unix ms by the store's clock; 0: none is known
	until  time.Time // the same by ours, or a little earlier
	credit int64     // granted to this process in the window, and not used
	left   int64     // what the window had at most after the last answer
}

// granted is the answer of the script.
type granted struct {
	sent                time.Time
	now, n, left, until int64 // the times are Unix ms by the store's clock
}

// Limiters are those of a token: of its rates Produce and Consume, which count jobs, and of
// its Limit, whose Write and Read count requests. One is nil where the token has no such
// rate, and the same in each Snapshot while the rate stays.
type Limiters struct{ Produce, Consume, Write, Read *Limiter }

// Taken is what one Take took.
type Taken struct {
	limiter   *Limiter
	window, n int64
}

// Take takes n of the rate, or nothing. wait is 0 when it did; else how long until the
// window ends; negative when no window ever has n. Errors are those of backend: nothing
// was taken then.
func (l *Limiter) Take(ctx context.Context, n int64) (t Taken, wait time.Duration, err error) {
	if l == nil || n <= 0 {
		return Taken{}, 0, nil
	}
	if n > l.rate.Count {
		return Taken{}, -1, nil
	}
	if t, wait, known := l.takeCredit(n, time.Now()); known {
		return t, wait, nil
	}
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return Taken{}, 0, backend.Wrap(backend.ErrUnavailable, ctx.Err())
	}
	for {
		// Meanwhile another one may have asked, and the window may have ended.
		if t, wait, known := l.takeCredit(n, time.Now()); known {
			return t, wait, nil
		}
		mine, window := l.reserve()
		g, err := l.grant(ctx, l, n-mine)
		t, wait, err := l.settle(n, mine, window, g, err)
		if err != nil || wait != 0 || t.n > 0 {
			return t, wait, err
		}
	}
}

// Allows reports whether any window has n.
func (l *Limiter) Allows(n int) bool { return l == nil || int64(n) <= l.rate.Count }

// reserve takes all of the credit aside, so that nobody uses it while Redis is asked for the rest.
func (l *Limiter) reserve() (credit, window int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	credit, l.credit = l.credit, 0
	return credit, l.window
}

// settle puts an answer and what was reserved together. It takes n, says how long to wait,
// or neither, when what was reserved is of a window that has ended.
func (l *Limiter) settle(n, mine, window int64, g granted,
	err error) (Taken, time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.window == window {
			l.credit += mine
		}
		return Taken{}, 0, err
	}
	if g.until != window {
		mine = 0
	}
	if g.until != l.window {
		l.window, l.credit = g.until, 0
	}
	l.left, l.until = g.left, g.sent.Add(time.Duration(g.until-g.now)*time.Millisecond)
	switch have := mine + g.n; {
	case have >= n:
		l.credit += have - n
		return Taken{l, g.until, n}, 0, nil
	case g.n == 0:
		l.credit += mine
		return Taken{}, max(time.Until(l.until), time.Millisecond), nil
	default:
		l.credit += have
		return Taken{}, 0, nil
	}
}

// takeCredit takes n of what this process holds. known is false when Redis has to be asked.
func (l *Limiter) takeCredit(n int64, now time.Time) (t Taken, wait time.Duration, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.window == 0:
		return Taken{}, 0, false
	case !now.Before(l.until):
		l.window, l.credit = 0, 0
		return Taken{}, 0, false
	case n <= l.credit:
		l.credit -= n
		return Taken{l, l.window, n}, 0, true
	case n > l.credit+l.left:
		return Taken{}, max(l.until.Sub(now), time.Millisecond), true
	}
	return Taken{}, 0, false
}

// Refund gives back what a request took that did nothing. After the end of its window it
// does nothing.
func (t Taken) Refund() { t.RefundPart(t.n) }

// RefundPart gives back n, 0 to what was taken.
func (t Taken) RefundPart(n int64) {
	l := t.limiter
	if l == nil || n <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.window == t.window {
		l.credit += min(n, t.n)
	}
}
