package partition

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
)

const (
	janitorEvery = time.Second
	janitorPage  = 200 // partitions looked at a shard and round, so its work is bounded
)

// Janitor mends what no other script meets, until ctx ends: lists the active
// set does not know, due times that a clock stepping back left in the future,
// stale entries of partitions nobody drains. It also looks whether the store was
// rolled back. Every process runs one; they do
// not disturb each other, for each repair is one script. Its work a second is
// bounded, and nothing of it grows with partitions that are idle or not yet due.
func (s *Store) Janitor(ctx context.Context) {
	j := newJanitor(s)
	tick := time.NewTicker(janitorEvery)
	defer tick.Stop()
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.backend.connected:
			// Whoever answers may be another than before, or know less.
			if time.Since(looked) > janitorEvery/10 {
				s.look(ctx)
				looked = time.Now()
			}
		case <-tick.C:
			s.look(ctx)
			looked = time.Now()
			j.round(ctx)
		}
	}
}

type janitor struct {
	*Store
	shards  map[string]home   // by key prefix
	overdue map[*shard]int64  // rank where the next look at overdue partitions begins
	scan    map[string]uint64 // SCAN cursor by server
}

// home is where a shard belongs.
type home struct {
	ns *Namespace
	sh *shard
}

func newJanitor(s *Store) *janitor {
	j := &janitor{s, map[string]home{}, map[*shard]int64{}, map[string]uint64{}}
	for _, ns := range s.Namespaces() {
		for i := range ns.shards {
			j.shards[ns.shards[i].prefix] = home{ns, &ns.shards[i]}
		}
	}
	return j
}

// round is one second's work. A store that is away leaves it undone.
func (j *janitor) round(ctx context.Context) {
	now, ok := j.clock.now()
	if !ok || j.fit(ctx) != nil {
		return
	}
	for _, h := range j.shards {
		if names, err := j.suspects(ctx, h, now); err == nil {
			j.repair(ctx, h, names)
		}
	}
	_ = masters(ctx, j.backend.aside, j.orphans)
}

// suspects are partitions whose due time lies too far ahead, and those that
// have been due for so long that nobody seems to drain them. A cursor walks the
// latter, for their due time must stay: it is their place in the queue.
func (j *janitor) suspects(ctx context.Context, h home, now int64) ([]string, error) {
	first := j.overdue[h.sh]
	pipe := j.backend.aside.Pipeline()
	ahead := pipe.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: h.sh.ready, ByScore: true, Rev: true, // the furthest first: they are wrong most likely
		Start: "+inf", Stop: strconv.FormatInt(now+ahead(h.ns), 10), Count: janitorPage,
	})
	oldest := pipe.ZRangeWithScores(ctx, h.sh.ready, first, first+janitorPage-1)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, classify(err)
	}
	names := ahead.Val()
	overdue := now - h.ns.Policy.MaxAge.Milliseconds()/2
	j.overdue[h.sh] = first + janitorPage
	for _, z := range oldest.Val() {
		if int64(z.Score) > overdue {
			j.overdue[h.sh] = 0
			break
		}
		name, _ := z.Member.(string)
		names = append(names, name)
	}
	if len(oldest.Val()) < janitorPage {
		j.overdue[h.sh] = 0
	}
	return names, nil
}

// ahead is how far in the future a due time may lie where no range is held, in
// ms: the linger, and some for what the clocks of two masters differ by.
func ahead(ns *Namespace) int64 { return (ns.Policy.Linger + 2*time.Second).Milliseconds() }

func (j *janitor) repair(ctx context.Context, h home, names []string) {
	var jobs []job[string]
	for len(names) > 0 {
		n := min(len(names), maxCallLeases)
		jobs = append(jobs, job[string]{&call{}, names[:n:n]})
		names = names[n:]
	}
	jobs = runJobs(jobs, func(c *call, names []string) {
		c.begin(lua.Repair, 2+2*len(names))
		c.args = append(c.args, h.sh.ready, h.sh.ledger)
		for _, name := range names {
			c.args = append(c.args, h.sh.list(name), h.sh.meta(name))
		}
		c.args = append(c.args, h.ns.Policy.MaxAge.Milliseconds(), ahead(h.ns))
		for _, name := range names {
			c.args = append(c.args, name)
		}
	}, func(calls []*call) { j.run(ctx, j.backend.aside, calls) })
	var mended, expired int64
	for _, one := range jobs {
		for range one.items {
			if one.err != nil || one.refused() != nil {
				continue
			}
			mended += one.rest.whole()
			expired += one.rest.whole()
		}
	}
	j.metrics.mended.Add(float64(mended))
	j.metrics.expired.Add(float64(expired))
	if mended > 0 {
		j.log.Warn("janitor mended partitions", zap.String("namespace", h.ns.Name), zap.Int64("partitions", mended))
	}
}

// orphans walks the keyspace of one server a page a round for lists and hashes
// that the active set does not know.
func (j *janitor) orphans(ctx context.Context, c *redis.Client) error {
	at := c.Options().Addr
	keys, next, err := c.Scan(ctx, j.scan[at], partitionKeys(j.prefix), janitorPage).Result()
	if err != nil {
		return err
	}
	j.scan[at] = next
	found := map[string][]string{}
	for _, key := range keys {
		if prefix, name, ok := splitPartitionKey(key); ok && !slices.Contains(found[prefix], name) {
			found[prefix] = append(found[prefix], name)
		}
	}
	for prefix, names := range found {
		if h, ok := j.shards[prefix]; ok {
			j.repair(ctx, h, j.unknown(ctx, h.sh, names))
		}
	}
	return nil
}

// unknown are the names that the active set does not hold. One command asks for
// all, so that the walk costs Redis the same whatever it meets.
func (j *janitor) unknown(ctx context.Context, sh *shard, names []string) []string {
	scores, err := j.backend.aside.ZMScore(ctx, sh.ready, names...).Result()
	if err != nil {
		return nil // their turn comes again
	}
	var missing []string
	for i, name := range names {
		if scores[i] == 0 { // no member has a due time of 0
			missing = append(missing, name)
		}
	}
	return missing
}
