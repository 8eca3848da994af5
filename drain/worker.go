package drain

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// What the lease worker needs of the sink guard. Each begin that is true is followed
// by one write or one withdraw.
type leaseSink interface {
	Begin() bool                                             // false: the sink is not open
	Write(guard.Write) (guard.Pending, guard.Outcome, error) // first what of it was written
	Withdraw()
	Stopping() bool                             // Writes are cancelled
	MinLife(maxAge time.Duration) time.Duration // the life an entry must have left to be worth a Write
	Trial() bool                                // a Write is due whose entries have less
	DeadLettered(partition string, which zap.Field, err error)
}

// A leaseWorker works off the leases of one namespace, any number of them at once: it
// judges what is fresh, writes it, searches for poison entries, and settles what
// became of each entry.
type leaseWorker struct {
	sinkTimeout             time.Duration
	backoffBase, backoffMax time.Duration
	together                int                        // batches that the sink takes in one Write, at most
	unitBytes               int                        // payload bytes of a unit of several batches, at most; 0 = any number
	clock                   func() (ms int64, ok bool) // the store's
	settlers                []*settler                 // by zone
	sink                    leaseSink
	metrics                 *leaseMetrics
	drops                   *drops.Namespace // nil: none are kept
	claiming, settling      context.Context  // see Drainer

	commits   guard.Pace // at-most-once: of the commits that a Write waits for
	bisecting bisectMemo
}

// A run is one lease in the hands of one worker: it writes the batches in
// order, commits what is done behind it, and gives the rest back.
type run struct {
	*leaseWorker
	account

	todo      []writeUnit // to be written, the next one last
	presented int         // the entries before it were in a Write
	retryAt   time.Time   // when the rest may be tried again; zero = at once
	expiring  expiring

	settlement
}

// work is what a worker does with a lease. The error is the store's, when it
// does not settle the partition at all.
func (w *leaseWorker) work(lease *partition.Lease) error {
	r := &run{leaseWorker: w, account: newAccount(lease)}
	r.todo = plan(lease, w.together, w.unitBytes, w.bisecting.take(lease))
	if r.atMostOnce() {
		r.deliverAtMostOnce()
	} else {
		r.deliver()
	}
	return r.settle()
}

func (r *run) atMostOnce() bool {
	return r.lease.Namespace.Policy.Delivery == partition.AtMostOnce
}

func (r *run) next() writeUnit {
	u := r.todo[len(r.todo)-1]
	r.todo = r.todo[:len(r.todo)-1]
	return u
}

// deliver writes unit after unit, until all is done or the rest must wait.
func (r *run) deliver() {
	for len(r.todo) > 0 {
		if r.leaseLost() {
			return
		}
		u := r.next()
		p, known := r.prepare(u)
		switch {
		case !known:
			return
		case len(p.Batches) == 0:
			r.commitBehind()
			continue
		case r.tooLate():
			r.rememberBisection(u)
			return
		case !r.sink.Begin():
			return
		}
		o, err := r.write(&p, r.writeEnd(), u.split)
		if o.All == guard.Unwritten {
			r.rememberBisection(u)
			r.retryAt = time.Now().Add(o.After)
			return
		}
		if r.applyOutcome(p, o, err) {
			return
		}
		if o.All == guard.Rejected && p.Entries > 1 {
			first, second := bisect(p, r.lease.From)
			r.todo = append(r.todo, second, first)
		}
		r.commitBehind()
	}
}

// writeEnd is when the last Write of the lease must end.
func (r *run) writeEnd() time.Time { return r.lease.Until.Add(-guard.LeaseMargin) }

// tooLate reports whether too little of the lease is left for a Write: one that is
// cut off has an unknown outcome, so better none.
func (r *run) tooLate() bool { return time.Until(r.writeEnd()) < r.sinkTimeout/2 }

// write makes a pending Write, which must end at end, and leaves in p what was
// written. What went stale while it waited for others expires.
func (r *run) write(p *guard.Pending, end time.Time, alone bool) (guard.Outcome, error) {
	written, o, err := r.sink.Write(guard.Write{
		Partition: r.lease.Partition,
		Pending:   *p,
		End:       end,
		Alone:     alone,
	})
	for _, e := range written.Dropped {
		at := int(e.Seq - r.lease.From)
		r.mark(at, expired)
		r.expiring.add(at, written.StaleAt(e).Add(time.Millisecond))
	}
	*p = written
	if o.All == guard.Accepted {
		r.observeLag(p.Batches)
	}
	return o, err
}

// applyOutcome enters the outcome of a Write into the account. It is true when
// entries wait for another attempt. Then nothing behind this Write is written, for
// the order of a partition goes first. What the sink accepted in this Write is kept,
// for the sink itself chose the order when it named the entries that wait.
func (r *run) applyOutcome(p guard.Pending, o guard.Outcome, err error) (waits bool) {
	var deadline time.Time // of the first batch that must wait, without what was accepted
	first := -1
	for i, b := range p.Batches {
		for j, e := range b.Entries {
			at := int(e.Seq - r.lease.From)
			r.presented = max(r.presented, at+1)
			what, cause := o.Of(i, j, err)
			switch {
			case what == guard.Accepted:
				r.mark(at, delivered)
			case what == guard.Rejected && (o.All != guard.Rejected || p.Entries == 1):
				r.deadLetter(at, deadLetter{sink.AppendDeadLine(nil, b, j, guard.ReasonRejected, cause), cause})
				r.sink.DeadLettered(b.Partition, zap.Int64("seq", e.Seq), cause)
			case what == guard.Retryable && (first < 0 || first == i):
				waits, first = true, i
				if stale := p.StaleAt(e); stale.After(deadline) {
					deadline = stale
				}
			}
		}
	}
	if !waits {
		return false
	}
	// A dead letter behind them is not committed, so it comes again, too.
	again := r.count(r.progress(), r.presented)
	r.metrics.entries.WithLabelValues(outcomeRetried).Add(float64(again[pending] + again[dead]))
	if o.Reason != guard.ReasonStopped {
		wait := guard.Backoff(r.backoffBase, r.backoffMax, r.lease.Attempt, rand.Float64())
		r.retryAt = time.Now().Add(retryIn(wait, o.After, time.Until(deadline)))
	}
	return true
}

// rememberBisection keeps how far an unfinished search for a poison entry has come.
func (r *run) rememberBisection(u writeUnit) {
	if at := r.progress(); u.split {
		r.bisecting.put(r.lease.Partition, bisectRange{r.lease.From + int64(at), u.spans[len(u.spans)-1].hi - at})
	}
}

// observeLag tells how late the batches were, beyond the linger they chose.
func (r *run) observeLag(batches []*sink.Batch) {
	ms, known := r.clock()
	if !known {
		return
	}
	for _, b := range batches {
		oldest := ms
		for _, e := range b.Entries {
			oldest = min(oldest, e.Occurred)
		}
		age := time.Duration(ms-oldest) * time.Millisecond
		r.metrics.lag.Observe(max(0, age-r.lease.Namespace.Policy.Linger).Seconds())
	}
}

// retryIn is when a batch deserves its next attempt: after the back-off and the
// sink's own wish, but never after the moment its youngest entry goes stale.
// At that moment the next claim counts it expired and frees the partition for
// what is fresh.
func retryIn(wait, after, life time.Duration) time.Duration {
	return max(0, min(max(wait, after), life))
}
