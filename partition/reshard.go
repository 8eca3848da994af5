package partition

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// ErrResharding is ErrUnavailable because an older layout has entries still, or because another
// process was first.
var ErrResharding = space.ErrResharding

// ReshardRequest is other shards for a namespace.
type ReshardRequest struct {
	Shards int    // 1 to 1024
	By     string // who asks, for the record; up to 128 bytes
	// Again makes a layout of as many shards as there are, to spread them over the masters that
	// there are now; default false: then nothing happens.
	Again  bool
	DryRun bool // look whether it could be done, and write nothing
}

// Reshard gives a namespace another number of shards while it serves. New entries go to the new
// shards from the answer on; what lies in the old ones is delivered from there, in order. It returns
// the number of the layout that new entries go to. Nothing is written where the store is
// full, a right is missing or a master does not answer. Repeating it is safe. Errors: *FieldError,
// ErrResharding and those of the store.
func (verbs) Reshard(ctx context.Context, ns *Namespace, r ReshardRequest) (layout int64, err error) {
	switch {
	case r.Shards < 1 || r.Shards > maxShards:
		return 0, &FieldError{Field: "shards", Value: r.Shards, Want: "1 to 1024"}
	case len(r.By) > maxPauseBy:
		return 0, &FieldError{Field: "by", Value: "a name of " + strconv.Itoa(len(r.By)) + " bytes",
			Want: strconv.Itoa(maxPauseBy) + " bytes at most"}
	}
	if err := ns.store.ensureCompatible(ctx); err != nil {
		return 0, err
	}
	return ns.store.space.Reshard(ctx, ns.home, r.Shards, r.By, r.Again, r.DryRun)
}

// LayoutInfo describes a layout of a namespace.
type LayoutInfo struct {
	N       int64 // rising, and never used twice; 1 is that of a namespace whose shards never changed
	Shards  int
	Current bool      // new entries go there
	Closed  bool      // nothing is left in it but dead letters
	Since   time.Time // when it was made, or closed; zero for layout 1 while it is open
	By      string    // who asked for it
	Fenced  int       // of its shards: those that take no new entries any more
	Empty   int       // of its shards: those without entries

	Entries, Partitions int64
	OldestAge           time.Duration // of the oldest entry of the partition of each shard that is looked at next, in whole ms; 0: there is none
}

// Shards is how many shards take new entries, as far as this process knows.
func (n *Namespace) Shards() int { return len(n.home.Layouts().Current().Shards) }

// Layouts describes the layouts of a namespace, the oldest first. Errors: ErrTooManyReads where no
// read slot is free within 1s, and those of the store.
func (verbs) Layouts(ctx context.Context, ns *Namespace) (list []LayoutInfo, err error) {
	s := ns.store
	if err := s.ensureCompatible(ctx); err != nil {
		return nil, err
	}
	err = s.ledgerReads.Do(ctx, func() error {
		list, err = s.layouts(ctx, ns)
		return err
	})
	return list, err
}

// totals are the fields of a ledger that add up to its entries.
var totals = []string{"accepted", "delivered", "evicted", "reclaimed", "expired", "dead", "lost",
	"lost_count", "fence"}

func (s *Store) layouts(ctx context.Context, ns *Namespace) (list []LayoutInfo, err error) {
	type reads struct {
		ledger *redis.SliceCmd
		active *redis.IntCmd
		first  *redis.ZSliceCmd
	}
	now, err := s.backend.KnownTime(ctx)
	if err != nil {
		return nil, err
	}
	layouts := ns.home.Layouts()
	pipe := s.backend.Background.Pipeline()
	all := map[*space.Shard]reads{}
	for _, sh := range layouts.Shards {
		ready := own(sh).ready
		all[sh] = reads{pipe.HMGet(ctx, sh.Ledger, totals...), pipe.ZCard(ctx, ready),
			pipe.ZRangeWithScores(ctx, ready, 0, 0)}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, backend.Classify(err)
	}
	ages, err := s.oldest(ctx, now, layouts, func(sh *space.Shard) []redis.Z { return all[sh].first.Val() })
	if err != nil {
		return nil, err
	}
	for _, l := range layouts.All {
		info := LayoutInfo{N: l.N, Shards: len(l.Shards), Current: l == layouts.Current(),
			Closed: l.Closed != 0, By: l.By}
		if since := max(l.Made, l.Closed); since > 0 {
			info.Since = time.UnixMilli(since)
		}
		for _, sh := range l.Shards {
			r := all[sh]
			n := map[string]int64{}
			for i, v := range r.ledger.Val() {
				text, _ := v.(string)
				n[totals[i]], _ = strconv.ParseInt(text, 10, 64)
			}
			left := ledgerOf(func(field string) int64 { return n[field] }).stored()
			info.Entries += left
			info.Partitions += r.active.Val()
			if left == 0 && r.active.Val() == 0 {
				info.Empty++
			}
			if n["fence"] > l.N {
				info.Fenced++
			}
			info.OldestAge = max(info.OldestAge, ages[sh])
		}
		list = append(list, info)
	}
	return list, nil
}

// oldest is the age of the oldest entry of the first partition of each shard.
func (s *Store) oldest(ctx context.Context, now int64, layouts *space.Layouts,
	first func(*space.Shard) []redis.Z) (map[*space.Shard]time.Duration, error) {
	pipe := s.backend.Background.Pipeline()
	heads := map[*space.Shard]*redis.StringCmd{}
	for _, sh := range layouts.Shards {
		if z := first(sh); len(z) == 1 {
			heads[sh] = pipe.LIndex(ctx, own(sh).list(fmt.Sprint(z[0].Member)), 0)
		}
	}
	ages := map[*space.Shard]time.Duration{}
	if len(heads) == 0 {
		return ages, nil
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) && !backend.IsWrongType(err) {
		return nil, backend.Classify(err)
	}
	for sh, cmd := range heads {
		if e, err := ParseEntry([]byte(cmd.Val())); err == nil {
			ages[sh] = time.Duration(max(0, now-e.Occurred)) * time.Millisecond
		}
	}
	return ages, nil
}
