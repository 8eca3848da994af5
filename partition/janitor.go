package partition

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition/lifecycle"
	"github.com/spillway-io/spillway/partition/space"
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
// repair is one script; of several processes two look at a shard every second, and the others
// now and then. A janitor skips shards that are unreachable, so that the
// others get their round. Its work per second is bounded, and does not grow with
// partitions that are idle or not yet due. It works between the rounds only while
// it finds stale entries.
type Janitor struct {
	*lifecycle.Loop
	store    *Store
	overdue  map[*shard]int64     // rank where the next page of overdue partitions begins
	looked   map[*shard]time.Time // when a round looked at it last
	ahead    map[*shard]int64     // rank from the other end where the second page of those far ahead begins
	backlogs []home               // shards that nobody drains and that have more stale entries; the next one first

	mu     sync.Mutex
	scan   map[string]uint64    // SCAN cursor by server
	failed map[string]time.Time // when a SCAN of a server last failed
	walked map[string]time.Time // when a server was scanned last
}

// NewJanitor makes the janitor of a store. Start sets it going.
func NewJanitor(s *Store) *Janitor {
	j := &Janitor{
		store:   s,
		overdue: map[*shard]int64{},
		looked:  map[*shard]time.Time{},
		ahead:   map[*shard]int64{},
		scan:    map[string]uint64{},
		failed:  map[string]time.Time{},
		walked:  map[string]time.Time{},
	}
	j.Loop = lifecycle.New("janitor", nil, j.run)
	return j
}

// shards are those of all namespaces, by their key prefix.
func (j *Janitor) shards() map[string]home {
	all := map[string]home{}
	for _, ns := range j.store.Namespaces() {
		for _, sh := range ns.shards() {
			all[sh.Prefix] = home{ns, sh}
		}
	}
	return all
}

func (j *Janitor) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { j.store.space.Watch(ctx, func() []*space.Home { return j.store.homes }) })
	tick := time.NewTicker(janitorEvery)
	defer tick.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
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
