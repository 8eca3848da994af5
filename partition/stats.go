package partition

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
)

// Stats describes one partition.
type Stats struct {
	Partition string        `json:"partition"`
	Depth     int           `json:"depth"`     // entries in it
	Capacity  int           `json:"capacity"`  // Policy.Capacity
	Leased    bool          `json:"leased"`    // a drainer holds a lease
	OldestAge time.Duration `json:"-"`         // age of the oldest entry, in whole ms; 0 where its time is in the future
	Due       int64         `json:"due_at_ms"` // when it is next looked at, in ms of the store's clock; 0 = only once it is repaired
	Attempt   int           `json:"attempt"`   // how often its oldest entries were presented to the sink; 0 = never

	// In entries, since the partition last was empty.
	Accepted int64 `json:"accepted"`
	Evicted  int64 `json:"evicted"`
	Expired  int64 `json:"expired"`
}

// maxCallStats is how many partitions one call of Describe covers: about 1 ms of Redis. It
// covers fewer where their oldest entries are large.
const maxCallStats = 200

// Stats reads one partition. Errors: ErrNoPartition where it has no entries,
// ErrTooManyReads where no read slot is free within 500ms, and those of the store.
func (verbs) Stats(ctx context.Context, ns *Namespace, partition string) (stats Stats, err error) {
	s := ns.store
	if err := s.space.Resolve(ctx, ns.home); err != nil {
		return Stats{}, err
	}
	err = s.stats.Do(ctx, func() error {
		stats, err = s.statsOf(ctx, ns, partition)
		return err
	})
	return stats, err
}

func (s *Store) statsOf(ctx context.Context, ns *Namespace, partition string) (Stats, error) {
	list, err := s.describe(ctx, ns, ns.shardOf(partition), []string{partition})
	if err != nil {
		return Stats{}, err
	}
	if len(list) == 0 {
		return Stats{}, ErrNoPartition
	}
	return list[0], nil
}

// A Page is a place in the list of a namespace's partitions; the zero Page is the first.
type Page struct {
	shard     int
	due, name string // the last partition of the page before
}

// Partitions describes a page of the namespace's active partitions: up to limit of them, at
// most 200. They come shard by shard, those that are looked at next first. next is where the
// following page begins; the zero Page after the last. A partition whose due time stays is
// in exactly one page. One that is claimed or settled meanwhile may be in two or in none. Errors:
// ErrTooManyReads where no read slot is free within 1s, and those of the store.
func (verbs) Partitions(ctx context.Context, ns *Namespace, from Page,
	limit int) (list []Stats, next Page, err error) {
	s := ns.store
	if err := s.space.Resolve(ctx, ns.home); err != nil {
		return nil, Page{}, err
	}
	sh := ns.shard(from.shard)
	if sh == nil {
		return nil, Page{}, nil
	}
	err = s.ledgerReads.Do(ctx, func() error {
		var names []string
		if names, next, err = s.active(ctx, ns, from, min(max(limit, 1), maxCallStats)); err == nil {
			list, err = s.describe(ctx, ns, sh, names)
		}
		return err
	})
	return list, next, err
}

// active lists a page of active partitions, all of one shard.
func (s *Store) active(ctx context.Context, ns *Namespace, from Page,
	limit int) (names []string, next Page, err error) {
	sh := ns.shard(from.shard)
	if from.due == "" {
		from.due = "-inf"
	}
	c := backend.NewCall(lua.Page, sh.Breaker, []string{sh.ready}, from.due, from.name, limit)
	if s.backend.Run(ctx, s.backend.Background, []*backend.Call{c}); c.Err != nil {
		return nil, Page{}, c.Err
	}
	next = Page{shard: from.shard, due: string(c.Rest.Bulk())}
	for range c.More - 1 {
		next.name = string(c.Rest.Bulk())
		names = append(names, next.name)
	}
	if c.Rest.Broken {
		return nil, Page{}, c.Misread()
	}
	if len(names) < limit {
		if next = (Page{shard: from.shard + 1}); ns.shard(next.shard) == nil {
			next = Page{}
		}
	}
	return names, next, nil
}

// describe leaves out partitions without entries, and those with a foreign value unless they
// are asked for alone.
func (s *Store) describe(ctx context.Context, ns *Namespace, sh *shard,
	names []string) (list []Stats, err error) {
	alone := len(names) == 1
	for len(names) > 0 {
		var some []Stats
		if some, names, err = s.describeSome(ctx, ns, sh, names, alone); err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	return list, nil
}

// describeSome is one call; left are the names that it did not come to. Where alone is true, a
// foreign value is an error.
func (s *Store) describeSome(ctx context.Context, ns *Namespace, sh *shard, names []string,
	alone bool) (list []Stats, left []string, err error) {
	packs := backend.RunPacks(ctx, []backend.Pack[string]{{Call: &backend.Call{}, Items: names}},
		func(c *backend.Call, names []string) {
			c.Begin(lua.Stats, sh.Breaker, 1+2*len(names))
			c.Args = append(c.Args, sh.ready)
			for _, name := range names {
				c.Args = append(c.Args, sh.list(name), sh.meta(name))
			}
			for _, name := range names {
				c.Args = append(c.Args, name)
			}
		}, func(calls []*backend.Call) { s.backend.Run(ctx, s.backend.Background, calls) }, nil)
	for _, pack := range packs {
		if pack.Err != nil {
			return nil, nil, pack.Err
		}
		for _, name := range pack.Items {
			if err := pack.Rejected(); err != nil {
				if alone {
					return nil, nil, err
				}
				continue
			}
			switch pack.Rest.Int() {
			case 0:
				continue
			case 2:
				left = append(left, name)
				continue
			}
			one := Stats{
				Partition: name,
				Depth:     int(pack.Rest.Int()),
				Capacity:  ns.Policy.Capacity,
				Leased:    pack.Rest.Int() == 1,
			}
			one.OldestAge = time.Duration(pack.Rest.Int()) * time.Millisecond
			one.Accepted = pack.Rest.Int()
			one.Evicted = pack.Rest.Int()
			one.Expired = pack.Rest.Int()
			one.Due, one.Attempt = pack.Rest.Int(), int(pack.Rest.Int())
			list = append(list, one)
		}
		if pack.Rest.Broken {
			return nil, nil, pack.Misread()
		}
	}
	return list, left, nil
}

// Describe reads several partitions, by calls of up to 200 of a shard. Those without
// entries are left out, and the order is not that of the names. Errors: ErrTooManyReads
// where no read slot is free within 1s, and those of the store.
func (verbs) Describe(ctx context.Context, ns *Namespace,
	names []string) (list []Stats, err error) {
	s := ns.store
	if err := s.space.Resolve(ctx, ns.home); err != nil {
		return nil, err
	}
	byShard := map[*shard][]string{}
	for _, name := range names {
		sh := ns.shardOf(name)
		byShard[sh] = append(byShard[sh], name)
	}
	err = s.ledgerReads.Do(ctx, func() error {
		for sh, names := range byShard {
			for len(names) > 0 {
				n := min(len(names), maxCallStats)
				some, err := s.describe(ctx, ns, sh, names[:n])
				if err != nil {
					return err
				}
				list = append(list, some...)
				names = names[n:]
			}
		}
		return nil
	})
	return list, err
}

// Stats, Overview and Audit are limited, so that no number of readers slows down
// produce and drain. Overview and Audit have a limit of their own: a flood of Stats on
// the data port must not block operators.
const (
	statsAtOnce    = 4
	statsMaxWait   = 500 * time.Millisecond
	ledgersAtOnce  = 3 // two of operators, who are one tenant
	ledgersMaxWait = time.Second
)

// ErrTooManyReads is ErrUnavailable because the maximum number of reads is under way.
// It says nothing about the store.
var ErrTooManyReads = backend.ErrTooManyReads
