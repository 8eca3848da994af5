package drain

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
)

const (
	// lookAhead is how many partitions one Due call lists where more are due than can
	// be claimed at once, and lookAheadFor how long the list may be used.
	lookAhead    = 512
	lookAheadFor = 100 * time.Millisecond
	// helperPolls is how many times less often the third process for a shard looks at it, and
	// each after it, while nothing is due.
	helperPolls = 10
	// storeTimeout bounds one call to the store, beyond the store's own limits.
	storeTimeout = 5 * time.Second
	// minStorePause and maxStorePause bound the wait while the store fails.
	minStorePause, maxStorePause = 50 * time.Millisecond, 2 * time.Second
)

// What a claimer needs of the store.
type claimStore interface {
	Due(ctx context.Context, ns *partition.Namespace, shard, offset,
		limit int) ([]partition.DuePartition, int, error)
	WaitDue(ctx context.Context, ns *partition.Namespace, shard int, due int64, limit time.Duration)
	Claim(ctx context.Context, requests []partition.ClaimRequest, lease time.Duration) []partition.ClaimResult
	ReleaseUnknown(ctx context.Context, claims []partition.ClaimResult) error
	NowOf(ns *partition.Namespace) (ms int64, ok bool)
}

// What a claimer needs of the sink guard.
type claimSink interface {
	Wait(ctx context.Context) bool
	Pass(names []string) []string
	Unused(probes int)
	Tripped() bool
	WriteTime() time.Duration
}

// A claimer claims what is due in one shard of one namespace. It claims no more
// than workers can start at once, so that no lease ages in a queue.
type claimer struct {
	store      claimStore
	sink       claimSink
	ns         *partition.Namespace
	shard      int
	lease      time.Duration // how long a lease lasts
	poll       time.Duration
	depth      leaseDepth
	slots      *guard.Slots
	calling    context.Context // ends the calls to the store
	hand       func(*partition.Lease)
	inFlight   *inFlight
	outage     *partition.OutageLog
	rejections *guard.RejectionLog
	pausing    *deliveryPause
	metrics    *claimMetrics

	contention   contention
	offset       int                     // where the next Due call starts; 0 unless other drainers are in the way
	skipped      int                     // partitions in flight that the last Due call listed
	ahead        []string                // due partitions that the last Due call listed and no round has claimed yet
	due          int                     // how many were due then
	listed       time.Time               // when that was
	emptyRounds  int                     // rounds in a row whose claims brought nothing
	failedRounds int                     // rounds in a row that the store failed
	unverified   bool                    // a claim failed, and none has succeeded since
	askPaused    string                  // the partition to claim, alone, while the namespace is paused; empty: it is not
	unknown      []partition.ClaimResult // claims that may have run
}

// A pause is what a claimer does between two rounds: it sleeps until the store's
// clock reads due, or until a lease ends. released is the count of ended leases at
// the start of the round, so an end during the round is not missed.
type pause struct {
	due      int64
	released uint64
	wait     time.Duration // or just wait
}

func (c *claimer) run(ctx context.Context) {
	for c.sink.Wait(ctx) && c.slots.Take(ctx) {
		p := c.round(ctx)
		switch {
		case p.due > 0:
			ctx, cancel := context.WithCancel(ctx)
			if c.inFlight.wakeOnRelease(p.released, cancel) {
				c.store.WaitDue(ctx, c.ns, c.shard, p.due, c.pollNow())
			}
			cancel()
		case p.wait > 0:
			guard.Sleep(ctx, p.wait)
		}
	}
	c.releaseUnknown()
}

// round lists what is due, claims it and hands it to the workers. The caller took
// one slot, which round uses or returns.
func (c *claimer) round(ctx context.Context) pause {
	slots := 1
	defer func() { c.slots.Put(slots) }()

	released := c.inFlight.releasedSoFar()
	free := slots + c.slots.Available()
	if c.askPaused != "" {
		return c.take([]string{c.askPaused}, c.due, free, &slots)
	}
	if names := c.listedAhead(); len(names) > 0 {
		return c.take(names, c.due, free, &slots)
	}
	limit := min(free, maxClaims) + c.skipped
	switch {
	case c.sink.Tripped():
		limit = maxSkipped // the partition worth a probe may be behind those that fail
	case c.due > limit && !c.contention.any():
		limit = lookAhead + c.skipped
	}
	list, total, err := c.list(ctx, limit)
	switch {
	case ctx.Err() != nil:
		return pause{}
	case err != nil:
		return c.storeFailed(err)
	}
	c.releaseUnknown()
	now, known := c.store.NowOf(c.ns)
	if !known {
		return c.storeFailed(partition.ErrUnavailable)
	}
	c.due, c.listed = total, time.Now()
	names, next := c.pick(list, now)
	if len(names) == 0 {
		return c.nothing(pause{due: next, released: released}, now, len(list) == limit)
	}
	return c.take(names, total, free, &slots)
}

// listedAhead are partitions to claim without another Due call: those that the last
// one listed beyond what could be claimed. It is for a backlog that no other drainer
// works on and a sink that answers. There the Due calls would be a third of the round
// trips.
func (c *claimer) listedAhead() []string {
	names := c.ahead
	c.ahead = nil
	if len(names) == 0 || c.contention.any() || len(c.unknown) > 0 || c.sink.Tripped() ||
		time.Since(c.listed) > lookAheadFor {
		return nil
	}
	return slices.DeleteFunc(names, c.inFlight.has)
}

func (c *claimer) list(ctx context.Context, limit int) ([]partition.DuePartition, int, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return c.store.Due(ctx, c.ns, c.shard, c.offset, limit)
}

// pick returns the partitions to claim, and when the first of the others comes
// due: 0 when the list does not say.
func (c *claimer) pick(list []partition.DuePartition, now int64) (names []string, next int64) {
	c.skipped = 0
	for _, p := range list {
		switch {
		case p.Due > now:
			if p.Held {
				c.metrics.heldBack.Inc()
			}
			return names, p.Due
		case c.inFlight.has(p.Partition):
			c.skipped = min(c.skipped+1, maxSkipped)
		default:
			names = append(names, p.Partition)
		}
	}
	return names, 0
}

// nothing is the pause after a Due call that listed nothing to claim; cut: the list
// is as long as it may be.
func (c *claimer) nothing(p pause, now int64, cut bool) pause {
	if c.offset > 0 {
		// The offset hid what was due, or it is gone.
		c.offset = 0
		return pause{}
	}
	if !c.unverified {
		c.storeServes()
	}
	if p.due == 0 {
		if cut && c.skipped < maxSkipped {
			return pause{} // list again, past those in flight
		}
		p.due = now + c.pollNow().Milliseconds()
	}
	return p
}

// pollNow is how often the shard is looked at while nothing is due: less often where two other
// processes do.
func (c *claimer) pollNow() time.Duration {
	if c.ns.Home().Rank(c.shard) < 2 {
		return c.poll
	}
	return min(helperPolls*c.poll, max(c.poll, c.ns.Policy.MaxAge/8))
}

// storeFailed is the pause after a round that the store failed.
func (c *claimer) storeFailed(err error) pause {
	if c.failedRounds++; c.failedRounds == 1 {
		c.outage.Begin(zap.Error(err))
	}
	wait := minStorePause + guard.Backoff(minStorePause, maxStorePause-minStorePause, c.failedRounds,
		rand.Float64())
	return pause{wait: wait}
}

func (c *claimer) storeServes() {
	if c.failedRounds > 0 {
		c.failedRounds = 0
		c.outage.End()
	}
}

// rejected leaves a partition alone that the store rejects, for it would come first
// in every round.
func (c *claimer) rejected(partition, what string, err error) {
	c.inFlight.quarantine(partition)
	c.rejections.Add(what, err, zap.Int("shard", c.shard), zap.String("partition", partition))
}

// ended is told of the end of every lease that was handed to a worker. rejection is
// the store's, when it did not settle the partition at all.
func (c *claimer) ended(partition string, rejection error) {
	c.inFlight.remove(partition)
	if rejection != nil {
		// The lease lapses and the same entries come again, to be rejected again: the
		// sink should not see them at that pace.
		c.rejected(partition, "settlement rejected", rejection)
	}
}
