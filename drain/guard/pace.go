package guard

import (
	"sync"
	"time"
)

// trialPause is the shortest time without a finished Write after which the pace of
// a sink is in doubt.
const trialPause = time.Second

// A Pace is how long the sink of a namespace lately took for a Write: a moving
// average of the Writes that succeeded, and of the least that those cut off would
// have needed. It is 0 until the first Write ends.
type Pace struct {
	mu      sync.Mutex
	mean    time.Duration
	learned time.Time // when mean was last confirmed, or put in doubt
}

func (p *Pace) Get() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mean
}

// Took learns from a Write that was answered. That of a trial counts alone: what
// was known before is in doubt.
func (p *Pace) Took(d time.Duration, trial bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learned = time.Now()
	if p.mean == 0 || trial {
		p.mean = d
		return
	}
	p.mean += (d - p.mean) * 4 / 10
}

// cut learns from a Write that an entry's age ended: it needed more than d.
func (p *Pace) cut(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learned = time.Now()
	p.mean = max(p.mean, d)
}

// trial reports whether a unit may be written although no entry of it has
// minLife left. Only a Write corrects the pace, so without trials a sink that was
// slow once would get nothing again from a namespace whose entries are never
// younger when they come due. A trial is due when nothing was learned for as long
// as two Writes take: under a backlog Writes end all the time, and none is due.
// It is one Write, so a sink that is still slow cuts off only that one.
func (p *Pace) trial() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.learned) < max(2*p.mean, trialPause) {
		return false
	}
	p.learned = time.Now()
	return true
}

// minLife is how much of its life an entry must have left to be worth a Write.
// Under a lasting backlog the oldest entries are always about to go stale. A
// Write that carries them is cut off at that moment with an unknown outcome, and the
// fresh ones beside them are written twice. So an entry with less life is expired
// instead. A slow sink costs at most a quarter of max_age.
func (p *Pace) minLife(timeout, maxAge time.Duration) time.Duration {
	return min(2*p.Get(), timeout, maxAge/4)
}
