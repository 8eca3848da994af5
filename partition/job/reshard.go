package job

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycle"
	"github.com/spillway-io/spillway/partition/space"
)

// layoutsEvery is how often what is next for layouts is done.
const layoutsEvery = time.Second

// keepLayouts does what is next for the layouts of all namespaces, until ctx ends. Any process
// may do each step, any number of times.
func (s *Store) keepLayouts(ctx context.Context) {
	tidied, revived := map[*home]time.Time{}, time.Now()
	lifecycle.Every(ctx, layoutsEvery, func() {
		before := tidied
		tidied = map[*home]time.Time{} // namespaces come and go
		for _, ns := range s.Namespaces() {
			if passed, err := s.space.Known(ns.Home); !passed || err != nil {
				continue
			}
			s.space.Grow(ctx, ns.Home, func(shards int) (int64, error) {
				return s.Reshard(ctx, ns, partition.ReshardRequest{Shards: shards, By: "configuration"})
			})
			s.lookAtOlder(ctx, ns)
			if tidied[ns.home] = before[ns.home]; time.Since(tidied[ns.home]) >= ns.Rest() {
				tidied[ns.home] = time.Now()
				s.tidyLayouts(ctx, ns)
			}
		}
		if time.Since(revived) >= space.ReviveEvery {
			revived = time.Now()
			for _, ns := range s.Namespaces() {
				s.space.Revive(ctx, ns.Home, func(at *space.Shard) string { return at.Own.(*shard).queues })
			}
		}
	})
}

// lookAtOlder learns of which queues the shards of older layouts have jobs still: claims of all
// others need not ask them.
func (s *Store) lookAtOlder(ctx context.Context, ns *Namespace) {
	at := ns.placed()
	pipe := s.backend.Background.Pipeline()
	lists := map[*shard]*redis.StringSliceCmd{}
	for _, l := range at.layouts.Older(at.layouts.Current().N) {
		for _, on := range l.Shards {
			if sh := at.numbers[on.Number]; sh.Fenced() && !sh.Breaker.Suspect() {
				lists[sh] = pipe.ZRange(ctx, sh.queues, 0, maxLeft)
			}
		}
	}
	if len(lists) == 0 {
		return
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for sh, list := range lists {
		if list.Err() != nil || len(list.Val()) > maxLeft {
			continue
		}
		left := make(map[string]bool, len(list.Val()))
		for _, queue := range list.Val() {
			left[queue] = true
		}
		sh.left.Store(&left)
	}
}

// tidyLayouts fences, also shards that lost their fence in a failover, and closes what is empty,
// in order.
func (s *Store) tidyLayouts(ctx context.Context, ns *Namespace) {
	layouts := ns.Layouts()
	older := layouts.Older(layouts.Current().N)
	if len(older) == 0 {
		return
	}
	if news, err := s.space.Fence(ctx, ns.Home, true); news || err != nil {
		return
	}
	for _, l := range older {
		for _, on := range l.Shards {
			if held, err := s.holds(ctx, ns.shard(on.Number)); err != nil || held.any() {
				return
			}
		}
		now, err := s.backend.KnownTime(ctx)
		if err == nil {
			err = s.space.CloseLayout(ctx, ns.Home, l.N, now)
		}
		if err != nil {
			return
		}
		s.log.Info("older layout is empty and closed", zap.String("namespace", ns.Name), zap.Int64("layout", l.N))
	}
}

// held is what a shard of an older layout has.
type held struct {
	fenced     bool
	jobs, kept int64    // by its ledger, by its keys
	queues     int64    // that have any
	names      []string // of some of them
}

// any reports whether it is to stay open. A shard that is fenced and without jobs gets none any
// more.
func (h *held) any() bool { return !h.fenced || h.jobs != 0 || h.kept != 0 }

// heldNames is how many queues are named.
const heldNames = 5

// holds reads what a shard has.
func (s *Store) holds(ctx context.Context, sh *shard) (h held, err error) {
	pipe := s.backend.Background.Pipeline()
	ledger := pipe.HMGet(ctx, sh.Ledger, "published", "acked", "expired", "deleted", "lost", "lost_count", "fence")
	queues, names := pipe.ZCard(ctx, sh.queues), pipe.ZRange(ctx, sh.queues, 0, heldNames-1)
	kept := []*redis.IntCmd{queues, pipe.ZCard(ctx, sh.delay), pipe.ZCard(ctx, sh.lease), pipe.HLen(ctx, sh.jobs(outbox)),
		pipe.HLen(ctx, sh.states), pipe.ZCard(ctx, sh.kept)}
	if _, err := pipe.Exec(ctx); err != nil {
		return held{}, backend.Classify(err)
	}
	for i, v := range ledger.Val() {
		text, _ := v.(string)
		n, _ := strconv.ParseInt(text, 10, 64) // absent, or the word in lost: 0
		switch i {
		case 0:
			h.jobs = n
		case 6:
			h.fenced = n > sh.Layout
		default:
			h.jobs -= n
		}
	}
	for _, n := range kept {
		h.kept += n.Val()
	}
	h.queues, h.names = queues.Val(), names.Val()
	return h, nil
}

// holdFor is how long no schedule is taken in, at least, while a namespace gets other shards: ms.
const holdFor = 30_000

// Reshard gives a namespace another number of shards while it serves: see partition.Reshard,
// whose errors it has. It rejects a namespace with schedules or owners, with a paused queue, with acked jobs that it keeps, or with
// a rule that has a rate, a concurrency or keep_acked: shards keep these beside the jobs. For 30 s after it none can be put, and no
// queue paused.
func (s *Store) Reshard(ctx context.Context, ns *Namespace, r partition.ReshardRequest) (layout int64, err error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	refuse := func(format string, args ...any) (int64, error) {
		return 0, backend.Wrap(backend.ErrIncompatible, fmt.Errorf("%w: "+format, append([]any{space.ErrNoLayouts}, args...)...))
	}
	if r.Pool != "" {
		return 0, backend.Wrap(backend.ErrIncompatible, fmt.Errorf("%w: queues stay in the pool that they were first used in", space.ErrNoPool))
	}
	for _, rule := range ns.Policy.Rules {
		if kept := rule.ByShard(); kept != "" {
			return refuse("the rule for queue %s has %s: remove it until the older layout is closed", rule.Match, kept)
		}
	}
	if err := s.space.Usable(ctx, ns.Home); err != nil {
		return 0, err
	}
	if err := s.space.Refresh(ctx, ns.Home); err != nil {
		return 0, err
	}
	if ledger, err := s.Ledger(ctx, ns); err != nil {
		return 0, err
	} else if ledger.Kept > 0 {
		return refuse("%d acked jobs are kept, and lists would look for them in the new shards: wait for their end, or delete them", ledger.Kept)
	}
	shards, from := ns.newest(), ns.Layouts().Current().N
	if r.Shards == len(shards) && !r.Again {
		return from, nil
	}
	reshard := func(dry bool) (int64, error) {
		return s.space.Reshard(ctx, ns.Home, r.Shards, "", r.By, r.Again, dry, from)
	}
	for _, wait := range []int64{0, holdFor} { // nothing is written while any has some
		calls := make([]*backend.Call, len(shards))
		for i, sh := range shards {
			calls[i] = backend.NewCall(luajob.Hold, sh.Breaker, []string{sh.Ledger, sh.states, sh.owners, sh.paused}, wait)
		}
		s.backend.Run(ctx, s.backend.Background, calls)
		for _, c := range calls {
			if c.Err != nil {
				return 0, c.Err
			}
			if c.More < 2 {
				continue
			}
			name, queue, _ := strings.Cut(string(c.Rest.Bulk()), " ")
			owner, paused := c.Rest.Bulk(), c.Rest.Bulk()
			switch {
			case name == "" && len(owner)+len(paused) == 0:
				return 0, ErrClosed
			case len(paused) > 0:
				return refuse("queue %s is paused, which each shard keeps by itself: resume it first", paused)
			case name == "":
				return refuse("%s owns schedules, which a shard keeps: forget it first", owner)
			}
			return refuse("schedule %s of queue %s is kept by a shard: delete it first, and put it again afterwards", name, queue)
		}
		if wait > 0 {
			break
		}
		if layout, err = reshard(true); err != nil || r.DryRun {
			return layout, err // what cannot be done holds nothing up
		}
	}
	var cancel context.CancelFunc
	ctx, cancel = context.WithTimeout(ctx, holdFor*time.Millisecond/2)
	defer cancel()
	return reshard(false)
}

// Layouts describes the layouts of a namespace, the oldest first. Entries are jobs, Partitions
// queues.
func (s *Store) Layouts(ctx context.Context, ns *Namespace) (list []partition.LayoutInfo, err error) {
	if err := s.space.Usable(ctx, ns.Home); err != nil {
		return nil, err
	}
	layouts := ns.Layouts()
	err = s.reads.Do(ctx, func() error {
		for _, l := range layouts.All {
			info := partition.DescribeLayout(l, l == layouts.Current())
			for _, at := range l.Shards {
				h, err := s.holds(ctx, ns.shard(at.Number))
				if err != nil {
					return err
				}
				if h.fenced {
					info.Fenced++
				}
				if h.jobs == 0 && h.kept == 0 {
					info.Empty++
				}
				info.Entries, info.Partitions = info.Entries+h.jobs, info.Partitions+h.queues
				if !info.Current {
					info.Names = append(info.Names, h.names...)
				}
			}
			slices.Sort(info.Names)
			info.Names = slices.Compact(info.Names)
			info.Names = info.Names[:min(len(info.Names), heldNames)]
			list = append(list, info)
		}
		return nil
	})
	return list, err
}
