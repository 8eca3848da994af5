package drain

import (
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// commitNoticeMin is the least life that an entry must have left for the commit
// before its Write, where commits were quicker so far.
const commitNoticeMin = 10 * time.Millisecond

// handOver writes the units of an at-most-once lease. Each is committed first,
// and written once, when the commit is known to have run: a crash between the two
// loses that unit, and an outcome in doubt is not written.
func (r *run) handOver() {
	for len(r.todo) > 0 && !r.lost {
		u := r.next()
		a, known := r.prepare(u)
		switch {
		case !known || r.late() || r.o.writing.Err() != nil:
			return
		case len(a.batches) == 0:
			continue // the commit that follows has them
		case !r.o.gate.enter():
			return
		}
		ran, again := r.commitFirst(a)
		switch {
		case ran:
			r.writeOnce(a)
			continue
		case again:
			r.todo = append(r.todo, u)
		}
		r.o.gate.withdraw()
		if !again {
			return
		}
	}
}

// commitFirst commits the entries of an attempt as delivered, and those before
// them, and waits for the answer. Where that did not run, the entries are pending
// again: from another place of the range on if again is true, else for another
// lease. An outcome that stays unknown gives the lease up.
func (r *run) commitFirst(a attempt) (ran, again bool) {
	r.markAll(a, delivered)
	r.handing = a.entries
	defer func() { r.handing = 0 }()
	for failures := 1; !r.lost; failures++ {
		c, unsure := r.commit(), r.unsure
		if r.send(&settling{commit: c}) {
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
		r.markAll(a, pending)
		r.done = r.settled
	}
	return ran, again
}

func (r *run) markAll(a attempt, c class) {
	for _, b := range a.batches {
		for _, e := range b.Entries {
			r.mark(int(e.Seq-r.lease.From), c)
		}
	}
}

// writeOnce makes the Write of entries that are committed. What it does not
// deliver shows in the metrics only.
func (r *run) writeOnce(a attempt) {
	last, failed := r.last(), a.entries
	if r.ended {
		last = time.Now().Add(r.o.cfg.SinkTimeout) // nobody else can get them any more
	}
	if a = r.stillFresh(a); a.entries == 0 {
		r.o.gate.withdraw()
	} else {
		v, err := r.attempt(a, last)
		for i, b := range a.batches {
			for j := range b.Entries {
				if fate, _ := v.fateOf(i, j, err); fate == accepted {
					r.o.metrics.delivered.Inc()
					failed--
				}
			}
		}
	}
	r.o.metrics.entries.WithLabelValues(outcomeFailed).Add(float64(failed))
}

// stillFresh leaves out of an attempt what has become too old for a Write while
// its commit was under way.
func (r *run) stillFresh(a attempt) attempt {
	now, notice := time.Now(), time.Duration(0)
	if !a.trial {
		notice = r.o.pace.notice(r.o.cfg.SinkTimeout, r.lease.Namespace.Policy.MaxAge)
	}
	if left := a.stale.Sub(now); left > 0 && left >= notice {
		return a
	}
	kept := attempt{trial: a.trial}
	for _, b := range a.batches {
		var entries []sink.Entry
		for _, e := range b.Entries {
			stale := a.staleAt(e)
			if left := stale.Sub(now); left <= 0 || left < notice {
				continue
			}
			entries = append(entries, e)
			if kept.entries++; kept.entries == 1 || stale.Before(kept.stale) {
				kept.stale, kept.oldest = stale, e.Occurred
			}
		}
		if len(entries) > 0 {
			b.Entries, b.FirstSeq = entries, entries[0].Seq
			kept.batches = append(kept.batches, b)
		}
	}
	return kept
}

// commitNotice is how much of its life an entry may lose to the commit before its
// Write: twice what commits lately took.
func (r *run) commitNotice() time.Duration {
	if !r.atMostOnce() {
		return 0
	}
	return min(max(2*r.o.commits.get(), commitNoticeMin), r.lease.Namespace.Policy.MaxAge/4)
}
