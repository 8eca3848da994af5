package space

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// enterEvery is how often a process says that it is alive, and aliveFor how long that holds.
	enterEvery = time.Second
	aliveFor   = 3 * time.Second
	// restTogether is how often one of the processes that are not the first two for a shard looks
	// at it: each rests so many times as long as there are such.
	restTogether = 10 * time.Second
	// leaveTimeout bounds what a process that stops waits for a store that does not answer.
	leaveTimeout = 250 * time.Millisecond
)

// Whole stands for a namespace as a whole where a number of a shard is asked for.
const Whole = -1

// Members of the list of a namespace: sw:{ns}:drainers, a zset by when they cease to count, in ms
// of the clock of the Redis that holds it. A process enters as one that serves the namespace, and
// while it drains it also as a drainer.
const (
	servesAs = "p:"
	drainsAs = "d:"
)

// A roster is the processes that serve a namespace, as they were read last. It never changes.
//
// The processes have an order for each shard, by a hash of both, so that each is the first for
// an equal part of the shards, and nobody has to agree on anything. The order is advice: where
// two processes take themselves for the first, the scripts decide, as they do without an order.
type roster struct {
	serving, draining []uint64 // hashes of the processes; those that drain are sorted
	read              time.Time
}

// order is how many processes come before one for a shard.
func order(processes []uint64, own uint64, shard int) (before int) {
	mine := mix(own, shard)
	for _, p := range processes {
		if other := mix(p, shard); other > mine || other == mine && p > own {
			before++
		}
	}
	return before
}

// mix is SplitMix64 of a process and a shard. Processes of several versions must agree on it.
func mix(process uint64, shard int) uint64 {
	x := process + 0x9e3779b97f4a7c15*uint64(shard+1) // #nosec G115 -- any bits will do
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hashOf(process string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(process))
	return h.Sum64()
}

// known is the roster while it can be trusted; nil: it was not read for as long as an entry in it
// counts. A process without one behaves as if it were alone.
func (h *Home) known() *roster {
	if h == nil { // of a namespace that no store made
		return nil
	}
	r := h.roster.Load()
	if r == nil || time.Since(r.read) > aliveFor {
		return nil
	}
	return r
}

// Rank is how many live processes that drain the namespace come before this one for a shard: 0 also where that is not
// known. It is advice, and may be another a moment later.
func (h *Home) Rank(shard int) int {
	if r := h.known(); r != nil {
		return order(r.draining, h.self, shard)
	}
	return 0
}

// Drainers is how many live processes drain the namespace, as far as it is known.
func (h *Home) Drainers() int {
	if r := h.known(); r != nil {
		return len(r.draining)
	}
	return 0
}

// Rest is how long background work of this process leaves a shard alone after a look at it: not
// at all where it is one of the first two of the live processes; the others look in case both of
// them cannot. A negative number stands for work that is not of one shard, such as Whole.
func (h *Home) Rest(shard int) time.Duration {
	r := h.known()
	if r == nil || order(r.serving, h.self, shard) < 2 {
		return 0
	}
	return restTogether * time.Duration(len(r.serving)-2)
}

// Records reports whether this process is the one of all that adds to the history.
func (h *Home) Records() bool {
	if h == nil || h.History == nil || h.space != nil && !h.Usable() {
		return false
	}
	r := h.known()
	return r == nil || order(r.serving, h.self, Whole) == 0
}

// Draining says whether this process drains the namespace from now on.
func (h *Home) Draining(is bool) {
	switch {
	case h == nil:
	case is:
		h.drainers.Add(1)
	default:
		h.drainers.Add(-1)
	}
}

// enter says in the list of each home that this process is alive, and reads who else is. The
// homes of one server share a pipeline. A process that leaves says so, see leave.
func (s *Space) enter(ctx context.Context, homes []*Home) {
	ctx, cancel := s.backend.Probing(ctx)
	defer cancel()
	byServer := map[redis.Cmdable][]*Home{}
	for _, h := range homes {
		server := s.backend.ClientFor(ctx, h.list)
		byServer[server] = append(byServer[server], h)
	}
	var running sync.WaitGroup
	for server, part := range byServer {
		running.Go(func() { s.enterAt(ctx, server, part) })
	}
	running.Wait()
}

func (s *Space) enterAt(ctx context.Context, server redis.Cmdable, homes []*Home) {
	pipe := server.Pipeline()
	told := pipe.Time(ctx)
	reads := make([]*redis.ZSliceCmd, len(homes))
	for i, h := range homes {
		now, ok := h.clock.Now()
		if !ok {
			now, ok = s.backend.Now()
		}
		if until := float64(now + aliveFor.Milliseconds()); ok {
			members := []redis.Z{{Score: until, Member: servesAs + s.id}}
			if h.drainers.Load() > 0 {
				members = append(members, redis.Z{Score: until, Member: drainsAs + s.id})
			}
			pipe.ZAdd(ctx, h.list, members...)
		}
		reads[i] = pipe.ZRangeWithScores(ctx, h.list, 0, -1)
	}
	sent := time.Now()
	_, _ = pipe.Exec(ctx) // each command has its own error
	received := time.Now()
	if told.Err() != nil {
		return
	}
	now := told.Val().UnixMilli()
	dead := server.Pipeline()
	for i, h := range homes {
		h.clock.Observe(sent, received, now)
		if reads[i].Err() != nil {
			continue
		}
		r := &roster{read: sent, serving: []uint64{h.self}}
		if h.drainers.Load() > 0 {
			r.draining = append(r.draining, h.self)
		}
		for _, z := range reads[i].Val() {
			member, _ := z.Member.(string)
			id := member[min(len(member), len(servesAs)):]
			// A time that is further off than any is written comes from a clock that went back since.
			if at := int64(z.Score); at <= now || at > now+2*aliveFor.Milliseconds() {
				dead.ZRem(ctx, h.list, member)
			} else if id == s.id {
				continue
			} else if strings.HasPrefix(member, servesAs) {
				r.serving = append(r.serving, hashOf(id))
			} else if strings.HasPrefix(member, drainsAs) {
				r.draining = append(r.draining, hashOf(id))
			}
		}
		slices.Sort(r.draining)
		before := h.known()
		h.roster.Store(r)
		if h.Reordered != nil && (before == nil || !slices.Equal(before.draining, r.draining)) {
			h.Reordered()
		}
	}
	if dead.Len() > 0 {
		_, _ = dead.Exec(ctx) // whoever reads next tries again
	}
}

// leave removes this process from the lists of homes, so that others need not wait until it
// ceases to count.
func (s *Space) leave(ctx context.Context, homes []*Home) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	var leaving sync.WaitGroup
	for _, h := range homes {
		leaving.Go(func() {
			_ = s.backend.ClientFor(ctx, h.list).ZRem(
				ctx,
				h.list,
				servesAs+s.id,
				drainsAs+s.id,
			).Err()
		})
	}
	leaving.Wait()
}

// keepEntered enters the homes every second until ctx ends, and leaves those that are no longer
// there.
func (s *Space) keepEntered(ctx context.Context, homes func() []*Home) {
	tick := time.NewTicker(enterEvery)
	defer tick.Stop()
	entered := map[string]*Home{}
	for ctx.Err() == nil {
		now := map[string]*Home{}
		for _, h := range homes() {
			if v := h.checked.Load(); v != nil && v.err == nil { // else nothing is written there
				now[h.list] = h
				delete(entered, h.list)
			}
		}
		s.leave(ctx, slices.Collect(maps.Values(entered)))
		entered = now
		s.enter(ctx, slices.SortedFunc(maps.Values(now), func(a,
			b *Home) int {
			return cmp.Compare(a.list, b.list)
		}))
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	s.leave(ctx, slices.Collect(maps.Values(entered)))
}
