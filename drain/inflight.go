package drain

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
)

// maxSkipped bounds how far a Due call lists past partitions that must not be
// claimed.
const maxSkipped = 4096

// inFlight are the partitions of a shard that its claimer must not claim: those that
// our own workers have, and those that the store rejects. The store fences the
// former too, but only while their leases last. Without inFlight, a sink that hangs
// on one partition would be given it again and again, until it held every worker.
// And under at-most-once, where the commit before a Write ends the lease, two batches
// of a partition would be written side by side.
type inFlight struct {
	mu       sync.Mutex
	until    map[string]time.Time // zero: until removed
	released uint64               // how many were removed
	wake     context.CancelFunc   // ends the present sleep of the claimer
}

func newInFlight() *inFlight { return &inFlight{until: make(map[string]time.Time)} }

func (f *inFlight) add(partition string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until[partition] = time.Time{}
}

func (f *inFlight) quarantine(partition string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	// Those that no Due call lists again, because they are gone, leave here.
	maps.DeleteFunc(f.until, func(_ string, t time.Time) bool { return !t.IsZero() && t.Before(now) })
	f.until[partition] = now.Add(guard.Quarantine)
}

func (f *inFlight) has(partition string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	until, found := f.until[partition]
	if found && !until.IsZero() && !time.Now().Before(until) {
		delete(f.until, partition)
		return false
	}
	return found
}

// remove takes a partition out and wakes the claimer: what its lease left behind
// may be due at once, and nothing else says so.
func (f *inFlight) remove(partition string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.until, partition)
	f.released++
	if f.wake != nil {
		f.wake()
		f.wake = nil
	}
}

func (f *inFlight) releasedSoFar() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.released
}

// wakeOnRelease lets the next remove call wake. It is false when one came since the
// claimer read seen: then there is no reason to sleep.
func (f *inFlight) wakeOnRelease(seen uint64, wake context.CancelFunc) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.released != seen {
		return false
	}
	f.wake = wake
	return true
}
