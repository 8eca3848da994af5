package partition

import (
	"context"
	"math"
	"slices"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
)

// Bounds of one call of peek, which keep it below about 2 ms of Redis.
const (
	peekBytes   = 1 << 20
	peekEntries = 128
)

// positionNewest stands for the last position of a list.
const positionNewest = math.MaxInt32

// PeekRequest says which entries of a partition to read.
type PeekRequest struct {
	FromNewest bool // the newest entries; default: the oldest
	Limit      int  // how many at most, 1 to 128; a number outside is replaced by the nearest of these
}

// Peeked is what a Peek found.
type Peeked struct {
	Depth int64 // entries in the partition
	// Entries are consecutive, oldest first in either case: up to PeekRequest.Limit of them
	// and about 1 MiB. The Seq of all is 0 where the partition's hash is lost. A
	// malformed one has a zero Occurred and the stored bytes as Payload.
	Entries []Entry
}

// Peek reads entries of a partition and changes nothing: they stay, leased or not. Errors:
// ErrNoPartition where it has no entries, ErrTooManyReads where no read slot is free
// within 1s, and those of the store.
func (verbs) Peek(ctx context.Context, ns *Namespace, partition string,
	r PeekRequest) (all Peeked, err error) {
	if err := ns.store.space.Resolve(ctx, ns.home); err != nil {
		return Peeked{}, err
	}
	r.Limit = min(max(r.Limit, 1), peekEntries)
	all, err = ns.store.peek(ctx, ns.shardOf(partition), partition, r)
	if err == nil && all.Depth == 0 {
		err = ErrNoPartition
	}
	if r.FromNewest {
		slices.Reverse(all.Entries)
	}
	return all, err
}

// peek reads entries of a partition in one shard, in the order in which it finds them.
func (s *Store) peek(ctx context.Context, sh *shard, partition string, r PeekRequest) (p Peeked, err error) {
	back, at := 0, 0
	if r.FromNewest {
		back, at = 1, positionNewest
	}
	c := backend.NewCall(lua.Peek, sh.Breaker, []string{sh.list(partition), sh.meta(partition)}, back, at,
		r.Limit, peekBytes)
	err = s.ledgerReads.Do(ctx, func() error {
		s.backend.Run(ctx, s.backend.Background, []*backend.Call{c})
		return c.Err
	})
	if err != nil {
		return Peeked{}, err
	}
	p.Depth = c.Rest.Int()
	head, position := c.Rest.Int(), c.Rest.Int()
	for range c.More - 3 {
		raw := c.Rest.Bulk()
		e, err := ParseEntry(raw)
		if err != nil {
			e = Entry{Payload: raw}
		}
		if head > 0 {
			e.Seq = head + position
		}
		position += int64(1 - 2*back)
		p.Entries = append(p.Entries, e)
	}
	if c.Rest.Broken {
		return Peeked{}, c.Misread()
	}
	return p, nil
}
