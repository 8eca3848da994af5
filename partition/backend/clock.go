package backend

import (
	"sync"
	"time"
)

// Clock follows the store's TIME on the process's monotonic clock. So ages are judged
// on one clock, whatever the wall clocks of this machine and of clients say.
type Clock struct {
	mu     sync.RWMutex
	base   time.Time
	offset int64 // store's µs minus µs since base
	known  bool
}

// Observe takes a reply that carried the store's time in ms, which the store read at
// some moment between sent and received. The offset moves only as far as it has to for
// that to be true, so slow replies do not disturb it.
func (c *Clock) Observe(sent, received time.Time, ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		c.base = sent
	}
	lowest := ms*1000 - received.Sub(c.base).Microseconds()
	highest := (ms+1)*1000 - sent.Sub(c.base).Microseconds()
	if !c.known {
		c.offset, c.known = lowest+(highest-lowest)/2, true
		return
	}
	c.offset = min(max(c.offset, lowest), highest)
}

func (c *Clock) Now() (ms int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return (time.Since(c.base).Microseconds() + c.offset) / 1000, c.known
}
