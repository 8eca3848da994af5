package drain

import (
	"context"
	"maps"
	"sync"
	"time"
)

const (
	// quarantine is how long a partition that the store refuses is left alone.
	quarantine = 30 * time.Second
	// maxSkipped bounds how far a look goes past partitions it must not claim.
	maxSkipped = 4096
)

// holds are the partitions of a shard that its loop must not claim: those in
// the hands of our own workers, and those that the store refuses. The store
// fences the former too, but only while their leases last: without holds a sink
// that hangs on one partition would be given it again and again, until it held
// every worker; and under at-most-once, where the commit before a Write ends
// the lease, two batches of a partition would be written side by side.
type holds struct {
	mu    sync.Mutex
	until map[string]time.Time // zero: until freed
	freed uint64               // how many were freed
	wake  context.CancelFunc   // ends the present sleep of the loop
}

func newHolds() *holds { return &holds{until: make(map[string]time.Time)} }

func (h *holds) take(partition string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until[partition] = time.Time{}
}

func (h *holds) quarantine(partition string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	// Those that nobody met again, because they are gone, leave here.
	maps.DeleteFunc(h.until, func(_ string, t time.Time) bool { return !t.IsZero() && t.Before(now) })
	h.until[partition] = now.Add(quarantine)
}

func (h *holds) has(partition string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, held := h.until[partition]
	if held && !until.IsZero() && !time.Now().Before(until) {
		delete(h.until, partition)
		return false
	}
	return held
}

// free ends a hold and wakes the loop: what the lease left behind may be due
// at once, which nobody else tells it.
func (h *holds) free(partition string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.until, partition)
	h.freed++
	if h.wake != nil {
		h.wake()
		h.wake = nil
	}
}

func (h *holds) freedSoFar() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.freed
}

// nudge lets the next free call wake. It is false when one came since the loop
// read seen: then there is no reason to sleep.
func (h *holds) nudge(seen uint64, wake context.CancelFunc) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.freed != seen {
		return false
	}
	h.wake = wake
	return true
}
