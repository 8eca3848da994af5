package partition

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

	linger int64 // ms, as the script was told
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
	look := s.looks.Load() // before anything is sent
	p := s.produces.Get().(*produceRun)
	defer s.produces.Put(p)
	calls := p.calls(len(groups))
	for i, g := range groups {
		p.fill(calls[i], g)
	}
	if s.replicas > 0 {
		s.runDurably(ctx, s.backend.in, calls)
	} else {
		s.run(ctx, s.backend.in, calls)
	}
	for i, g := range groups {
		c := calls[i]
		if g.Err = c.err; g.Err == nil {
			g.Err = s.produced(g, c.numbers, look)
		}
		clear(c.args) // the entries are the caller's again
	}
	s.trouble.judge(groups)
}

// produceRun is the memory of one Produce, used again by later ones.
type produceRun struct{ made []*call }

func (p *produceRun) calls(n int) []*call {
	for len(p.made) < n {
		p.made = append(p.made, &call{})
	}
	return p.made[:n]
}

// entryArg is an encoded entry as an argument. A pointer to one fits into an
// interface as it is, where a slice would be copied to the heap.
type entryArg []byte

// MarshalBinary is how the client asks for the bytes.
func (e *entryArg) MarshalBinary() ([]byte, error) { return *e, nil }

func (p *produceRun) fill(c *call, g *Group) {
	ns, sh := g.Namespace, g.Namespace.shardOf(g.Partition)
	keep := int64(0)
	if g.IdempotencyKey == "" {
		c.begin(lua.Produce, sh.list(g.Partition), sh.ready, sh.meta(g.Partition), sh.ledger)
	} else {
		sum := sha256.Sum256([]byte(g.IdempotencyKey))
		keep = seenFor.Milliseconds()
		c.begin(lua.Produce, sh.list(g.Partition), sh.ready, sh.meta(g.Partition), sh.ledger,
			sh.seen(g.Partition, hex.EncodeToString(sum[:16])))
	}
	g.linger = ns.linger()
	c.args = append(c.args, g.Partition, ns.Policy.Capacity, ns.full, g.linger, ns.most, safetyTTL.Milliseconds(), keep)
	for i := range g.Entries {
		c.args = append(c.args, (*entryArg)(&g.Entries[i]))
	}
}

// produced reads an answer; look is that under which the call was sent.
func (s *Store) produced(g *Group, numbers []int64, look uint64) error {
	if numbers[0] == 0 {
		return ErrTooManyPartitions
	} else if len(numbers) < 5 {
		return &storeError{ErrBroken, fmt.Errorf("%s: %w", lua.Produce.Name, errReply)}
	}
	now := numbers[1]
	g.Repeated = numbers[0] == 2
	g.Accepted, g.Evicted, g.Depth = int(numbers[2]), int(numbers[3]), int(numbers[4])

	sh := g.Namespace.shardOf(g.Partition)
	if !g.Repeated {
		sh.witness.stored(look, g.Accepted)
		if g.Evicted > 0 {
			s.metrics.evicted.WithLabelValues(g.Namespace.Name).Add(float64(g.Evicted))
		}
	}

	before, full := g.Depth+g.Evicted-g.Accepted, g.Namespace.full
	alarm := &sh.alarm
	switch {
	case before < full && g.Depth >= full:
		alarm.ring(now)
	case before == 0:
		alarm.ring(now + g.linger)
	}
	return nil
}
