package partition

import (
	"context"
	"hash/crc32"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// round is the work of one second. It returns how long to rest before goOn. It does
// nothing while the store is unavailable.
func (j *Janitor) round(ctx context.Context) (rest time.Duration) {
	j.backlogs = nil
	if j.store.mayRun(ctx) != nil {
		return 0
	}
	shards := j.shards()
	for _, h := range shards {
		if h.sh.Breaker.Suspect() || time.Since(j.looked[h.sh]) < h.ns.home.Rest(h.sh.Number) {
			continue
		}
		now, ok := j.store.backend.Now()
		if !ok {
			continue
		}
		j.looked[h.sh] = time.Now()
		j.reschedule(ctx, h, now)
		// A partition that is behind by half of max_age may have stale entries.
		took := j.expire(ctx, h, now-h.ns.Policy.MaxAge.Milliseconds()/2)
		rest += restFactor * took
	}
	walking, cancel := j.store.backend.Probing(ctx)
	defer cancel()
	_ = backend.EachMaster(walking, j.store.backend.Background, func(ctx context.Context, c *redis.Client) error {
		return j.orphans(ctx, c, shards)
	})
	return rest
}

// goOn repairs a further page of a shard with a backlog, and returns how long to
// rest. It takes only partitions that have a stale entry for sure: a partition that
// has been due for a whole max_age holds an entry that is older than that.
func (j *Janitor) goOn(ctx context.Context) (rest time.Duration) {
	h := j.backlogs[0]
	j.backlogs = j.backlogs[1:]
	if h.sh.Breaker.Suspect() {
		return 0
	}
	now, _ := j.store.backend.Now()
	return restFactor * j.expire(ctx, h, now-h.ns.Policy.MaxAge.Milliseconds())
}

// reschedule repairs a page of partitions whose due time is furthest ahead. Where they
// fill the page, most wait for a good reason: they are leased, wait for a retry, or are
// paused. So that these cannot hide others for ever, a second page begins further on in
// each round.
func (j *Janitor) reschedule(ctx context.Context, h home, now int64) {
	names, err := j.tooFarAhead(ctx, h, now, 0)
	if err != nil {
		return
	}
	j.repair(ctx, h, names)
	if len(names) < janitorPage {
		j.ahead[h.sh] = 0
		return
	}
	next := max(janitorPage, j.ahead[h.sh])
	names, err = j.tooFarAhead(ctx, h, now, next)
	if err != nil {
		return
	}
	j.repair(ctx, h, names)
	j.ahead[h.sh] = next + janitorPage
	if len(names) < janitorPage {
		j.ahead[h.sh] = 0
	}
}

// tooFarAhead returns a page of partitions whose due time may be too far ahead.
func (j *Janitor) tooFarAhead(ctx context.Context, h home, now, offset int64) ([]string, error) {
	names, err := j.store.backend.Background.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: h.sh.ready, ByScore: true, Rev: true, // the furthest first: they are the most likely to be wrong
		Start: "+inf", Stop: strconv.FormatInt(now+ahead(h.ns), 10), Offset: offset, Count: janitorPage,
	}).Result()
	err = backend.Classify(err)
	h.sh.Breaker.Done(err)
	return names, err
}

// expire repairs a page of the partitions that were due before overdue, in ms,
// and that nobody seems to drain. It keeps its place as a rank, because the due
// times must stay: they are the order in which drainers claim. The shard has a
// backlog if the page is full and at least half of it was stale. Otherwise another
// janitor or a drainer works on the shard, or the partitions have received new
// entries since they came due, and the next round is soon enough. It returns how
// long Redis worked.
func (j *Janitor) expire(ctx context.Context, h home, overdue int64) (took time.Duration) {
	first := j.overdue[h.sh]
	page, err := j.store.backend.Background.ZRangeWithScores(ctx, h.sh.ready, first,
		first+janitorPage-1).Result()
	if h.sh.Breaker.Done(backend.Classify(err)); err != nil {
		return 0
	}
	var names []string
	for _, z := range page {
		if int64(z.Score) <= overdue {
			name, _ := z.Member.(string)
			names = append(names, name)
		}
	}
	stale, took := j.repair(ctx, h, names)
	j.overdue[h.sh] = 0
	if len(names) == janitorPage {
		// Partitions that ended have left the active set, which moves the others up.
		j.overdue[h.sh] = first + janitorPage - int64(len(j.unknown(ctx, h.sh, names)))
		if 2*stale >= janitorPage {
			j.backlogs = append(j.backlogs, h)
		}
	}
	return took
}

// ahead is how far in the future the due time of a partition without a range may
// be, in ms: the linger, and clockSpread.
func ahead(ns *Namespace) int64 { return (ns.Policy.Linger + clockSpread).Milliseconds() }

// clockSpread is by how much the clocks of two masters may differ.
const clockSpread = 2 * time.Second

// repair returns how many partitions had stale entries, and how long the calls
// took, which is at least as long as Redis worked.
func (j *Janitor) repair(ctx context.Context, h home,
	names []string) (stale int, took time.Duration) {
	began := time.Now()
	var repaired, expired int64
	for len(names) > 0 && ctx.Err() == nil {
		n := min(len(names), maxCallLeases)
		for _, one := range j.repairSome(ctx, h, names[:n]) {
			for _, name := range one.Items {
				if one.Err != nil || one.Rejected() != nil {
					continue
				}
				repaired += one.Rest.Int()
				if dropped := one.Rest.Int(); dropped > 0 {
					expired += dropped
					h.ns.recordExpired(name, int(dropped))
					stale++
				}
			}
		}
		names = names[n:]
	}
	j.store.metrics.repaired.Add(float64(repaired))
	j.store.metrics.expired.Add(float64(expired))
	if repaired > 0 {
		j.store.log.Warn("janitor repaired partitions", zap.String("namespace", h.ns.Name),
			zap.Int64("partitions", repaired))
	}
	return stale, time.Since(began)
}

// repairSome is one script call; it drops a bounded number of stale entries.
func (j *Janitor) repairSome(ctx context.Context, h home, names []string) []backend.Pack[string] {
	return backend.RunPacks(ctx, []backend.Pack[string]{{Call: &backend.Call{}, Items: names}},
		func(c *backend.Call, names []string) {
			c.Begin(lua.Repair, h.sh.Breaker, 2+2*len(names))
			c.Args = append(c.Args, h.sh.ready, h.sh.Ledger)
			for _, name := range names {
				c.Args = append(c.Args, h.sh.list(name), h.sh.meta(name))
			}
			c.Args = append(c.Args, h.ns.Policy.MaxAge.Milliseconds(), ahead(h.ns))
			for _, name := range names {
				c.Args = append(c.Args, name)
			}
		}, func(calls []*backend.Call) {
			j.store.backend.Run(ctx,
				j.store.backend.Background, calls)
		}, nil)
}

// orphans looks for lists and hashes that the active set does not know. It scans
// the keyspace of one server, one page per round.
func (j *Janitor) orphans(ctx context.Context, c *redis.Client, shards map[string]home) error {
	at := c.Options().Addr
	j.mu.Lock()
	from, failed := j.scan[at], j.failed[at]
	rests := time.Since(j.walked[at]) < j.store.homes[0].Rest(serverNumber(at))
	if !rests {
		j.walked[at] = time.Now()
	}
	j.mu.Unlock()
	if rests || time.Since(failed) < janitorRest {
		return nil
	}
	keys, next, err := c.Scan(ctx, from, partitionKeys(j.store.prefix), janitorPage).Result()
	j.mu.Lock()
	if err == nil {
		j.scan[at] = next
	} else {
		j.failed[at] = time.Now()
	}
	j.mu.Unlock()
	if err != nil {
		return err
	}
	found := map[string][]string{}
	for _, key := range keys {
		if prefix, name, ok := splitPartitionKey(key); ok && !slices.Contains(found[prefix], name) {
			found[prefix] = append(found[prefix], name)
		}
	}
	for prefix, names := range found {
		if h, ok := shards[prefix]; ok {
			j.repair(ctx, h, j.unknown(ctx, h.sh, names))
		}
	}
	return nil
}

// serverNumber stands for a server in Home.Rest; it is no number of a shard.
func serverNumber(addr string) int { return space.Whole - 1 - int(crc32.ChecksumIEEE([]byte(addr))) }

// unknown returns the names that the active set does not hold. It asks for all of
// them with one command, so that a scan costs Redis the same whatever it finds.
func (j *Janitor) unknown(ctx context.Context, sh *shard, names []string) []string {
	scores, err := j.store.backend.Background.ZMScore(ctx, sh.ready, names...).Result()
	if err != nil {
		return nil // a later scan finds them again
	}
	var missing []string
	for i, name := range names {
		if scores[i] == 0 { // no member has a due time of 0
			missing = append(missing, name)
		}
	}
	return missing
}
