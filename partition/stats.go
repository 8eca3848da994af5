package partition

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/lua"
)

// Stats describes one partition.
type Stats struct {
	Partition string
	Depth     int           // entries in it
	Capacity  int           // Policy.Capacity
	Leased    bool          // a drainer holds a lease
	OldestAge time.Duration // age of the oldest entry, in whole ms; 0 where its time is in the future
	Due       int64         // when it is next looked at, in ms of the store's clock; 0 = only once it is repaired
	Attempt   int           // how often its oldest entries were presented to the sink; 0 = never

	// In entries, since the partition last was empty.
	Accepted, Evicted, Expired int64
}

// maxCallStats is how many partitions one call of Describe covers: about 1 ms of Redis.
const maxCallStats = 200

// Stats reads one partition. Errors: ErrNoPartition where it has no entries,
// ErrTooManyReads where no read slot is free within 50ms, and those of the store.
func (s *Store) Stats(ctx context.Context, ns *Namespace, partition string) (stats Stats, err error) {
	err = s.stats.do(ctx, func() error {
		stats, err = s.statsOf(ctx, ns, partition)
		return err
	})
	return stats, err
}

func (s *Store) statsOf(ctx context.Context, ns *Namespace, partition string) (Stats, error) {
	list, err := s.describe(ctx, ns, ns.shardOf(partition), []string{partition})
	if err == nil && len(list) == 0 {
		err = ErrNoPartition
	}
	if err != nil {
		return Stats{}, err
	}
	return list[0], nil
}

// A Page is a place in the list of a namespace's partitions; the zero Page is the first.
type Page struct {
	shard int
	rank  int64
}

// Partitions describes a page of the namespace's active partitions, up to limit of them, those
// that are looked at next first. next is where the following page begins; the
// zero Page after the last. While the list changes, a page may repeat a
// partition or miss one. Errors: ErrTooManyReads where no read slot is free within 1s, and
// those of the store.
func (s *Store) Partitions(ctx context.Context, ns *Namespace, from Page, limit int) (list []Stats, next Page, err error) {
	err = s.ledgerReads.do(ctx, func() error {
		list, next, err = s.partitions(ctx, ns, from, min(limit, maxCallStats))
		return err
	})
	return list, next, err
}

func (s *Store) partitions(ctx context.Context, ns *Namespace, from Page, limit int) ([]Stats, Page, error) {
	if from.shard >= len(ns.shards) {
		return nil, Page{}, nil
	}
	sh := &ns.shards[from.shard]
	names, err := s.backend.background.ZRange(ctx, sh.ready, from.rank, from.rank+int64(limit)-1).Result()
	if err != nil {
		return nil, Page{}, classify(err)
	}
	next := Page{from.shard, from.rank + int64(len(names))}
	if len(names) < limit {
		if next = (Page{from.shard + 1, 0}); next.shard == len(ns.shards) {
			next = Page{}
		}
	}
	list, err := s.describe(ctx, ns, sh, names)
	return list, next, err
}

// describe leaves out partitions without entries, and those with a foreign value unless they are asked for alone.
func (s *Store) describe(ctx context.Context, ns *Namespace, sh *shard, names []string) (list []Stats, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	jobs := runJobs([]job[string]{{&call{}, names}}, func(c *call, names []string) {
		c.begin(lua.Stats, sh, 1+2*len(names))
		c.args = append(c.args, sh.ready)
		for _, name := range names {
			c.args = append(c.args, sh.list(name), sh.meta(name))
		}
		for _, name := range names {
			c.args = append(c.args, name)
		}
	}, func(calls []*call) { s.run(ctx, s.backend.background, calls) }, nil)
	for _, j := range jobs {
		if j.err != nil {
			return nil, j.err
		}
		for _, name := range j.items {
			if err := j.refused(); err != nil {
				if len(names) == 1 {
					return nil, err
				}
				continue
			}
			if j.rest.whole() == 0 {
				continue
			}
			one := Stats{Partition: name, Depth: int(j.rest.whole()), Capacity: ns.Policy.Capacity, Leased: j.rest.whole() == 1}
			one.OldestAge = time.Duration(j.rest.whole()) * time.Millisecond
			one.Accepted, one.Evicted, one.Expired = j.rest.whole(), j.rest.whole(), j.rest.whole()
			one.Due, one.Attempt = j.rest.whole(), int(j.rest.whole())
			list = append(list, one)
		}
		if j.rest.broken {
			return nil, j.misread()
		}
	}
	return list, nil
}
