package drain

import (
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition/drops"
)

// minCommitMargin is the least life that an entry must have left for the commit
// before its Write, where commits were quicker so far.
const minCommitMargin = 10 * time.Millisecond

// deliverAtMostOnce writes the units of an at-most-once lease. Each is committed
// first, and written once, when the commit is known to have run. A crash between the
// two loses that unit, and after an unknown outcome nothing is written.
func (r *run) deliverAtMostOnce() {
	for len(r.todo) > 0 && !r.lost {
		u := r.next()
		p, known := r.prepare(u)
		switch {
		case !known || r.tooLate() || r.sink.Stopping():
			return
		case len(p.Batches) == 0:
			continue // the commit that follows has them
		case !r.sink.Begin():
			return
		}
		ran, again := r.commitFirst(p)
		switch {
		case ran:
			r.writeOnce(p)
			continue
		case again:
			r.todo = append(r.todo, u)
		}
		r.sink.Withdraw()
		if !again {
			return
		}
	}
}

// commitFirst commits the entries of a pending Write as delivered, and those before
// them, and waits for the result. Where the commit did not run, the entries are
// pending again: if again is true this lease tries once more, where the store says
// that the range starts; else the next lease does. An outcome that stays unknown
// gives the lease up. ErrGone after one most likely means that it ran, but another drainer may
// have the entries, so nothing is written.
func (r *run) commitFirst(p guard.Pending) (ran, again bool) {
	r.markAll(p, delivered)
	r.unwritten = p.Entries
	defer func() { r.unwritten = 0 }()
	for failures := 1; !r.lost; failures++ {
		c, unsure := r.commit(), r.unsure
		if r.send(&settleRequest{commit: c}) {
			ran = c.Err == nil && (!c.AlreadyApplied || unsure)
			again = !ran
			break
		}
		if !r.retry(failures) {
			break
		}
	}
	switch {
	case ran:
	case r.unsure && !r.lost:
		r.lapse()
	default:
		r.markAll(p, pending)
		r.done = r.settled
	}
	return ran, again
}

func (r *run) markAll(p guard.Pending, c class) {
	for _, b := range p.Batches {
		for _, e := range b.Entries {
			r.mark(int(e.Seq-r.lease.From), c)
		}
	}
}

// writeOnce makes the Write of entries that are committed. What it does not
// deliver shows in the metrics only.
func (r *run) writeOnce(p guard.Pending) {
	end, failed := r.writeEnd(), p.Entries
	var err error
	if r.ended {
		end = time.Now().Add(r.sinkTimeout) // no other drainer can get them any more
	}
	minLife := r.sink.MinLife(r.lease.Namespace.Policy.MaxAge)
	p = p.StillFresh(time.Now(), minLife)
	if p.Dropped = nil; p.Entries == 0 { // they are settled as delivered
		r.sink.Withdraw()
	} else {
		var o guard.Outcome
		o, err = r.write(&p, end, false)
		for i, b := range p.Batches {
			for j := range b.Entries {
				if what, _ := o.Of(i, j, err); what == guard.Accepted {
					r.metrics.delivered.Inc()
					if r.drops.CountOne(drops.Delivered, 1) {
						r.recordEntry(drops.Delivered, int(b.Entries[j].Seq-r.lease.From), "")
					}
					failed--
				}
			}
		}
	}
	r.metrics.entries.WithLabelValues(outcomeFailed).Add(float64(failed))
	r.recordFailed(failed, err)
}

// commitMargin is how much of its life an entry may lose to the commit before its
// Write: twice what commits lately took.
func (r *run) commitMargin() time.Duration {
	if !r.atMostOnce() {
		return 0
	}
	return min(max(2*r.commits.Get(), minCommitMargin), r.lease.Namespace.Policy.MaxAge/4)
}
