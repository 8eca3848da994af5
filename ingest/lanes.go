package ingest

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/spillway-io/spillway/partition/share"
)

// lanes commit in groups: requests that are in flight at the same time share a
// round trip to the store. What arrives during a flush makes up the next one. So
// the more requests there are, the larger the flushes and the cheaper an entry;
// an idle lane flushes at once. A partition always has the same lane, and a lane
// runs one flush at a time. That keeps the order within a partition, unless Redis forgets
// its scripts in the middle of a pipeline: a client that needs order awaits each answer. Each zone
// of the store has lanes of its own, so a flush waits only for the Redis master
// of its zone.
type lanes struct {
	all   []*lane // ordered by zone
	large []*lane // one a zone: small parts do not wait until large ones are sent
	zones int
	seed  maphash.Seed // random, so nobody can choose names that share a lane
	// abort ends the flushes that still run when the context of stop ends.
	abort   context.CancelFunc
	running sync.WaitGroup
	slow    sync.WaitGroup // those for large parts
}

// newLanes makes lanes that are not started.
func newLanes(cfg Config, store Store, m *metrics, log *zap.Logger) *lanes {
	ctx, abort := context.WithCancel(context.Background())
	zones := max(1, store.Zones()) // 0: every namespace is a mount's
	ls := &lanes{zones: zones, seed: maphash.MakeSeed(), abort: abort}
	logLimit := &rate.Sometimes{First: 3, Interval: 10 * time.Second}
	newLane := func(i, maxBytes int) *lane {
		l := &lane{
			index:    i,
			store:    store,
			timeout:  cfg.ProduceTimeout,
			ctx:      ctx,
			metrics:  m,
			log:      log,
			logLimit: logLimit,
			flush:    newFlush(maxKnownPartitions/zones, maxBytes),
			waiting:  share.NewQueue[*part](),
			away:     map[string]*int{},
		}
		l.filled.L = &l.mu
		return l
	}
	perZone := (cfg.Lanes + zones - 1) / zones
	for i := range zones * perZone {
		if i%perZone == 0 {
			ls.large = append(ls.large, newLane(0, maxLargeFlushBytes))
		}
		l := newLane(i, maxFlushBytes)
		l.large = ls.large[len(ls.large)-1]
		ls.all = append(ls.all, l)
	}
	return ls
}

func (ls *lanes) start() {
	for _, l := range ls.all {
		ls.running.Go(l.run)
	}
	for _, l := range ls.large {
		ls.slow.Go(l.run)
	}
}

// stop flushes what is queued and waits for the lanes to end. When ctx ends
// first, it rejects what is left. Parts that are put afterwards are rejected.
func (ls *lanes) stop(ctx context.Context) error {
	defer ls.abort()
	defer context.AfterFunc(ctx, ls.abort)()
	for _, l := range ls.all {
		l.close()
	}
	ls.running.Wait()
	for _, l := range ls.large { // what they have comes from the others
		l.close()
	}
	ls.slow.Wait()
	return ctx.Err()
}

// put queues the parts of a sealed request, except parts that already have an
// error. Each gets its result within three times ProduceTimeout. r.done receives after the last one.
func (ls *lanes) put(r *request) {
	now := time.Now()
	queued := int32(0)
	for i := range r.parts {
		p := &r.parts[i]
		if p.err != nil {
			continue
		}
		queued++
		p.queued = now
		p.lane = ls.laneOf(p)
	}
	// One more than are queued, so that the request is not done, and reused, while this function
	// still reads it.
	r.pending.Store(queued + 1)
	switch {
	case queued == 0:
	case len(r.parts) == 1:
		r.parts[0].lane.put(r.parts)
	default:
		ls.putEach(r.parts)
	}
	r.partDone()
}

// putEach puts parts into their lanes. It leaves out the lanes that have none of
// them, which are most of the lanes on a cluster.
func (ls *lanes) putEach(parts []part) {
	var used [maxTotalLanes]bool
	for i := range parts {
		if parts[i].err == nil {
			used[parts[i].lane.index] = true
		}
	}
	for i, l := range ls.all {
		if used[i] {
			l.put(parts)
		}
	}
}

func (ls *lanes) laneOf(p *part) *lane {
	perZone := len(ls.all) / ls.zones
	i := int(maphash.String(ls.seed, p.name) % uint64(perZone)) // #nosec G115 -- less than 64
	return ls.all[perZone*ls.zoneOf(p)+i]
}

func (ls *lanes) zoneOf(p *part) int {
	if ls.zones == 1 {
		return 0
	}
	return p.request.namespace.ZoneOf(p.name[len(p.request.namespace.Name)+1:])
}

// partDone counts down the results that a request waits for.
func (r *request) partDone() {
	if r.pending.Add(-1) == 0 {
		r.done <- struct{}{}
	}
}
