package partition

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/spillway-io/spillway/lua"
)

const (
	// safetyTTL is not freshness: it frees what a deployment that went away
	// for good left behind. It is renewed at every claim.
	safetyTTL = 24 * time.Hour
	// seenFor is how long the result of an idempotent produce is kept, longer
	// than any client retries; the window NATS JetStream has by default.
	seenFor = 2 * time.Minute
)

// Group is one script call of a Produce: entries of one partition, in order.
// The caller fills the upper part and finds the outcome in the lower.
type Group struct {
	Namespace *Namespace
	Partition string
	Entries   [][]byte // encoded by AppendEntry; 1 or more
	// IdempotencyKey, when set, makes a repeat of the call within two minutes
	// return the first one's result instead of storing anything.
	IdempotencyKey string

	Accepted int   // entries appended
	Evicted  int   // entries that the partition lost from its old end
	Depth    int   // entries in the partition afterwards
	Repeated bool  // the result is that of an earlier call with the same key
	Err      error // nil, ErrTooManyPartitions, or Is ErrUnavailable, ErrUnknown or ErrBroken
}

// Produce runs all groups in one round trip, those of one partition in the order
// given. Each succeeds or fails by itself. The entries are not kept after it
// returns. Groups of one partition in one call are of requests in flight at the
// same time: should Redis forget its scripts at that very moment, they may run
// in another order.
func (s *Store) Produce(ctx context.Context, groups []*Group) {
	if err := s.fit(ctx); err != nil {
		for _, g := range groups {
			g.Err = err
			s.metrics.failed(err)
		}
		return
	}
	calls := make([]*call, len(groups))
	for i, g := range groups {
		calls[i] = produceCall(ctx, g)
	}
	s.run(ctx, s.backend.in, calls)
	for i, g := range groups {
		if g.Err = calls[i].err; g.Err == nil {
			s.produced(g, calls[i].reply)
		}
	}
}

func produceCall(ctx context.Context, g *Group) *call {
	ns, sh := g.Namespace, g.Namespace.shardOf(g.Partition)
	keys := []string{sh.list(g.Partition), sh.ready, sh.meta(g.Partition), sh.ledger}
	keep := int64(0)
	if g.IdempotencyKey != "" {
		sum := sha256.Sum256([]byte(g.IdempotencyKey))
		keys = append(keys, sh.seen(g.Partition, hex.EncodeToString(sum[:16])))
		keep = seenFor.Milliseconds()
	}
	argv := make([]any, 0, 7+len(g.Entries))
	argv = append(argv, g.Partition, ns.Policy.Capacity, ns.full, ns.Policy.Linger.Milliseconds(),
		ns.most, safetyTTL.Milliseconds(), keep)
	for _, e := range g.Entries {
		argv = append(argv, e)
	}
	return newCall(ctx, lua.Produce, keys, argv...)
}

func (s *Store) produced(g *Group, reply []any) {
	now := whole(reply[1])
	switch whole(reply[0]) {
	case 0:
		g.Err = ErrTooManyPartitions
		return
	case 2:
		g.Repeated = true
	}
	g.Accepted, g.Evicted, g.Depth = int(whole(reply[2])), int(whole(reply[3])), int(whole(reply[4]))

	before, full := g.Depth+g.Evicted-g.Accepted, g.Namespace.full
	alarm := &g.Namespace.shardOf(g.Partition).alarm
	switch {
	case before < full && g.Depth >= full:
		alarm.ring(now)
	case before == 0:
		alarm.ring(now + g.Namespace.Policy.Linger.Milliseconds())
	}
}
