package drain

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

const (
	// maxClaims bounds one round.
	maxClaims = 128
	// claimsAtOnce bounds the claims that are sent together. The store bounds what
	// they bring in one go, so this is for drainers that meet others: so many
	// claims are lost at once at most.
	claimsAtOnce = 32
	// lookAhead is how many partitions a look lists where more are due than can be
	// claimed at once, and lookAheadFor how long the list may be used.
	lookAhead    = 512
	lookAheadFor = 100 * time.Millisecond
	// storeTimeout bounds one call to the store, beyond the store's own limits.
	storeTimeout = 5 * time.Second
	// storePauseMin and storePauseMax bound the wait while the store fails.
	storePauseMin, storePauseMax = 50 * time.Millisecond, 2 * time.Second
	// leaseWork is how long a newly due partition may wait, about, because
	// those before it are leased several batches at a time.
	leaseWork = 250 * time.Millisecond
	// rivalryMemory is over how many rounds rivalry is a mean, about. Below
	// rivalryFloor there is none; a process that starts expects some, for others
	// may start with it.
	rivalryMemory  = 4
	rivalryFloor   = 0.02
	rivalryAtStart = 0.1
	// storeWork is what a batch of 128 takes of Redis's time, claim and commit,
	// about: 1.03 M entries/s were measured for the two.
	storeWork = 150 * time.Microsecond
)

// A loop claims what is due in one shard of one namespace. It claims no more
// than workers can start at once, so that no lease ages in a queue.
type loop struct {
	o     *outlet
	shard int
	held  *holds

	offset    int                     // where the next look starts; 0 unless other drainers are in the way
	rivalry   float64                 // share of recent claims that other drainers won, 0 to 1
	skipped   int                     // held partitions that the last look met
	ahead     []string                // due partitions that the last look listed and no round has claimed yet
	aheadOf   int                     // how many were due when it looked
	looked    time.Time               // when that was
	fruitless int                     // rounds in a row whose claims brought nothing
	failures  int                     // rounds in a row that the store failed
	unproved  bool                    // a claim failed, and none has succeeded since
	unknown   []partition.ClaimResult // claims that may have run
}

func newLoop(o *outlet, shard int) *loop {
	return &loop{o: o, shard: shard, held: newHolds(), rivalry: rivalryAtStart}
}

// A pause is what a loop does between two rounds: sleep until the store's clock
// reads due, or until a lease ends that had not ended when free was read.
type pause struct {
	due   int64
	freed uint64
	wait  time.Duration // or just wait
}

func (l *loop) run(ctx context.Context) {
	for l.o.gate.wait(ctx) && l.o.slots.take(ctx) {
		p := l.round(ctx)
		switch {
		case p.due > 0:
			ctx, cancel := context.WithCancel(ctx)
			if l.held.nudge(p.freed, cancel) {
				l.o.store.WaitDue(ctx, l.o.target.Namespace, l.shard, p.due, l.o.cfg.Poll)
			}
			cancel()
		case p.wait > 0:
			sleep(ctx, p.wait)
		}
	}
	l.forget()
}

// round looks for what is due, claims it and hands it to the workers. The
// caller took one slot, which round uses or returns.
func (l *loop) round(ctx context.Context) pause {
	slots := 1
	defer func() { l.o.slots.put(slots) }()

	freed := l.held.freedSoFar()
	free := slots + len(l.o.slots)
	if names := l.known(); len(names) > 0 {
		return l.take(names, l.aheadOf, free, &slots)
	}
	limit := min(free, maxClaims) + l.skipped
	switch {
	case l.o.gate.tripped():
		limit = maxSkipped // the partition worth a probe may be behind those that fail
	case l.aheadOf > limit && l.rivalry < rivalryFloor:
		limit = lookAhead + l.skipped
	}
	list, total, err := l.due(ctx, limit)
	switch {
	case ctx.Err() != nil:
		return pause{}
	case err != nil:
		return l.failed(err)
	}
	l.forget()
	now, known := l.o.store.Now()
	if !known {
		return l.failed(partition.ErrUnavailable)
	}
	l.aheadOf, l.looked = total, time.Now()
	names, next := l.pick(list, now)
	if len(names) == 0 {
		return l.nothing(pause{due: next, freed: freed}, now, len(list) == limit)
	}
	return l.take(names, total, free, &slots)
}

// known are partitions to claim without another look: those that the last one
// listed beyond what could be claimed. It is for a backlog that no other drainer
// works on and a sink that answers; there the looks would cost a round trip in three.
func (l *loop) known() []string {
	names := l.ahead
	l.ahead = nil
	if len(names) == 0 || l.rivalry >= rivalryFloor || len(l.unknown) > 0 || l.o.gate.tripped() || time.Since(l.looked) > lookAheadFor {
		return nil
	}
	return slices.DeleteFunc(names, l.held.has)
}

// take claims what it can of names, of which total were due. It counts the slots
// that it takes and uses.
func (l *loop) take(names []string, total, free int, slots *int) pause {
	if names = l.o.gate.pass(names); len(names) == 0 {
		return pause{}
	}
	names = l.share(names)
	*slots += l.o.slots.more(min(len(names), maxClaims) - *slots)
	n := min(len(names), *slots)
	names, l.ahead = names[:n], names[n:]
	got := l.claim(names, l.depth(total, free))
	*slots -= got.leases
	if got.leases == 0 {
		l.o.gate.unused(len(names))
	}
	return l.after(got, total)
}

func (l *loop) due(ctx context.Context, limit int) ([]partition.DuePartition, int, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return l.o.store.Due(ctx, l.o.target.Namespace, l.shard, l.offset, limit)
}

// pick returns the partitions to claim, and when the first of the others comes
// due: 0 when the list does not say.
func (l *loop) pick(list []partition.DuePartition, now int64) (names []string, next int64) {
	l.skipped = 0
	for _, p := range list {
		switch {
		case p.Due > now:
			return names, p.Due
		case l.held.has(p.Partition):
			l.skipped = min(l.skipped+1, maxSkipped)
		default:
			names = append(names, p.Partition)
		}
	}
	return names, 0
}

// nothing is the pause of a look that found nothing to claim.
func (l *loop) nothing(p pause, now int64, cut bool) pause {
	if l.offset > 0 {
		// The offset hid what was due, or it is gone.
		l.offset = 0
		return pause{}
	}
	if !l.unproved {
		l.recovered()
	}
	if p.due == 0 {
		if cut && l.skipped < maxSkipped {
			return pause{} // look again, past those that are held
		}
		p.due = now + l.o.cfg.Poll.Milliseconds()
	}
	return p
}

// depth is how many batches a lease may cover: as many as all that are due may
// have in turn within leaseWork, by what the store and the sink at its present
// pace take. So a quick sink saves round trips, and with a slow one, or with many
// partitions, none waits for another's backlog. Under at-most-once it is one,
// for each batch waits for a commit of its own anyway.
func (l *loop) depth(due, free int) int {
	if l.o.target.Namespace.Policy.Delivery == partition.AtMostOnce {
		return 1
	}
	due, together, writes := max(due, 1), max(l.o.caps.MaxBatches, 1), 1
	if mean := l.o.pace.get(); mean > 0 {
		rounds := (due + free - 1) / free
		turn := time.Duration(rounds)*mean + time.Duration(due*together)*storeWork
		writes = max(1, int(leaseWork/turn))
	}
	return min(writes*together, l.o.cfg.MaxLeaseBatches)
}

// claimed is what a round of claims brought.
type claimed struct {
	claims, leases, expired int
	lost                    int   // to other drainers, most likely
	err                     error // the store's, unless it refused just the partition
}

// claim claims the named partitions, a few at a time, and hands over what it
// gets. It stops when other drainers have won most: their list is the newer one.
// Stop does not interrupt it: a claim without anybody to take its answer is a lease
// lost until it lapses.
func (l *loop) claim(names []string, depth int) (got claimed) {
	for len(names) > 0 && got.err == nil && 2*got.lost <= got.claims {
		n := min(claimsAtOnce, len(names))
		l.claimFew(names[:n], depth, &got)
		names = names[n:]
	}
	l.o.metrics.expired.Add(float64(got.expired))
	return got
}

// claimFew is one round trip of claim.
func (l *loop) claimFew(names []string, depth int, got *claimed) {
	ctx, cancel := context.WithTimeout(l.o.settling, storeTimeout)
	defer cancel()
	requests := make([]partition.ClaimRequest, len(names))
	for i, name := range names {
		requests[i] = partition.ClaimRequest{Namespace: l.o.target.Namespace, Partition: name, MaxBatches: depth}
		l.held.take(name)
	}
	claims := l.o.store.Claim(ctx, requests, l.o.cfg.Lease)
	got.claims += len(claims)
	count := l.o.metrics.claims
	for _, c := range claims {
		got.expired += c.Expired
		if c.Lease != nil {
			got.leases++
			count.WithLabelValues(claimLeased).Inc()
			l.o.hand(l, c.Lease)
			continue
		}
		l.held.free(c.Partition)
		switch {
		case c.Err == nil:
			if c.Expired == 0 {
				got.lost++
			}
			count.WithLabelValues(claimIdle).Inc()
		case errors.Is(c.Err, partition.ErrUnavailable), errors.Is(c.Err, partition.ErrIncompatible):
			// What does not fit is the whole store, not this partition.
			got.err = c.Err
			count.WithLabelValues(claimUnavailable).Inc()
		case errors.Is(c.Err, partition.ErrUnknown):
			got.err = c.Err
			count.WithLabelValues(claimUnknown).Inc()
			l.unknown = append(l.unknown, c)
		default:
			count.WithLabelValues(claimBroken).Inc()
			l.o.refused(l, c.Partition, "claim refused", c.Err)
		}
	}
}

// meet learns from the share of a round's claims that others won.
func (l *loop) meet(lost float64) {
	l.rivalry += (lost - l.rivalry) / rivalryMemory
	if l.rivalry < rivalryFloor {
		l.rivalry = 0
	}
}

// share is what of the due partitions to claim: all of them in their order, or
// with rivals some at random, the fewer the more claims they win.
func (l *loop) share(names []string) []string {
	if l.rivalry == 0 {
		return names
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names[:max(1, int(float64(len(names))*(1-l.rivalry)))]
}

// after draws the conclusions of a round of claims.
func (l *loop) after(got claimed, total int) pause {
	l.offset = 0
	if l.unproved = got.err != nil; l.unproved {
		return l.failed(got.err)
	}
	l.recovered()
	l.meet(float64(got.lost) / float64(got.claims))
	if l.rivalry > 0 {
		// All begin at the oldest: spread out, as long as others are met.
		l.offset = rand.IntN(max(total, 1))
	}
	if got.leases > 0 || got.expired > 0 {
		l.fruitless = 0
		return pause{}
	}
	l.fruitless++
	return pause{wait: backoff(time.Millisecond, 100*time.Millisecond, l.fruitless, rand.Float64())}
}

// failed is the pause after a round that the store failed.
func (l *loop) failed(err error) pause {
	if l.failures++; l.failures == 1 {
		l.o.outage.Begin(zap.Error(err))
	}
	wait := storePauseMin + backoff(storePauseMin, storePauseMax-storePauseMin, l.failures, rand.Float64())
	return pause{wait: wait}
}

func (l *loop) recovered() {
	if l.failures > 0 {
		l.failures = 0
		l.o.outage.End()
	}
}

// forget gives back the claims that may have run unseen. Where that fails the
// lease lapses.
func (l *loop) forget() {
	if len(l.unknown) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(l.o.settling, storeTimeout)
	defer cancel()
	_ = l.o.store.ReleaseUnknown(ctx, l.unknown)
	l.unknown = nil
}
