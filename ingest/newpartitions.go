package ingest

import (
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// newPartitionLimiter bounds how fast one token uses new partitions. It remembers
// the hashes of the names in two generations. A name that neither generation
// holds is new and is charged to the quota. So names in use cost nothing, and
// memory is bounded by the quota. Births in the store would not tell: a partition that is
// drained is born again with its next entry.
//
// It is approximate. Two names may share a hash (one pair in 2^64). A name is
// forgotten after 10 to 20 minutes without use, or sooner when a generation is
// full. Each process counts for itself.
type newPartitionLimiter struct {
	seed     maphash.Seed // random, so nobody can choose two names with one hash
	maxNames int          // in a generation

	mu                sync.Mutex
	limiter           *rate.Limiter
	current, previous map[uint64]struct{}
	rotated           time.Time
}

// generation is how long names are added to one generation.
const generation = 10 * time.Minute

func newNewPartitionLimiter(q Quota) *newPartitionLimiter {
	return &newPartitionLimiter{
		seed: maphash.MakeSeed(), limiter: newLimiter(q, 1),
		// This bounds the memory of very large quotas: the names take 20 MB. A
		// smaller bound would forget names that are in use.
		maxNames: 1 << 20,
		current:  map[uint64]struct{}{},
	}
}

// admit reports whether the token may use a partition now.
func (l *newPartitionLimiter) admit(name string, now time.Time) bool {
	hash := maphash.String(l.seed, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.current) >= l.maxNames || now.Sub(l.rotated) >= generation {
		l.previous, l.current, l.rotated = l.current, map[uint64]struct{}{}, now
	}
	if _, known := l.current[hash]; known {
		return true
	}
	if _, known := l.previous[hash]; !known && !l.limiter.AllowN(now, 1) {
		return false
	}
	l.current[hash] = struct{}{}
	return true
}
