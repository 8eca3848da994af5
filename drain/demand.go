package drain

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-io/spillway/partition"
)

const (
	// leaseWork is about how long a newly due partition may wait because those before
	// it are leased several batches at a time.
	leaseWork = 250 * time.Millisecond
	// storeWork is about what a batch of 128 takes of Redis's time, claim and commit:
	// 1.03 M entries/s were measured for the two.
	storeWork = 150 * time.Microsecond
	// groupDepth is how many times deeper a lease may be where the sink coalesces: with
	// the default that is 16 batches, as much as one claim brings.
	groupDepth = 2
	// contentionRounds is over about how many rounds contention is a mean. Below
	// minContention there is none. A process that starts expects some, for others
	// may start with it.
	contentionRounds = 4
	minContention    = 0.02
	firstContention  = 0.1
)

// A leaseDepth decides how many batches a lease may cover: as many as let all partitions
// that are due have their turn within leaseWork, by the time that the store and the
// sink take. So a quick sink saves round trips, and with a slow one, or with many
// partitions, none waits for another's backlog. Under at-most-once it is one batch,
// for each waits for a commit of its own anyway. Where the sink coalesces, it is as
// many as fill a group, so that also few partitions fill one.
type leaseDepth struct {
	together   int // batches that the sink takes in one Write, at most
	maxBatches int // of a lease
	single     bool
	batch      int // entries of a batch, at most
	group      int // entries of a coalesced Write; 0 = not coalesced
}

func newLeaseDepth(ns *partition.Namespace, together, maxBatches int) leaseDepth {
	return leaseDepth{
		together:   max(together, 1),
		maxBatches: maxBatches,
		single:     ns.Policy.Delivery == partition.AtMostOnce,
		batch:      ns.Policy.Batch,
	}
}

// of is the depth while so many partitions are due and so many workers free, and a
// Write takes writeTime; 0 = unknown.
func (d leaseDepth) of(due, free int, writeTime time.Duration) int {
	if d.single {
		return 1
	}
	due, writes := max(due, 1), 1
	if d.group > 0 {
		return min(1+(d.group-1)/(due*d.batch), groupDepth*d.maxBatches)
	}
	if writeTime > 0 {
		rounds := (due + free - 1) / free
		turn := time.Duration(rounds)*writeTime + time.Duration(due*d.together)*storeWork
		writes = max(1, int(leaseWork/turn))
	}
	return min(writes*d.together, d.maxBatches)
}

// contention is the share of recent claims that other drainers won, 0 to 1.
type contention float64

func (c contention) any() bool { return c > 0 }

// learn learns from the share of a round's claims that others won.
func (c *contention) learn(lost float64) {
	*c += (contention(lost) - *c) / contentionRounds
	if *c < minContention {
		*c = 0
	}
}

// sample is what of the due partitions to claim: all of them in their order, or
// while others compete some at random, the fewer the more claims they win.
func (c contention) sample(names []string) []string {
	if !c.any() {
		return names
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names[:max(1, int(float64(len(names))*float64(1-c)))]
}
