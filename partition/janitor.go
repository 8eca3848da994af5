package partition

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
)

const (
	janitorEvery = time.Second
	janitorRest  = 10 * time.Second // how long a server is left alone that did not answer
	janitorPage  = 200              // partitions looked at a shard and round, so its work is bounded

	// A janitor that goes on uses a tenth of Redis's time at most: it rests this many
	// times as long as its repairs took.
	restFactor = 9
)

// Janitor mends what no other script meets, until ctx ends: lists the active
// set does not know, due times that a clock stepping back left in the future,
// stale entries of partitions nobody drains. It also looks whether the store was
// rolled back. Every process runs one; they do
// not disturb each other, for each repair is one script. It leaves alone what
// cannot be reached, so that the rest gets its round. Its work a second is
// bounded, and nothing of it grows with partitions that are idle or not yet due.
// It goes on between the rounds only while it finds stale entries.
func (s *Store) Janitor(ctx context.Context) {
	j := newJanitor(s)
	tick := time.NewTicker(janitorEvery)
	defer tick.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.backend.connected:
			// Whoever answers may be another than before, or know less.
			if time.Since(looked) > janitorEvery/10 {
				s.checkRollback(ctx)
				looked = time.Now()
			}
		case <-tick.C:
			s.checkRollback(ctx)
			looked = time.Now()
			rest.Reset(j.round(ctx))
		case <-rest.C:
			if len(j.backlogs) > 0 {
				rest.Reset(j.goOn(ctx))
			}
		}
	}
}

type janitor struct {
	*Store
	shards   map[string]home  // by key prefix
	overdue  map[*shard]int64 // rank where the next look at overdue partitions begins
	backlogs []home           // shards in which nobody drains, and more is stale; the next first

	mu     sync.Mutex
	scan   map[string]uint64    // SCAN cursor by server
	failed map[string]time.Time // when a server last gave none
}

// home is where a shard belongs.
type home struct {
	ns *Namespace
	sh *shard
}

func newJanitor(s *Store) *janitor {
	j := &janitor{Store: s, shards: map[string]home{}, overdue: map[*shard]int64{}, scan: map[string]uint64{}, failed: map[string]time.Time{}}
	for _, ns := range s.Namespaces() {
		for i := range ns.shards {
			j.shards[ns.shards[i].prefix] = home{ns, &ns.shards[i]}
		}
	}
	return j
}

// round is one second's work, and returns how long to rest before it goes on. A
// store that is away leaves it undone.
func (j *janitor) round(ctx context.Context) (rest time.Duration) {
	j.backlogs = nil
	now, ok := j.clock.now()
	if !ok || j.ensureCompatible(ctx) != nil {
		return 0
	}
	for _, h := range j.shards {
		if h.sh.breaker.suspect() {
			continue
		}
		if names, err := j.tooFarAhead(ctx, h, now); err == nil {
			j.repair(ctx, h, names)
		}
		// A partition that is behind by half of max_age may have stale entries.
		took := j.expire(ctx, h, now-h.ns.Policy.MaxAge.Milliseconds()/2)
		rest += restFactor * took
	}
	walking, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_ = eachMaster(walking, j.backend.background, j.orphans)
	return rest
}

// goOn looks at a further page of a shard with a backlog, and returns how long to
// rest. It takes only partitions of which something is stale for sure: what was
// due before a whole max_age came before that.
func (j *janitor) goOn(ctx context.Context) (rest time.Duration) {
	h := j.backlogs[0]
	j.backlogs = j.backlogs[1:]
	if h.sh.breaker.suspect() {
		return 0
	}
	now, _ := j.clock.now()
	return restFactor * j.expire(ctx, h, now-h.ns.Policy.MaxAge.Milliseconds())
}

// tooFarAhead are partitions whose due time lies too far ahead.
func (j *janitor) tooFarAhead(ctx context.Context, h home, now int64) ([]string, error) {
	names, err := j.backend.background.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: h.sh.ready, ByScore: true, Rev: true, // the furthest first: they are wrong most likely
		Start: "+inf", Stop: strconv.FormatInt(now+ahead(h.ns), 10), Count: janitorPage,
	}).Result()
	err = classify(err)
	h.sh.breaker.done(err)
	return names, err
}

// expire repairs a page of the partitions that were due before overdue, in ms,
// and that nobody seems to drain. A cursor walks them, for their due time must
// stay: it is their place in the queue. The shard has a backlog if the page is
// full and at least half of it was stale. Else another janitor or a drainer is at
// it, or the partitions were filled anew since they came due: the next round
// looks. It returns how long Redis worked.
func (j *janitor) expire(ctx context.Context, h home, overdue int64) (took time.Duration) {
	first := j.overdue[h.sh]
	page, err := j.backend.background.ZRangeWithScores(ctx, h.sh.ready, first, first+janitorPage-1).Result()
	if h.sh.breaker.done(classify(err)); err != nil {
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
		// Those that ended have left the active set, and the others moved up.
		j.overdue[h.sh] = first + janitorPage - int64(len(j.unknown(ctx, h.sh, names)))
		if 2*stale >= janitorPage {
			j.backlogs = append(j.backlogs, h)
		}
	}
	return took
}

// ahead is how far in the future a due time may lie where no range is held, in
// ms: the linger, and some for what the clocks of two masters differ by.
func ahead(ns *Namespace) int64 { return (ns.Policy.Linger + 2*time.Second).Milliseconds() }

// repair returns how many partitions had stale entries, and how long it took, which
// is no less than Redis worked.
func (j *janitor) repair(ctx context.Context, h home, names []string) (stale int, took time.Duration) {
	began := time.Now()
	var repaired, expired int64
	for len(names) > 0 && ctx.Err() == nil {
		n := min(len(names), maxCallLeases)
		for _, one := range j.repairSome(ctx, h, names[:n]) {
			for range one.items {
				if one.err != nil || one.refused() != nil {
					continue
				}
				repaired += one.rest.whole()
				if dropped := one.rest.whole(); dropped > 0 {
					expired += dropped
					stale++
				}
			}
		}
		names = names[n:]
	}
	j.metrics.repaired.Add(float64(repaired))
	j.metrics.expired.Add(float64(expired))
	if repaired > 0 {
		j.log.Warn("janitor repaired partitions", zap.String("namespace", h.ns.Name), zap.Int64("partitions", repaired))
	}
	return stale, time.Since(began)
}

// repairSome is one script call; it drops a bounded number of stale entries.
func (j *janitor) repairSome(ctx context.Context, h home, names []string) []job[string] {
	return runJobs([]job[string]{{&call{}, names}}, func(c *call, names []string) {
		c.begin(lua.Repair, h.sh, 2+2*len(names))
		c.args = append(c.args, h.sh.ready, h.sh.ledger)
		for _, name := range names {
			c.args = append(c.args, h.sh.list(name), h.sh.meta(name))
		}
		c.args = append(c.args, h.ns.Policy.MaxAge.Milliseconds(), ahead(h.ns))
		for _, name := range names {
			c.args = append(c.args, name)
		}
	}, func(calls []*call) { j.run(ctx, j.backend.background, calls) }, nil)
}

// orphans walks the keyspace of one server a page a round for lists and hashes
// that the active set does not know.
func (j *janitor) orphans(ctx context.Context, c *redis.Client) error {
	at := c.Options().Addr
	j.mu.Lock()
	from, failed := j.scan[at], j.failed[at]
	j.mu.Unlock()
	if time.Since(failed) < janitorRest {
		return nil
	}
	keys, next, err := c.Scan(ctx, from, partitionKeys(j.prefix), janitorPage).Result()
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
		if h, ok := j.shards[prefix]; ok {
			j.repair(ctx, h, j.unknown(ctx, h.sh, names))
		}
	}
	return nil
}

// unknown are the names that the active set does not hold. One command asks for
// all, so that the walk costs Redis the same whatever it meets.
func (j *janitor) unknown(ctx context.Context, sh *shard, names []string) []string {
	scores, err := j.backend.background.ZMScore(ctx, sh.ready, names...).Result()
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
