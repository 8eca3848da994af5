package partition

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
)

// Bounds of one script call of purge, which together keep it below about 2 ms of Redis
// (measured: 1.1 ms with 64 partitions and 1,024 entries that are read, 0.8 ms with 10,000
// of 4 KB that are not, 0.2 to 0.9 ms with 8 MiB of larger ones).
const (
	purgeEntries = 1024    // that a call drops where it has to read their times
	purgeUnread  = 10_000  // that a call drops where it drops whatever is there
	purgeBytes   = 1 << 19 // that a call reads
	purgeFreed   = 8 << 20 // of entries beyond 4 KiB, that a call drops without reading them
)

// purgePage is how many partitions a purge lists at once.
const purgePage = 8 * maxCallLeases

// A purge goes through the active set a second time, because a partition that came due earlier
// meanwhile may have been left out, and again while it finds something.
const maxPurgeRounds = 5

// everything is a time that is later than that of any entry.
const everything = MaxTime + 1

// PurgeRequest says which entries to drop: the oldest ones of each partition, up to the
// first that is younger than OlderThan.
type PurgeRequest struct {
	Partition string        // only this one; default "": all partitions of the namespace
	OlderThan time.Duration // the age from which on entries are dropped; default 0: all that are there
	Limit     int64         // entries that are dropped at most; default 0: no limit
	DryRun    bool          // count them and write nothing
}

// PurgeResult is what a Purge did, or would do.
type PurgeResult struct {
	Entries    int64 // dropped
	Partitions int64 // partitions that they were in
	Leased     int64 // partitions left alone because a drainer has their oldest entries
	// Complete: it has looked at every partition, and neither the Limit nor the end of ctx
	// left an entry that it should have dropped. Those that are Leased do not count.
	Complete bool
}

// Purge drops entries for good. They count as evicted, and in Overview.Purged; those that the
// sink had accepted in a batch that failed in part count as delivered. Every entry counts
// once, however many purges run. A partition that a drainer holds is left alone.
//
// It takes many script calls, each of about 1 ms, and at most a fifth of Redis's time. When
// ctx ends, it ends after the call under way: the result says what it did, Complete is false, and
// there is no error. Otherwise, beside an error the result says what it did before, for
// certain: with ErrUnknown one more call may have run. Repeating it is safe, except that
// with a Limit more may be dropped in all. Where a partition has a foreign value, the others are
// purged and the error is that of the first one.
func (verbs) Purge(ctx context.Context, ns *Namespace, r PurgeRequest) (PurgeResult, error) {
	s := ns.store
	if err := s.mayRun(ctx); err != nil {
		return PurgeResult{}, err
	}
	now, err := s.backend.KnownTime(ctx)
	if err != nil {
		return PurgeResult{}, err
	}
	p := purging{s: s, ns: ns, PurgeRequest: r, cutoff: everything}
	if r.OlderThan > 0 {
		p.cutoff = max(0, now-r.OlderThan.Milliseconds()+1)
	}
	err = p.run(ctx, now)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return p.result, nil
	}
	if err == nil {
		err = p.rejected
	}
	p.result.Complete = err == nil && !p.limited
	return p.result, err
}

// purging is a Purge under way.
type purging struct {
	s  *Store
	ns *Namespace
	PurgeRequest
	cutoff   int64 // entries that occurred before this time are dropped, in ms
	alone    bool  // one partition a call, because the cluster moves a slot
	limited  bool  // the limit left an entry
	rejected error // of the first partition with a foreign value
	result   PurgeResult
}

// run purges the partition that was asked for, or all of them. now is the time in ms.
func (p *purging) run(ctx context.Context, now int64) error {
	if p.Partition != "" {
		return p.drop(ctx, p.ns.shardOf(p.Partition), []string{p.Partition})
	}
	due := ""
	for range maxPurgeRounds {
		before := p.result.Entries
		p.result.Leased = 0
		err := p.round(ctx, due)
		if err != nil || p.limited || p.DryRun || p.result.Entries == before {
			return err
		}
		// Whatever moved in this round came due after it began. What arrived meanwhile stays.
		due = strconv.FormatInt(now-clockSpread.Milliseconds(), 10)
		p.cutoff = min(p.cutoff, now+1)
		now, _ = p.ns.Now()
	}
	return nil
}

// round goes through all partitions that are due at a time or later; empty: all.
func (p *purging) round(ctx context.Context, due string) error {
	for _, sh := range p.ns.shards() {
		at := Page{shard: sh.Number, due: due}
		for at.shard == sh.Number && !p.limited {
			var names []string
			var next Page
			var err error
			if ended := p.s.pace.Do(ctx, func(ctx context.Context) {
				names, next, err = p.s.active(ctx, p.ns, at, purgePage)
			}); ended != nil {
				return ended
			}
			if err == nil {
				err = p.drop(ctx, sh, names)
			}
			if err != nil {
				return err
			}
			if at = next; next == (Page{}) {
				break
			}
		}
	}
	return nil
}

// drop purges partitions of a shard, by as many calls as it takes.
func (p *purging) drop(ctx context.Context, sh *shard, names []string) error {
	counted := 0 // where nothing is dropped: what calls before counted of the first partition
	touched := ""
	for len(names) > 0 && !p.limited {
		one := backend.Pack[string]{Call: &backend.Call{}, Items: names[:min(len(names), maxCallLeases)]}
		if counted > 0 || p.alone {
			one.Items = names[:1]
		}
		writes := p.writes()
		if err := p.s.pace.Do(ctx, func(running context.Context) {
			one = backend.RunPacks(ctx, []backend.Pack[string]{one}, func(c *backend.Call, names []string) {
				p.fill(c, sh, names, writes, counted)
			}, func(calls []*backend.Call) {
				p.s.backend.Run(running, p.s.backend.Background, calls)
			}, func(string, []string) bool { return p.alone })[0]
		}); err != nil {
			return err
		}
		if backend.Moving(one.Err) && !p.alone { // side by side they would drop more than the limit
			p.alone = true
			continue
		}
		if one.Err != nil {
			return one.Err
		}
		var again []string
		for _, name := range one.Items {
			n, more := p.answered(one.Call)
			if n > 0 && name != touched {
				touched = name
				p.result.Partitions++
			}
			if more && len(again) == 0 {
				counted += n
			}
			if more {
				again = append(again, name)
			}
		}
		if one.Rest.Broken {
			return one.Misread()
		}
		if len(again) == 0 || writes {
			counted = 0
		}
		names = append(again, names[len(one.Items):]...)
	}
	return nil
}

// left is how many entries the limit still allows.
func (p *purging) left() int64 {
	if p.Limit <= 0 {
		return math.MaxInt64
	}
	return p.Limit - p.result.Entries
}

// writes is false for a dry run, and where the limit is reached: what follows tells
// only whether it left an entry.
func (p *purging) writes() bool { return !p.DryRun && p.left() > 0 }

func (p *purging) fill(c *backend.Call, sh *shard, names []string, writes bool, counted int) {
	limit := int64(purgeEntries)
	bytes := purgeBytes
	drop := 0
	if p.cutoff == everything {
		limit, bytes = purgeUnread, purgeFreed
	}
	if writes {
		drop = 1
	}
	c.Begin(lua.Purge, sh.Breaker, 2+2*len(names))
	c.Args = append(c.Args, sh.ready, sh.Ledger)
	for _, name := range names {
		c.Args = append(c.Args, sh.list(name), sh.meta(name))
	}
	c.Args = append(c.Args, p.cutoff, min(limit, max(1, p.left())), bytes, drop, counted)
	for _, name := range names {
		c.Args = append(c.Args, name)
	}
}

// answered reads the answer of one partition: how many entries were dropped, and whether
// there may be more.
func (p *purging) answered(c *backend.Call) (n int, more bool) {
	if err := c.Rejected(); err != nil {
		if p.rejected == nil {
			p.rejected = err
		}
		return 0, false
	}
	code := c.Rest.Int()
	if code == 2 {
		p.result.Leased++
		return 0, false
	}
	n = int(c.Rest.Int())
	if n > 0 && p.left() <= 0 {
		p.limited = true
		return 0, false
	}
	p.result.Entries += int64(n)
	return n, code == 1
}
