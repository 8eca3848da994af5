package drain

import (
	"strconv"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition/drops"
)

// recordSettled records entries of [lo, hi), which the store has settled; n are their classes.
func (r *run) recordSettled(lo, hi int, n [classes]int) {
	reasons := [classes]drops.Reason{
		delivered: drops.Delivered,
		expired:   drops.Expired,
		dead:      drops.Dead,
	}
	left, sum := [classes]int{}, 0
	for c, reason := range reasons {
		left[c] = r.drops.Count(reason, n[c], n[c])
		sum += left[c]
	}
	for at := lo; at < hi && sum > 0; at++ {
		c := r.classes[at]
		if left[c] == 0 {
			continue
		}
		left[c]--
		sum--
		if c == dead {
			r.recordEntry(drops.Dead, at, guard.WordsOf(r.letters[at].cause))
		} else {
			r.recordEntry(reasons[c], at, r.attempts())
		}
	}
}

// attempts says how often the lease's entries were presented, where that was more
// than once.
func (r *run) attempts() string {
	if r.lease.Attempt < 2 {
		return ""
	}
	return "attempt " + strconv.Itoa(r.lease.Attempt)
}

// recordEntry records the entry at a position.
func (r *run) recordEntry(reason drops.Reason, at int, detail string) {
	e := r.lease.Entries[at]
	d := drops.Drop{
		Reason:    reason,
		Partition: r.lease.Partition,
		ID:        string(e.ID),
		Entries:   1,
		Detail:    detail,
	}
	if ms, known := r.clock(); known && e.Occurred > 0 {
		d.Age = time.Duration(max(0, ms-e.Occurred)) * time.Millisecond
	}
	r.drops.Record(d)
}

// recordLost records n entries that something other than Spillway removed.
func (r *run) recordLost(n int) {
	if r.drops.CountOne(drops.Lost, n) {
		r.drops.Record(drops.Drop{
			Reason:    drops.Lost,
			Partition: r.lease.Partition,
			Entries:   n,
			Detail:    "something other than Spillway removed them from Redis while they were leased",
		})
	}
}

// recordFailed records n entries of an at-most-once Write that the sink did not accept,
// or that grew too old after their commit.
func (r *run) recordFailed(n int, err error) {
	if r.drops.CountOne(drops.Failed, n) {
		detail := "too old after their commit"
		if err != nil {
			detail = guard.WordsOf(err)
		}
		r.drops.Record(drops.Drop{
			Reason:    drops.Failed,
			Partition: r.lease.Partition,
			Entries:   n,
			Detail:    detail,
		})
	}
}
