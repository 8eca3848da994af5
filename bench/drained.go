package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// AwaitDrained polls every few milliseconds until buffered, given by read, is 0,
// and returns when that was. Its error, when ctx ends first, says what is left.
func AwaitDrained(ctx context.Context, read func(context.Context) (partition.Ledger, error)) (time.Time, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		l, err := read(ctx)
		switch {
		case err == nil && l.Buffered == 0:
			return time.Now(), nil
		case err != nil && ctx.Err() == nil:
			return time.Time{}, fmt.Errorf("await an empty buffer: %w", err)
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("await an empty buffer: %w with %d entries left", ctx.Err(), l.Buffered)
		case <-tick.C:
		}
	}
}

// DrainCurve is how many entries were delivered when.
type DrainCurve struct {
	began  time.Time
	before int64 // delivered then
	points []drainPoint
}

type drainPoint struct {
	after     time.Duration
	delivered int64
}

// Start begins it.
func (d *DrainCurve) Start(at time.Time, l partition.Ledger) { d.began, d.before = at, l.Delivered }

// Add notes what a ledger says.
func (d *DrainCurve) Add(at time.Time, l partition.Ledger) {
	p := drainPoint{at.Sub(d.began), l.Delivered - d.before}
	if n := len(d.points); p.delivered > 0 && (n == 0 || d.points[n-1].delivered < p.delivered) {
		d.points = append(d.points, p)
	}
}

// Rate is the entries delivered a second without the tail: the last entries, at most
// half of them, which wait in batches that are not full. It is the highest rate from
// the start to any moment when half of the entries or more were delivered.
func (d *DrainCurve) Rate() (best float64) {
	if len(d.points) == 0 {
		return 0
	}
	half := d.points[len(d.points)-1].delivered / 2
	for _, p := range d.points {
		if p.delivered >= half && p.after > 0 {
			best = max(best, float64(p.delivered)/p.after.Seconds())
		}
	}
	return best
}
