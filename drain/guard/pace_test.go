package guard

import (
	"testing"
	"time"
)

func TestBackoffGrowsFromBaseToMax(t *testing.T) {
	t.Parallel()
	const base, limit = 100 * time.Millisecond, 30 * time.Second
	for attempt, want := range map[int]time.Duration{
		0: base, 1: base, 2: 2 * base, 3: 4 * base, 9: 256 * base, 10: limit, 63: limit, 64: limit, 1 << 40: limit,
	} {
		if got := Backoff(base, limit, attempt, 1); got != want {
			t.Errorf("attempt %d: ceiling %v, want %v", attempt, got, want)
		}
		if got := Backoff(base, limit, attempt, 0); got != 0 {
			t.Errorf("attempt %d: floor %v: full jitter begins at 0", attempt, got)
		}
	}
}

func TestNoticeFollowsTheSinksPaceWithinBounds(t *testing.T) {
	t.Parallel()
	var p Pace
	const timeout, maxAge = 10 * time.Second, 3 * time.Minute
	if got := p.minLife(timeout, maxAge); got != 0 {
		t.Errorf("minLife %v before the first Write", got)
	}
	p.Took(time.Second, false)
	if got := p.minLife(timeout, maxAge); got != 2*time.Second {
		t.Errorf("minLife %v at a pace of 1s", got)
	}
	p.cut(3 * time.Second)
	p.cut(time.Second)
	if got := p.Get(); got != 3*time.Second {
		t.Errorf("pace %v after a Write was cut off at 3s", got)
	}
	p.cut(time.Hour)
	if got := p.minLife(timeout, maxAge); got != timeout {
		t.Errorf("minLife %v, a Write ends after %v", got, timeout)
	}
	if got := p.minLife(timeout, 8*time.Second); got != 2*time.Second {
		t.Errorf("minLife %v of a max age of 8s: a quarter of it is the most", got)
	}
	for range 40 {
		p.Took(10*time.Millisecond, false)
	}
	if got := p.Get(); got > 11*time.Millisecond {
		t.Errorf("pace %v after 40 quick Writes", got)
	}
}
