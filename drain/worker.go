package drain

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

// reasonRejected is the reason of a dead letter: the sink refused the entry.
const reasonRejected = "rejected"

// A run is one lease in the hands of one worker: it writes the batches in
// order, commits what is done behind it, and gives the rest back.
type run struct {
	o *outlet
	account

	todo   []unit    // to be written, the next one last
	tried  int       // the entries before it were in a Write
	resume time.Time // when the rest may be tried again; zero = at once
	doomed doomed

	settlement
}

// doomed are the entries that were expired although they had a little life
// left. Where they cannot be settled, because one before them must wait, the
// next attempt waits until they are stale indeed: a quicker sink would else get
// them after those behind them. A lapsing lease lasts longer than any of them.
type doomed struct {
	end   int // the last of them is before it
	stale time.Time
}

func (d *doomed) add(at int, stale time.Time) {
	d.end = max(d.end, at+1)
	if stale.After(d.stale) {
		d.stale = stale
	}
}

// work is what a worker does with a lease. The error is the store's, when it
// refuses to settle the partition at all.
func work(o *outlet, lease *partition.Lease) error {
	r := &run{o: o, account: newAccount(lease)}
	r.todo = plan(lease, o.caps.MaxBatches, o.narrow.take(lease))
	if r.atMostOnce() {
		r.handOver()
	} else {
		r.deliver()
	}
	return r.settle()
}

func (r *run) atMostOnce() bool {
	return r.lease.Namespace.Policy.Delivery == partition.AtMostOnce
}

func (r *run) next() unit {
	u := r.todo[len(r.todo)-1]
	r.todo = r.todo[:len(r.todo)-1]
	return u
}

// deliver writes unit after unit, until all is done or the rest must wait.
func (r *run) deliver() {
	for len(r.todo) > 0 {
		if r.over() {
			return
		}
		u := r.next()
		a, known := r.prepare(u)
		switch {
		case !known:
			return
		case len(a.batches) == 0:
			r.commitBehind()
			continue
		case r.late():
			r.remember(u)
			return
		case !r.o.gate.enter():
			return
		}
		v, err := r.attempt(a, r.last())
		if r.apply(a, v, err) {
			return
		}
		if v.all == refused && a.entries > 1 {
			first, second := bisect(a, r.lease.From)
			r.todo = append(r.todo, second, first)
		}
		r.commitBehind()
	}
}

// last is when the last Write of the lease must end.
func (r *run) last() time.Time { return r.lease.Until.Add(-leaseMargin) }

// late reports whether too little of the lease is left for a Write: one that is
// cut off has an unknown outcome, so better none.
func (r *run) late() bool { return time.Until(r.last()) < r.o.cfg.SinkTimeout/2 }

// An attempt is a Write about to be made.
type attempt struct {
	batches []*sink.Batch
	entries int
	stale   time.Time // when its oldest entry goes stale
	oldest  int64     // the time of that entry
	trial   bool      // its entries have less life than the notice
}

func (a *attempt) staleAt(e sink.Entry) time.Time {
	return a.stale.Add(time.Duration(e.Occurred-a.oldest) * time.Millisecond)
}

// prepare leaves out what vanished, drops what has gone stale, and what would
// before a Write can end, and makes batches of the rest. It is false while the store's clock is unknown:
// then nobody can say what is fresh.
func (r *run) prepare(u unit) (a attempt, known bool) {
	ns := r.lease.Namespace
	// In this order: a stall in between makes deadlines early, not late.
	now := time.Now()
	ms, known := r.o.store.Now()
	if !known {
		return a, false
	}
	least := r.commitNotice()
	notice := least + r.o.pace.notice(r.o.cfg.SinkTimeout, ns.Policy.MaxAge)
	if r.tooShort(u, ms, least, notice) && r.o.pace.trial() {
		notice, a.trial = least, true
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
			} else if life < notice {
				r.mark(at, expired)
				r.doomed.add(at, now.Add(life+time.Millisecond))
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
		a.entries += n
		a.batches = append(a.batches, &sink.Batch{
			Namespace: ns.Name, Partition: r.lease.Partition, FirstSeq: r.lease.Entries[first].Seq,
			Attempt: r.lease.Attempt, Deadline: now.Add(youngest), Entries: r.fresh(first, last+1, n),
		})
	}
	a.stale, a.oldest = now.Add(shortest), ms-(ns.Policy.MaxAge-shortest).Milliseconds()
	return a, true
}

// tooShort reports whether the sink's pace alone keeps a unit from being written:
// it has entries with more life than least, and none with as much as notice.
func (r *run) tooShort(u unit, ms int64, least, notice time.Duration) (short bool) {
	maxAge := r.lease.Namespace.Policy.MaxAge
	for _, s := range u.spans {
		for at := max(s.lo, r.settled); at < s.hi; at++ {
			if r.classes[at] != pending {
				continue
			}
			life := maxAge - time.Duration(ms-r.lease.Entries[at].Occurred)*time.Millisecond
			if life >= notice && life > 0 {
				return false
			}
			short = short || life > least
		}
	}
	return short
}

// fresh is the n pending entries of [lo, hi): the lease's own memory where they
// lie together.
func (r *run) fresh(lo, hi, n int) []sink.Entry {
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

// attempt makes the Write, which may take until last, until the sink timeout
// and until its oldest entry goes stale, and tells everyone how it went.
func (r *run) attempt(a attempt, last time.Time) (verdict, error) {
	o := r.o
	start := time.Now()
	deadline := start.Add(o.cfg.SinkTimeout)
	for _, t := range []time.Time{last, a.stale} {
		if t.Before(deadline) {
			deadline = t
		}
	}
	o.metrics.batches.Add(float64(len(a.batches)))
	for _, b := range a.batches {
		o.metrics.batchEntries.Observe(float64(len(b.Entries)))
	}
	err := o.write(a.batches, deadline)
	took := time.Since(start)
	o.metrics.writeSeconds.Observe(took.Seconds())

	v := judge(err, a.batches)
	if v.all == unsettled && o.writing.Err() != nil {
		v.reason = reasonStopped
	}
	switch {
	case v.all == accepted:
		o.pace.took(took, a.trial)
		r.observeLag(a.batches)
	case v.reason == reasonTimeout && deadline.Equal(a.stale):
		o.pace.cut(took)
	}
	o.health.judged(v, err)
	o.gate.leave(r.lease.Partition, v)
	return v, err
}

// apply enters the verdict into the account. It is true when entries wait for
// another attempt: what came after this Write is then not written, for the order
// of a partition goes first. What the sink accepted in this Write is kept, for
// the sink itself chose the order when it named the entries that wait.
func (r *run) apply(a attempt, v verdict, err error) (waits bool) {
	var deadline time.Time // of the first batch that must wait, without what was accepted
	first := -1
	for i, b := range a.batches {
		for j, e := range b.Entries {
			at := int(e.Seq - r.lease.From)
			r.tried = max(r.tried, at+1)
			fate, cause := v.fateOf(i, j, err)
			switch {
			case fate == accepted:
				r.mark(at, delivered)
			case fate == refused && (v.all != refused || a.entries == 1):
				r.bury(at, sink.AppendDeadLine(nil, b, j, reasonRejected, cause))
				r.o.health.buried(b.Partition, e.Seq, cause)
			case fate == unsettled && (first < 0 || first == i):
				waits, first = true, i
				if stale := a.staleAt(e); stale.After(deadline) {
					deadline = stale
				}
			}
		}
	}
	if !waits {
		return false
	}
	// A dead letter behind them is not committed, so it comes again, too.
	again := r.count(r.progress(), r.tried)
	r.o.metrics.entries.WithLabelValues(outcomeRetried).Add(float64(again[pending] + again[dead]))
	if v.reason != reasonStopped {
		cfg := r.o.cfg
		wait := backoff(cfg.BackoffBase, cfg.BackoffMax, r.lease.Attempt, rand.Float64())
		r.resume = time.Now().Add(retryIn(wait, v.after, time.Until(deadline)))
	}
	return true
}

// remember keeps the place of an unfinished search for a poison entry.
func (r *run) remember(u unit) {
	if at := r.progress(); u.split {
		r.o.narrow.put(r.lease.Partition, suspects{r.lease.From + int64(at), u.spans[len(u.spans)-1].hi - at})
	}
}

// observeLag tells how late the batches were, beyond the linger they chose.
func (r *run) observeLag(batches []*sink.Batch) {
	ms, known := r.o.store.Now()
	if !known {
		return
	}
	for _, b := range batches {
		oldest := ms
		for _, e := range b.Entries {
			oldest = min(oldest, e.Occurred)
		}
		age := time.Duration(ms-oldest) * time.Millisecond
		r.o.metrics.lag.Observe(max(0, age-r.lease.Namespace.Policy.Linger).Seconds())
	}
}
