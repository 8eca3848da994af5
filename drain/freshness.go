package drain

import (
	"slices"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
)

// expiring are the entries that were expired although they had a little life left.
// Where they cannot be settled, because one before them must wait, the next attempt
// waits until they are stale. Otherwise a quicker sink would get them after
// those behind them. A lapsing lease lasts longer than any of them.
type expiring struct {
	end   int // the last of them is before it
	stale time.Time
}

func (x *expiring) add(at int, stale time.Time) {
	x.end = max(x.end, at+1)
	if stale.After(x.stale) {
		x.stale = stale
	}
}

// prepare leaves out what is gone from the store, drops what has gone stale and what
// would before a Write can end, and makes batches of the rest. It is false while the
// store's clock is unknown: then nothing can be said to be fresh.
func (r *run) prepare(u writeUnit) (p guard.Pending, known bool) {
	ns := r.lease.Namespace
	// In this order: a stall in between makes deadlines early, not late.
	now := time.Now()
	ms, known := r.clock()
	if !known {
		return p, false
	}
	margin := r.commitMargin()
	minLife := margin + r.sink.MinLife(ns.Policy.MaxAge)
	if r.tooShort(u, ms, margin, minLife) && r.sink.Trial() {
		minLife, p.Trial = margin, true
	}
	shortest := ns.Policy.MaxAge
	for _, s := range u.spans {
		var youngest time.Duration
		first, last, n := 0, 0, 0
		for at := s.lo; at < s.hi; at++ {
			if at < r.settled || r.classes[at] != pending {
				continue
			}
			age := time.Duration(ms-r.lease.Entries[at].Occurred) * time.Millisecond
			life := ns.Policy.MaxAge - age
			if life <= 0 { // a malformed entry too, for its time is 0
				r.mark(at, expired)
				continue
			} else if life < minLife {
				r.mark(at, expired)
				r.expiring.add(at, now.Add(life+time.Millisecond))
				continue
			}
			shortest, youngest = min(shortest, life), max(youngest, life)
			if n++; n == 1 {
				first = at
			}
			last = at
		}
		if n == 0 {
			continue
		}
		p.Entries += n
		cut, _ := slices.BinarySearch(r.lease.Cuts, r.lease.From+int64(s.hi)) // a bisection cuts no batch
		p.Batches = append(p.Batches, &sink.Batch{
			Namespace: ns.Name,
			Partition: r.lease.Partition,
			FirstSeq:  r.lease.Entries[first].Seq,
			End:       r.lease.Cuts[cut],
			Attempt:   r.lease.Attempt,
			Deadline:  now.Add(youngest),
			Entries:   r.pendingOf(first, last+1, n),
		})
	}
	p.Stale, p.Oldest = now.Add(shortest), ms-(ns.Policy.MaxAge-shortest).Milliseconds()
	return p, true
}

// tooShort reports whether the sink's pace alone keeps a unit from being written:
// it has entries with more life than margin, and none with as much as minLife.
func (r *run) tooShort(u writeUnit, ms int64, margin, minLife time.Duration) (short bool) {
	maxAge := r.lease.Namespace.Policy.MaxAge
	for _, s := range u.spans {
		for at := max(s.lo, r.settled); at < s.hi; at++ {
			if r.classes[at] != pending {
				continue
			}
			life := maxAge - time.Duration(ms-r.lease.Entries[at].Occurred)*time.Millisecond
			if life >= minLife && life > 0 {
				return false
			}
			short = short || life > margin
		}
	}
	return short
}

// pendingOf is the n pending entries of [lo, hi): the lease's own memory where they
// lie together.
func (r *run) pendingOf(lo, hi, n int) []sink.Entry {
	if hi-lo == n {
		return r.lease.Entries[lo:hi:hi]
	}
	list := make([]sink.Entry, 0, n)
	for at := lo; at < hi; at++ {
		if r.classes[at] == pending {
			list = append(list, r.lease.Entries[at])
		}
	}
	return list
}
