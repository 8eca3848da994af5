package check

import (
	"slices"
	"time"
)

// The store's clock is this machine's but for the steps that were injected. Without any all of
// these say so.

// unaware is how long a process may go by the clock from before a step: until a reply tells it,
// which stalls and freezes hold up.
const unaware = 5 * time.Second

// An offset is what the store's clock is ahead of this machine's by, between two steps. Spans
// overlap by the time that the step took.
type offset struct {
	from, to time.Time // zero: always
	ahead    time.Duration
}

// offsetsOf are the offsets of a run, in order.
func offsetsOf(faults []Fault) []offset {
	all := []offset{{}}
	for _, f := range slices.SortedFunc(slices.Values(faults), func(a, b Fault) int { return a.From.Compare(b.From) }) {
		if f.Kind == KindClockStep {
			all[len(all)-1].to = f.To
			all = append(all, offset{from: f.From, ahead: f.Offset})
		}
	}
	return all
}

// in says that the offset held at some moment of a span.
func (o offset) in(from, to time.Time) bool {
	return !o.from.After(to) && (o.to.IsZero() || !o.to.Before(from))
}

// offsets are the least and the most that the store's clock was ahead by in a span.
func (r *run) offsets(from, to time.Time) (least, most time.Duration) {
	first := true
	for _, o := range r.clock {
		if !o.in(from, to) {
			continue
		}
		if first {
			least, most, first = o.ahead, o.ahead, false
		}
		least, most = min(least, o.ahead), max(most, o.ahead)
	}
	return least, most
}

// ahead is the most that a process may have taken the store's clock to be ahead by in a span.
func (r *run) ahead(from, to time.Time) time.Duration {
	_, most := r.offsets(from.Add(-unaware), to)
	return most
}

// aged is how much older something may have become on the store's clock than on this machine's.
func (r *run) aged(by time.Duration, from time.Time) time.Duration {
	least, most := r.offsets(from.Add(-unaware), from.Add(by))
	return by + most - least
}

// lapsed says that a step forward may have ended leases early that a worker held in a span. It
// does not know until it asks the store.
func (r *run) lapsed(from, to time.Time) bool {
	for i, o := range r.clock[1:] {
		if o.ahead > r.clock[i].ahead && !o.from.After(to) && !r.clock[i].to.Before(from.Add(-r.Policy.Lease-thawTime)) {
			return true
		}
	}
	return false
}

// when is between which moments of a span the store's clock read a time.
func (r *run) when(read, from, to time.Time) (earliest, latest time.Time) {
	for _, o := range r.clock {
		at := read.Add(-o.ahead)
		if !o.in(at.Add(-rounding), at.Add(rounding)) || at.Before(from.Add(-rounding)) || at.After(to.Add(rounding)) {
			continue
		}
		if earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
		if at.After(latest) {
			latest = at
		}
	}
	if earliest.IsZero() {
		least, most := r.offsets(from, to)
		return read.Add(-most), read.Add(-least)
	}
	return earliest, latest
}

// highest is the latest time that the store's clock read in a span.
func (r *run) highest(from, to time.Time) (read time.Time) {
	for _, o := range r.clock {
		if !o.in(from, to) {
			continue
		}
		last := to
		if !o.to.IsZero() && o.to.Before(to) {
			last = o.to
		}
		if at := last.Add(o.ahead); at.After(read) {
			read = at
		}
	}
	return read
}
