// Package adaptive finds how many calls a server takes at once, by how fast it answers. It imports
// the standard library only, so that the Go client can use it.
package adaptive

import (
	"sync"
	"time"
)

const (
	// A window lasts so long at least, and until so many calls have ended.
	window, windowCalls = time.Second, 10
	// The limit falls by a fifth, and rises by a tenth.
	fallBy, riseBy = 5, 10
)

// Limit is how many calls may run at once. Once a window it falls, if more than a tenth of the
// calls took longer than the target, or rises, if they did not and more calls were wanted. A
// call that was throttled or timed out makes it fall at once, but once a window at most.
type Limit struct {
	min, max int
	target   time.Duration

	mu    sync.Mutex
	limit int
	fell  time.Time // when it last fell

	// of the present window
	began       time.Time
	ended, slow int
	wanted      bool
}

// New makes a limit that stays from least to most, and is first in the beginning. Where all are equal, it is fixed.
func New(first, least, most int, target time.Duration) *Limit {
	return &Limit{min: least, max: most, target: target, limit: first, began: time.Now()}
}

// Get is how many calls may run at once at present.
func (l *Limit) Get() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}

// Wanted is told when as many calls run as may, and another waits.
func (l *Limit) Wanted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = true
}

// Answered learns from a call that began then, and was answered now.
func (l *Limit) Answered(began time.Time) { l.learn(began, time.Since(began) > l.target, false) }

// Overloaded learns from a call that began then, and was throttled or timed out now. Calls that
// fail otherwise say nothing about how many the server takes: the limit is told of neither.
func (l *Limit) Overloaded(began time.Time) { l.learn(began, true, true) }

func (l *Limit) learn(began time.Time, slow, overloaded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if began.Before(l.fell) { // it ran beside more calls than do now
		return
	}
	now := time.Now()
	l.ended++
	if slow {
		l.slow++
	}
	over := l.ended >= windowCalls && now.Sub(l.began) >= window
	switch {
	case overloaded && now.Sub(l.fell) >= window, over && l.slow*10 > l.ended:
		l.limit, l.fell = max(l.min, l.limit-max(1, l.limit/fallBy)), now
	case !over:
		return
	case l.wanted:
		l.limit = min(l.max, l.limit+max(1, l.limit/riseBy))
	}
	l.began = now
	l.ended = 0
	l.slow = 0
	l.wanted = false
}
