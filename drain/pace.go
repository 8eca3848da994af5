package drain

import (
	"sync"
	"time"
)

// A pace is how long the sink of a namespace lately took for a Write: a moving
// average of those that succeeded, and of what cut ones must at least have
// needed. It is 0 until the first Write ends.
type pace struct {
	mu   sync.Mutex
	mean time.Duration
}

func (p *pace) get() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mean
}

// took learns from a Write that was answered.
func (p *pace) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mean == 0 {
		p.mean = d
		return
	}
	p.mean += (d - p.mean) * 4 / 10
}

// cut learns from a Write that an entry's age ended: it needed more than d.
func (p *pace) cut(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mean = max(p.mean, d)
}

// notice is how much of its life an entry must have left to be worth a Write.
// Under a lasting backlog the oldest entries are always about to go stale; a
// Write that carries them is cut off at that moment, its outcome unknown, and
// the fresh ones beside them are written twice. So what cannot make it is
// expired instead. A quarter of max_age is the bound that keeps a sink, however
// slow it was, from never being tried again.
func (p *pace) notice(timeout, maxAge time.Duration) time.Duration {
	return min(2*p.get(), timeout, maxAge/4)
}
