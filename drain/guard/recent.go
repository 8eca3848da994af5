package guard

import (
	"math/bits"
	"sync"
	"time"
)

// recentWrites is how long the Writes of the last minute took, in slots of 10 s. A
// bucket is a quarter of a power of two of microseconds, so a quantile is exact to
// within an eighth. It takes 4 kB and no allocation.
type recentWrites struct {
	mu    sync.Mutex
	began time.Time // of the first slot
	slots [recentSlots]recentSlot
}

const (
	recentSlots   = 7 // six that are over, and the present one
	recentSlot10s = 10 * time.Second
	recentBuckets = 120 // up to 18 minutes; a sink timeout is 10 minutes at most
)

type recentSlot struct {
	number int64 // of 10 s since began
	writes int64
	counts [recentBuckets]uint32
}

func newRecentWrites() *recentWrites { return &recentWrites{began: time.Now()} }

// took notes a Write that ended now.
func (w *recentWrites) took(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	number := int64(time.Since(w.began) / recentSlot10s)
	s := &w.slots[number%recentSlots]
	if s.number != number {
		*s = recentSlot{number: number}
	}
	s.writes++
	s.counts[bucketOf(d)]++
}

// bucketOf is the bucket of a duration.
func bucketOf(d time.Duration) int {
	us := uint64(max(0, d.Microseconds())) // #nosec G115 -- not negative
	if us < 4 {
		return int(us) // #nosec G115 -- below 4
	}
	exponent := bits.Len64(us) - 1
	return min(4*(exponent-1)+int(us>>(exponent-2)&3), recentBuckets-1) // #nosec G115 -- two bits
}

// bucketMiddle is the middle of a bucket.
func bucketMiddle(bucket int) time.Duration {
	if bucket < 4 {
		return time.Duration(bucket) * time.Microsecond
	}
	width := int64(1) << (bucket/4 - 1)
	return time.Duration(int64(4+bucket%4)*width+width/2) * time.Microsecond
}

// figures are the median and the 99th percentile of the last minute, 0 when no Write
// ended in it, and the Writes a second of the last 10 to 20 s.
func (w *recentWrites) figures() (p50, p99 time.Duration, perSecond float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since := time.Since(w.began)
	number := int64(since / recentSlot10s)
	var counts [recentBuckets]int64
	var all, latest int64
	for i := range w.slots {
		s := &w.slots[i]
		if s.number <= number-recentSlots || s.writes == 0 {
			continue
		}
		all += s.writes
		if s.number >= number-1 {
			latest += s.writes
		}
		for b, n := range s.counts {
			counts[b] += int64(n)
		}
	}
	span := since - time.Duration(max(0, number-1))*recentSlot10s
	return quantile(counts[:], all, 50), quantile(counts[:], all, 99),
		float64(latest) / max(span, time.Second).Seconds()
}

func quantile(counts []int64, all, percent int64) time.Duration {
	if all == 0 {
		return 0
	}
	rank := (all*percent + 99) / 100
	for b, n := range counts {
		if rank -= n; rank <= 0 {
			return bucketMiddle(b)
		}
	}
	return bucketMiddle(len(counts) - 1)
}
