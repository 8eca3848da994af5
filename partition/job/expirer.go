package job

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

const (
	expireEvery = time.Second
	expirePage  = 500 // jobs that one call looks at
	// A round of the expirer works for at most a fiftieth of a second, so it uses at most
	// 2 % of Redis's time. 500 jobs take about 0.5 ms.
	expireBudget = expireEvery / 50
	// walkEvery is how often a walk through all queues begins, at most.
	walkEvery = 10 * time.Second
	// auditEvery is how often the references of a shard are counted.
	auditEvery = time.Minute
)

// An Expirer drops expired jobs that jobs with a longer TTL hide: neither a claim nor the
// promoter meets them. It also counts the references of each shard, and makes jobs ready again
// whose reference something other than Spillway removed; and it checks whether the store was
// rolled back. Every process runs one, and they do not disturb each other: of several two walk
// through the queues of a shard every 10 s, and the others now and then. Its work per second is
// bounded.
type Expirer struct {
	*lifecycle.Loop
	store    *Store
	pace     *backend.Pace        // of the commands that count references: 300,000 of them in a shard of 100,000 queues
	began    time.Time            // when the walk began
	walks    []walk               // that are left of the walk through all queues
	audits   []walk               // that look for jobs without a reference: hours for a long queue, so they hold up no walk
	walked   map[*shard]time.Time // when a walk through its queues began last
	audited  map[*shard]time.Time // when the references were counted last
	missing  map[*shard]bool      // shards with fewer references than jobs
	stranded map[*home]bool       // namespaces with jobs where no claim asks
}

// A walk goes through the jobs of a queue.
type walk struct {
	place
	queue  string
	cursor string
	audit  bool
	kept   bool // it forgets acked jobs that were kept
}

// NewExpirer makes the expirer of a store. Start sets it going.
func NewExpirer(s *Store) *Expirer {
	e := &Expirer{
		store:    s,
		pace:     backend.NewPace(),
		walked:   map[*shard]time.Time{},
		audited:  map[*shard]time.Time{},
		missing:  map[*shard]bool{},
		stranded: map[*home]bool{},
	}
	e.Loop = lifecycle.New("expirer", nil, e.run)
	return e
}

func (e *Expirer) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { e.store.space.Watch(ctx, e.store.homes) })
	lifecycle.Every(ctx, expireEvery, func() { e.round(ctx) })
}

// round goes on with the walk until the time of the round is used up.
func (e *Expirer) round(ctx context.Context) {
	began := time.Now()
	if len(e.walks) == 0 && time.Since(e.began) >= walkEvery {
		e.began = began
		e.plan(ctx)
	}
	budget := expireBudget
	if len(e.audits) > 0 {
		budget /= 2
		e.audits = e.goOn(ctx, e.audits, budget)
	}
	e.walks = e.goOn(ctx, e.walks, budget)
}

// goOn goes on with walks for some time, and returns those that are left.
func (e *Expirer) goOn(ctx context.Context, walks []walk, budget time.Duration) []walk {
	for began := time.Now(); len(walks) > 0 && ctx.Err() == nil && time.Since(began) < budget; {
		w := &walks[0]
		if w.sh.Breaker.Suspect() || e.step(ctx, w) {
			walks = walks[1:]
		}
	}
	return walks
}

// plan begins a walk through all queues.
func (e *Expirer) plan(ctx context.Context) {
	audited := map[*shard]bool{} // now
	for _, w := range e.audits {
		audited[w.sh] = true
	}
	served, homes := map[*shard]bool{}, map[*home]bool{}
	defer func() { // namespaces come and go
		maps.DeleteFunc(e.walked, func(sh *shard, _ time.Time) bool { return !served[sh] })
		maps.DeleteFunc(e.audited, func(sh *shard, _ time.Time) bool { return !served[sh] })
		maps.DeleteFunc(e.missing, func(sh *shard, _ bool) bool { return !served[sh] })
		maps.DeleteFunc(e.stranded, func(h *home, _ bool) bool { return !homes[h] })
	}()
	for _, ns := range e.store.Namespaces() {
		homes[ns.home] = true
		if !ns.Usable() {
			continue
		}
		var found stranded
		complete := true
		for _, sh := range ns.all() {
			served[sh] = true
			if sh.Breaker.Suspect() {
				complete = false
				continue
			}
			names, err := e.store.appendQueues(ctx, nil, sh)
			if sh.Breaker.Done(err); err != nil {
				complete = false
				continue
			}
			if found.add(ctx, e.store, ns, sh, names) != nil {
				complete = false
			}
			if sh.ends.Needed() {
				names = append(names, outbox)
			}
			if time.Since(e.walked[sh]) < ns.Home.Rest(sh.Number) {
				continue
			}
			e.walked[sh] = time.Now()
			e.planKept(ctx, place{ns, sh})
			audit := !audited[sh] && e.auditDue(ctx, sh, names)
			for _, queue := range names {
				e.walks = append(e.walks, walk{place: place{ns, sh}, queue: queue, cursor: "0"})
				if audit {
					e.audits = append(e.audits, walk{place: place{ns, sh}, queue: queue, cursor: "0", audit: true})
				}
			}
		}
		if complete {
			e.noteStranded(ns, found)
		}
	}
}

// planKept has the walk forget acked jobs of a shard whose time is over.
func (e *Expirer) planKept(ctx context.Context, at place) {
	now, _ := e.store.Now()
	names, _ := e.store.keptQueues(ctx, at.sh, strconv.FormatInt(now, 10)) // the next walk asks again
	for _, queue := range names {
		e.walks = append(e.walks, walk{place: at, queue: queue, kept: true})
	}
}

// keptQueues are queues whose first kept job is over before a time, in ms; 1,000 at most.
func (s *core) keptQueues(ctx context.Context, sh *shard, until string) ([]string, error) {
	names, err := s.backend.Background.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key:     sh.kept,
		Start:   "-inf",
		Stop:    until,
		ByScore: true,
		Count:   1000,
	}).Result()
	return names, backend.Classify(err)
}

func (sh *shard) dropKept(queue string, all int) *backend.Call {
	return backend.NewCall(luajob.DropKept, sh.Breaker,
		[]string{sh.Ledger, sh.kept, sh.until(queue), sh.acked(queue)}, queue, all)
}

// dropKept forgets the acked jobs that a shard keeps of a queue.
func (s *core) dropKept(ctx context.Context, sh *shard, queue string) error {
	for {
		c := sh.dropKept(queue, 1)
		if err := s.paced(ctx, c); err != nil {
			return err
		}
		if left := c.Rest.Int(); left == 0 || c.Rest.Broken {
			return nil
		}
	}
}

// auditDue counts the references of a shard, and reports whether some are missing twice in a
// row: jobs that move meanwhile make single counts wrong.
func (e *Expirer) auditDue(ctx context.Context, sh *shard, queues []string) bool {
	if time.Since(e.audited[sh]) < auditEvery && !e.missing[sh] {
		return false
	}
	e.audited[sh] = time.Now()
	missing, err := e.store.missingReferences(ctx, e.pace, sh, queues)
	if err != nil {
		return false
	}
	before := e.missing[sh]
	e.missing[sh] = missing > 0
	return before && missing > 0
}

// missingReferences is how many jobs of a shard are in no state, about: jobs move while they
// are counted.
func (s *core) missingReferences(ctx context.Context, pace *backend.Pace, sh *shard,
	queues []string) (missing int64, err error) {
	ledger := backend.NewCall(luajob.Ledger, sh.Breaker, []string{sh.Ledger, sh.lease, sh.delay})
	s.backend.Run(ctx, s.backend.Background, []*backend.Call{ledger})
	if ledger.Err != nil {
		return 0, ledger.Err
	}
	pending := int64(0)
	for i := range 12 {
		if n := ledger.Rest.Int(); i >= 8 && i != 10 {
			pending += n // delayed, leased, prepared
		}
	}
	missing = -pending
	for len(queues) > 0 && ctx.Err() == nil {
		n := min(len(queues), maxCallQueues)
		pipe := s.backend.Background.Pipeline()
		tombstones := pipe.HMGet(ctx, sh.tombstones, queues[:n]...)
		counts := make([]interface{ Val() int64 }, 0, 3*n)
		for _, queue := range queues[:n] {
			counts = append(counts, pipe.HLen(ctx, sh.jobs(queue)), pipe.LLen(ctx, sh.ready(queue)),
				pipe.ZCard(ctx, sh.dead(queue)))
		}
		var failed error
		err := pace.Do(ctx, func(ctx context.Context) { _, failed = pipe.Exec(ctx) })
		if err = errors.Join(err, backend.Classify(failed)); err != nil {
			return 0, err
		}
		for i := range n {
			missing += counts[3*i].Val() - counts[3*i+1].Val() - counts[3*i+2].Val()
			if text, ok := tombstones.Val()[i].(string); ok {
				known, _ := number([]byte(text))
				missing += known
			}
		}
		queues = queues[n:]
	}
	return missing, nil
}

// step looks at some jobs of a queue. It returns true when the walk is at its end.
func (e *Expirer) step(ctx context.Context, w *walk) (ended bool) {
	if w.kept {
		c := w.sh.dropKept(w.queue, 0)
		e.store.backend.Run(ctx, e.store.backend.Background, []*backend.Call{c})
		return c.Err != nil || c.Rest.Int() == 0 || c.Rest.Broken
	}
	audit := 0
	if w.audit {
		audit = 1
	}
	s := e.store
	c := backend.NewCall(luajob.Expire, w.sh.Breaker, w.sh.allOf(w.queue), w.queue, w.cursor, expirePage,
		audit, w.sh.channel, s.wake)
	c.Spare = &w.sh.ends
	s.backend.Run(ctx, s.backend.Background, []*backend.Call{c})
	if c.Err != nil {
		return true
	}
	cursor := string(c.Rest.Bulk())
	expired := c.Rest.Int()
	pushed := c.Rest.Int()
	if c.Rest.Broken {
		return true
	}
	w.cursor = cursor
	s.metrics.expired.Add(float64(expired))
	if pushed > 0 {
		s.metrics.repaired.Add(float64(pushed))
		s.log.Warn("jobs had lost their place in the queue and are ready again",
			zap.String("namespace", w.ns.Name), zap.String("queue", w.queue), zap.Int64("jobs", pushed))
	}
	return cursor == "0"
}
