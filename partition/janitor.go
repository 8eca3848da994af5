package partition

import (
	"context"
	"errors"
	"fmt"
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
	janitorRest  = 10 * time.Second // pause after a server did not answer a SCAN
	janitorPage  = 200              // partitions per shard and round, which bounds the work

	// A janitor that works between the rounds uses at most a tenth of Redis's time: it
	// rests this many times as long as its repairs took.
	restFactor = 9
)

// A Janitor repairs what no other script meets: lists that the active set does not
// know, due times that a clock stepping back left too far ahead, and stale entries
// of partitions that nobody drains. It also checks whether the store was rolled
// back. Every process runs one. Janitors do not disturb each other, because each
// repair is one script. A janitor skips shards that are unreachable, so that the
// others get their round. Its work per second is bounded, and does not grow with
// partitions that are idle or not yet due. It works between the rounds only while
// it finds stale entries. Start and Stop follow partition/lifecycletest.
type Janitor struct {
	store    *Store
	shards   map[string]home  // by key prefix
	overdue  map[*shard]int64 // rank where the next page of overdue partitions begins
	backlogs []home           // shards that nobody drains and that have more stale entries; the next one first

	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{} // closed once the goroutine has ended; nil before Start

	mu     sync.Mutex
	scan   map[string]uint64    // SCAN cursor by server
	failed map[string]time.Time // when a SCAN of a server last failed
}

// NewJanitor makes the janitor of a store. Start sets it going.
func NewJanitor(s *Store) *Janitor {
	j := &Janitor{store: s, shards: map[string]home{}, overdue: map[*shard]int64{}, scan: map[string]uint64{}, failed: map[string]time.Time{}}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	for _, ns := range s.Namespaces() {
		for i := range ns.shards {
			j.shards[ns.shards[i].prefix] = home{ns, &ns.shards[i]}
		}
	}
	return j
}

// Start begins the rounds, one a second. It is an error a second time and after Stop.
func (j *Janitor) Start(context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended != nil || j.ctx.Err() != nil {
		return errors.New("janitor: it starts only once")
	}
	ended := make(chan struct{})
	j.ended = ended
	go func() {
		defer close(ended)
		j.run(j.ctx)
	}()
	return nil
}

// Stop ends the round under way and waits for it, for as long as ctx lets it.
func (j *Janitor) Stop(ctx context.Context) error {
	j.mu.Lock()
	j.cancel()
	ended := j.ended
	j.mu.Unlock()
	if ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop janitor: %w", ctx.Err())
	}
}

func (j *Janitor) run(ctx context.Context) {
	tick := time.NewTicker(janitorEvery)
	defer tick.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	var checked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.store.backend.connected:
			// The server that answers may be another than before, or hold less.
			if time.Since(checked) > janitorEvery/10 {
				j.store.checkRollback(ctx)
				checked = time.Now()
			}
		case <-tick.C:
			j.store.checkRollback(ctx)
			checked = time.Now()
			rest.Reset(j.round(ctx))
		case <-rest.C:
			if len(j.backlogs) > 0 {
				rest.Reset(j.goOn(ctx))
			}
		}
	}
}

// home is a shard and its namespace.
type home struct {
	ns *Namespace
	sh *shard
}

// round is the work of one second. It returns how long to rest before goOn. It does
// nothing while the store is unavailable.
func (j *Janitor) round(ctx context.Context) (rest time.Duration) {
	j.backlogs = nil
	now, ok := j.store.clock.now()
	if !ok || j.store.ensureCompatible(ctx) != nil {
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
	_ = eachMaster(walking, j.store.backend.background, j.orphans)
	return rest
}

// goOn repairs a further page of a shard with a backlog, and returns how long to
// rest. It takes only partitions that have a stale entry for sure: a partition that
// has been due for a whole max_age holds an entry that is older than that.
func (j *Janitor) goOn(ctx context.Context) (rest time.Duration) {
	h := j.backlogs[0]
	j.backlogs = j.backlogs[1:]
	if h.sh.breaker.suspect() {
		return 0
	}
	now, _ := j.store.clock.now()
	return restFactor * j.expire(ctx, h, now-h.ns.Policy.MaxAge.Milliseconds())
}

// tooFarAhead returns partitions whose due time is too far ahead.
func (j *Janitor) tooFarAhead(ctx context.Context, h home, now int64) ([]string, error) {
	names, err := j.store.backend.background.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: h.sh.ready, ByScore: true, Rev: true, // the furthest first: they are the most likely to be wrong
		Start: "+inf", Stop: strconv.FormatInt(now+ahead(h.ns), 10), Count: janitorPage,
	}).Result()
	err = classify(err)
	h.sh.breaker.done(err)
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
	page, err := j.store.backend.background.ZRangeWithScores(ctx, h.sh.ready, first, first+janitorPage-1).Result()
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
		// Partitions that ended have left the active set, which moves the others up.
		j.overdue[h.sh] = first + janitorPage - int64(len(j.unknown(ctx, h.sh, names)))
		if 2*stale >= janitorPage {
			j.backlogs = append(j.backlogs, h)
		}
	}
	return took
}

// ahead is how far in the future the due time of a partition without a range may
// be, in ms: the linger, and 2 s by which the clocks of two masters may differ.
func ahead(ns *Namespace) int64 { return (ns.Policy.Linger + 2*time.Second).Milliseconds() }

// repair returns how many partitions had stale entries, and how long the calls
// took, which is at least as long as Redis worked.
func (j *Janitor) repair(ctx context.Context, h home, names []string) (stale int, took time.Duration) {
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
	j.store.metrics.repaired.Add(float64(repaired))
	j.store.metrics.expired.Add(float64(expired))
	if repaired > 0 {
		j.store.log.Warn("janitor repaired partitions", zap.String("namespace", h.ns.Name), zap.Int64("partitions", repaired))
	}
	return stale, time.Since(began)
}

// repairSome is one script call; it drops a bounded number of stale entries.
func (j *Janitor) repairSome(ctx context.Context, h home, names []string) []job[string] {
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
	}, func(calls []*call) { j.store.run(ctx, j.store.backend.background, calls) }, nil)
}

// orphans looks for lists and hashes that the active set does not know. It scans
// the keyspace of one server, one page per round.
func (j *Janitor) orphans(ctx context.Context, c *redis.Client) error {
	at := c.Options().Addr
	j.mu.Lock()
	from, failed := j.scan[at], j.failed[at]
	j.mu.Unlock()
	if time.Since(failed) < janitorRest {
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
		if h, ok := j.shards[prefix]; ok {
			j.repair(ctx, h, j.unknown(ctx, h.sh, names))
		}
	}
	return nil
}

// unknown returns the names that the active set does not hold. It asks for all of
// them with one command, so that a scan costs Redis the same whatever it finds.
func (j *Janitor) unknown(ctx context.Context, sh *shard, names []string) []string {
	scores, err := j.store.backend.background.ZMScore(ctx, sh.ready, names...).Result()
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
