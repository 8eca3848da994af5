package partition

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
)

// IdempotencyWindow is how long the result of a client's idempotent produce is kept. It is
// longer than clients retry, and the default window of NATS JetStream.
const IdempotencyWindow = 2 * time.Minute

// Bounds of one script call of produce, which together keep it below about 2 ms
// of Redis (measured: bench/README.md, What an entry costs Redis). A group larger than
// that is a call of its own.
const (
	maxCallPartitions = 64
	maxCallEntries    = 1024
	maxCallBytes      = 256 << 10
)

// Group is the entries of one Produce for one partition, and their result. Request and
// result are one struct for speed: a flush reuses its groups, and allocates no results.
type Group struct {
	Namespace *Namespace // of the Store that runs the group
	Partition string     // a name that passes ValidPartition
	Entries   [][]byte   // 1 or more, in order, each encoded by AppendEntry
	// IdempotencyKey makes a repeat of the group within 2m return the first result
	// and store nothing. Default "": none.
	IdempotencyKey string

	// The result. The counts are valid where Err is nil.
	Accepted int   // entries appended
	Evicted  int   // oldest entries that the partition dropped
	Depth    int   // entries in the partition afterwards
	Repeated bool  // the result is that of an earlier group with the same key
	Err      error // nil, ErrTooManyPartitions, ErrTooManyKeys, or Is ErrUnavailable, ErrUnknown or ErrBroken

	at *shard // where it is stored
}

// errNoEntries is the error of a group without entries, which is a bug of the caller.
var errNoEntries = backend.Wrap(ErrBroken, errors.New("a group without entries"))

// Produce runs all groups in one round trip, with one script call for up to 64 groups
// of a shard. Each group succeeds or fails on its own. Groups of one partition run in
// the order given. Produce keeps no reference to the entries after it returns.
func (s *Store) Produce(ctx context.Context, groups []*Group) {
	s.produce(ctx, groups, IdempotencyWindow)
}

// produce is Produce; window is how long the results under idempotency keys are kept.
func (s *Store) produce(ctx context.Context, groups []*Group, window time.Duration) {
	if err := s.mayRun(ctx); err != nil {
		for _, g := range groups {
			g.Err = err
			s.backend.CountError(err)
		}
		return
	}
	round := s.space.Round() // before anything is sent
	p := s.produces.Get().(*produceRun)
	p.window = window
	packs := backend.RunPacks(ctx, p.plan(groups), p.fill, func(calls []*backend.Call) {
		s.backend.RunDurably(ctx, s.backend.In, calls)
	}, keepsOrder)
	for _, pack := range packs {
		s.produced(pack, round)
	}
	p.forget()
	s.produces.Put(p)
}

// keepsOrder reports whether a group may still run: no later one of its partition was answered.
func keepsOrder(g *Group, answered []*Group) bool {
	return !slices.ContainsFunc(answered, func(later *Group) bool {
		return later.Partition == g.Partition && later.Namespace == g.Namespace
	})
}

// produceRun is the memory of one Produce, which later ones reuse.
type produceRun struct {
	window time.Duration // how long the results under idempotency keys are kept
	packs  []backend.Pack[*Group]
	calls  []plannedCall  // beside packs
	seen   map[string]int // partition → its latest call, where a shard has several
	keys   []byte         // keys of all calls, back to back
	args   []bytesArg     // the same as arguments
}

// plannedCall is a call and how full it is.
type plannedCall struct {
	call    *backend.Call
	groups  []*Group
	sh      *shard
	entries int
	bytes   int
}

// plan assigns the groups to calls, in order: those of a shard to one call until it
// is full, then to the next.
func (p *produceRun) plan(groups []*Group) []backend.Pack[*Group] {
	p.packs, p.calls = p.packs[:0], p.calls[:0]
	several := false
	for _, g := range groups {
		if len(g.Entries) == 0 {
			g.Err = errNoEntries
			continue
		}
		bytes := 0
		for _, e := range g.Entries {
			bytes += len(e)
		}
		g.at = g.Namespace.shardOf(g.Partition)
		c, another := p.room(g.at, len(g.Entries), bytes)
		several = several || another
		c.groups = append(c.groups, g)
		c.entries += len(g.Entries)
		c.bytes += bytes
	}
	for i := range p.calls {
		p.packs = append(p.packs, backend.Pack[*Group]{Call: p.calls[i].call, Items: p.calls[i].groups})
	}
	if several {
		p.keepOrder()
	}
	return p.packs
}

// room returns the call that takes a group of a shard. another is true where the shard
// has an earlier call.
func (p *produceRun) room(sh *shard, entries, bytes int) (c *plannedCall, another bool) {
	for i := len(p.calls) - 1; i >= 0; i-- {
		if c = &p.calls[i]; c.sh != sh {
			continue
		}
		if len(c.groups) < maxCallPartitions && c.entries+entries <= maxCallEntries &&
			c.bytes+bytes <= maxCallBytes {
			return c, false
		}
		another = true
		break
	}
	n := len(p.calls)
	p.calls = slices.Grow(p.calls, 1)[:n+1] // what earlier calls made stays
	c = &p.calls[n]
	if c.call == nil {
		c.call = &backend.Call{}
	}
	c.call.Text = false
	*c = plannedCall{call: c.call, groups: c.groups[:0], sh: sh}
	return c, another
}

// keepOrder keeps the groups of a partition in order where they are in several calls. The earlier
// call carries the text of its script. So it never meets NOSCRIPT, and is never sent again after
// the later call.
func (p *produceRun) keepOrder() {
	if p.seen == nil {
		p.seen = make(map[string]int)
	}
	for i := range p.calls {
		for _, g := range p.calls[i].groups {
			if before, ok := p.seen[g.Partition]; ok && before != i {
				p.calls[before].call.Text = true
			}
			p.seen[g.Partition] = i
		}
	}
	clear(p.seen)
}

// forget drops all references to the caller's groups and entries.
func (p *produceRun) forget() {
	for i := range p.calls {
		clear(p.calls[i].call.Args)
		clear(p.calls[i].groups)
	}
	clear(p.packs)
	p.keys, p.args = p.keys[:0], p.args[:0]
}

// bytesArg is an argument of bytes. Its pointer fits into an interface without an
// allocation; a slice would need one.
type bytesArg []byte

// MarshalBinary returns the bytes to the client.
func (b *bytesArg) MarshalBinary() ([]byte, error) { return *b, nil }

// key adds a key to the call's arguments.
func (p *produceRun) key(c *backend.Call, parts ...string) {
	start := len(p.keys)
	for _, part := range parts {
		p.keys = append(p.keys, part...)
	}
	p.args = append(p.args, p.keys[start:len(p.keys):len(p.keys)])
	c.Args = append(c.Args, &p.args[len(p.args)-1])
}

// fill writes the arguments of a call, which is all of one shard.
func (p *produceRun) fill(c *backend.Call, groups []*Group) {
	ns := groups[0].Namespace
	sh := groups[0].at
	shards := ns.Shards()
	keys := 2 + 2*len(groups)
	largest := 0
	maxKeys := each(ns.Policy.MaxKeys, shards)
	for _, g := range groups {
		if g.IdempotencyKey != "" {
			keys++
		}
		if strings.ContainsAny(g.IdempotencyKey, "\x00\n") {
			// One of ours, of a fan-out or a replay, which no client can send: as many as there are
			// entries, and without it these would be stored twice, or wait for keys of clients.
			maxKeys = math.MaxInt32
		}
		for _, e := range g.Entries {
			largest = max(largest, len(e))
		}
	}
	c.Begin(lua.Produce, sh.Breaker, keys)
	c.Args = append(c.Args, sh.ready, sh.Ledger)
	for _, g := range groups {
		p.key(c, sh.Prefix, listInfix, g.Partition)
		p.key(c, sh.Prefix, metaInfix, g.Partition)
		if g.IdempotencyKey != "" {
			p.key(c, sh.resultOf(g))
		}
	}
	c.Tag = ns.linger()
	c.Args = append(c.Args, ns.Policy.Capacity, ns.full, c.Tag, each(ns.Policy.MaxPartitions, shards),
		p.window.Milliseconds(),
		maxKeys, largest,
		len(sh.Prefix)+len(listInfix)+1)
	for _, g := range groups {
		n := len(g.Entries)
		if g.IdempotencyKey != "" {
			n = -n
		}
		c.Args = append(c.Args, n)
		for i := range g.Entries {
			c.Args = append(c.Args, (*bytesArg)(&g.Entries[i]))
		}
	}
}

// resultOf is the key of the result of a group.
func (sh *shard) resultOf(g *Group) string {
	sum := sha256.Sum256([]byte(g.IdempotencyKey))
	return sh.produceResult(g.Partition, hex.EncodeToString(sum[:16]))
}

// each is what one of some shards may have of a bound over all: a script sees its shard only.
func each(all, shards int) int { return (all + shards - 1) / shards }

// produced reads the answers of a call. round is the rollback round before it was sent.
func (s *Store) produced(pack backend.Pack[*Group], round uint64) {
	if pack.Err != nil {
		for _, g := range pack.Items {
			g.Err = pack.Err
		}
		return
	}
	for _, g := range pack.Items {
		g.Err = s.answered(pack.Call, g, round)
		if g.Err != nil && !errors.Is(g.Err, ErrTooManyPartitions) && !errors.Is(g.Err, ErrTooManyKeys) {
			s.backend.CountError(g.Err)
		}
	}
}

// answered reads the answer of one group.
func (s *Store) answered(c *backend.Call, g *Group, round uint64) error {
	if err := c.Rejected(); err != nil {
		return err
	}
	code := c.Rest.Int()
	if code == 0 && !c.Rest.Broken {
		return ErrTooManyPartitions
	} else if code == 4 {
		return ErrTooManyKeys
	}
	accepted := c.Rest.Int()
	evicted := c.Rest.Int()
	depth := c.Rest.Int()
	var sample []byte // the head of an evicted entry
	if code == 3 {
		sample = c.Rest.Bulk()
	}
	if c.Rest.Broken {
		return c.Misread()
	}
	g.Repeated = code == 2
	g.Accepted = int(accepted)
	g.Evicted = int(evicted)
	g.Depth = int(depth)

	sh := g.at
	if !g.Repeated {
		sh.Stored(round, g.Accepted)
		if g.Evicted > 0 {
			s.metrics.evicted.WithLabelValues(g.Namespace.Name).Add(float64(g.Evicted))
			g.recordEvicted(c.Now, sample)
		}
	}

	before, full := g.Depth+g.Evicted-g.Accepted, g.Namespace.full
	alarm := &sh.alarm
	switch {
	case before < full && g.Depth >= full:
		alarm.ring(c.Now)
	case before == 0:
		alarm.ring(c.Now + c.Tag)
	}
	return c.Unconfirmed
}
