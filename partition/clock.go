package partition

import (
	"sync"
	"time"
)

// clock follows the store's TIME on the process's monotonic clock, so ages are
// judged on one clock whatever the wall clocks of servers and devices say.
type clock struct {
	mu     sync.RWMutex
	base   time.Time
	offset int64 // store's µs minus µs since base
	known  bool
}

// observe learns from a reply that carried the store's time in ms, read at some
// moment between sent and received. The offset moves no further than that
// moment's uncertainty demands, so slow replies do not shake it.
func (c *clock) observe(sent, received time.Time, ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		c.base = sent
	}
	least := ms*1000 - received.Sub(c.base).Microseconds()
	most := (ms+1)*1000 - sent.Sub(c.base).Microseconds()
	if !c.known {
		c.offset, c.known = least+(most-least)/2, true
		return
	}
	c.offset = min(max(c.offset, least), most)
}

func (c *clock) now() (ms int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return (time.Since(c.base).Microseconds() + c.offset) / 1000, c.known
}
