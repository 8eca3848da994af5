package job

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

const (
	promoteEvery = 1000    // ms until a shard is looked at again, at most: other processes make jobs, too
	promoteLate  = 8       // ms that a look is late at most, at random: of several processes mostly one finds work
	headEvery    = 3600000 // ms until the head of a queue is looked at, where it never expires
	promotePage  = 256     // delayed jobs and lapsed leases of a look
	headPage     = 64      // queues whose head is looked at
	lookPages    = 16      // pages of a look, about 30 ms of Redis's time: then other shards of the server have their turn
)

// A Promoter makes delayed jobs ready when they are due, ends leases that lapsed, and drops
// expired jobs at the heads of queues. Every process runs one. Promoters do not disturb each
// other: the script checks each due time again. It sleeps until the next due time that it
// knows of; what this process publishes and claims wakes it. Of several processes two look at a
// shard every second, and the others now and then.
type Promoter struct {
	*lifecycle.Loop
	store *Store
	busy  map[redis.Cmdable]bool // servers that a look is under way at
	// checks is whether namespaces that did not pass a Check are checked now. That takes
	// seconds each while their master is away, and holds up no other.
	checks bool
	mu     sync.Mutex // of what is above
}

// NewPromoter makes the promoter of a store. Start sets it going.
func NewPromoter(s *Store) *Promoter {
	p := &Promoter{store: s, busy: map[redis.Cmdable]bool{}}
	p.Loop = lifecycle.New("promoter", nil, p.run)
	return p
}

func (p *Promoter) run(ctx context.Context) {
	var looks sync.WaitGroup
	defer looks.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.store.alarm.wake:
		}
		timer.Reset(p.round(ctx, &looks))
	}
}

// round begins to look at the shards whose time has come, each server's in a goroutine. It
// returns how long to sleep.
func (p *Promoter) round(ctx context.Context, looks *sync.WaitGroup) time.Duration {
	s := p.store
	s.alarm.until.Store(math.MaxInt64) // what comes due from here on may be missed below: it rings
	now, ok := s.backend.Now()
	if !ok {
		if _, err := s.backend.KnownTime(ctx); err != nil {
			return time.Second
		}
		now, _ = s.backend.Now()
	}
	next, age := now+promoteEvery, time.Since(s.opened).Milliseconds()
	due := map[redis.Cmdable][]place{}
	var unchecked []*Namespace
	for _, ns := range s.Namespaces() {
		if passed, err := s.space.Known(ns.Home); !passed {
			unchecked = append(unchecked, ns)
			continue
		} else if err != nil {
			continue
		}
		for _, sh := range ns.all() {
			if look := sh.look.Load(); look > now && age-sh.looked.Load() < lookEvery(ns, sh) {
				next = min(next, look)
			} else if !sh.Breaker.Suspect() {
				server := s.backend.ClientFor(ctx, sh.Ledger)
				due[server] = append(due[server], place{ns, sh})
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for server, shards := range due {
		if p.busy[server] {
			continue // it signals when it is done
		}
		p.busy[server] = true
		looks.Go(func() {
			p.look(ctx, shards)
			p.mu.Lock()
			delete(p.busy, server)
			p.mu.Unlock()
			s.alarm.ring()
		})
	}
	if len(unchecked) > 0 && !p.checks {
		p.checks = true
		looks.Go(func() { p.check(ctx, unchecked) })
	}
	late := rand.Int64N(promoteLate) // #nosec G404 -- spreads processes
	s.alarm.until.Store(next)
	return time.Duration(next-now+late) * time.Millisecond
}

// lookEvery is how long a shard is not looked at, in ms, where nothing that this process knows of
// comes due.
func lookEvery(ns *Namespace, sh *shard) int64 {
	return max(promoteEvery, ns.Home.Rest(sh.Number).Milliseconds())
}

// check checks namespaces, and has a round look at those that pass.
func (p *Promoter) check(ctx context.Context, list []*Namespace) {
	passed := false
	for _, ns := range list {
		passed = p.store.space.CheckOne(ctx, ns.Home) == nil || passed
	}
	p.mu.Lock()
	p.checks = false
	p.mu.Unlock()
	if passed {
		p.store.alarm.ring()
	}
}

// place is a shard and its namespace.
type place struct {
	ns *Namespace
	sh *shard
}

// look reads what is due in shards of one server, and promotes it, until nothing is left or
// others have waited long enough.
func (p *Promoter) look(ctx context.Context, shards []place) {
	for n := 0; len(shards) > 0 && ctx.Err() == nil; n++ {
		if n == lookPages {
			for _, h := range shards {
				p.store.comesDue(h.sh, 0) // the next round goes on
			}
			return
		}
		pages := p.read(ctx, shards)
		var calls []*backend.Call
		var of []*page // of each call
		for _, page := range pages {
			for _, c := range page.calls(p.store) {
				calls, of = append(calls, c), append(of, page)
			}
		}
		if len(calls) > 0 {
			p.store.backend.Run(ctx, p.store.backend.Background, calls)
		}
		for i, c := range calls {
			if c.Err != nil {
				of[i].failed = true // next time
				continue
			}
			ready := c.Rest.Int()
			dead := c.Rest.Int()
			expired := c.Rest.Int()
			lost := c.Rest.Int()
			more := c.Rest.Int()
			of[i].more = of[i].more || more == 1
			p.store.ended(of[i].ns, of[i].sh.Number)
			if of[i].ns.Noted() && !of[i].noted && ready+dead+expired+lost > 0 {
				of[i].noted = true
				of[i].note(p.store, c.Now)
			}
			if c.Now < of[i].latest {
				of[i].early = true
				p.store.comesDue(of[i].sh, of[i].latest+promoteLate)
			}
			p.store.metrics.promoted.WithLabelValues(Ready.String()).Add(float64(ready))
			p.store.metrics.promoted.WithLabelValues(Dead.String()).Add(float64(dead))
			p.store.metrics.promoted.WithLabelValues(Expired.String()).Add(float64(expired))
			p.store.metrics.lost.Add(float64(lost))
		}
		shards = shards[:0]
		for _, page := range pages {
			if page.again() {
				shards = append(shards, page.place)
			}
		}
	}
}

// A page is what is due in one shard.
type page struct {
	place
	delayed, lapsed, heads, schedules *redis.ZSliceCmd
	last                              *redis.SliceCmd  // the newest sequence: when something was published last, µs; nil: it is known
	total                             func()           // counts the schedules
	prepared                          *redis.ZSliceCmd // nil: the shard has none
	groups                            map[string]*duePerQueue
	names                             []string
	latest                            int64 // the last due time of those that are due, ms
	full                              bool  // it has as many as were asked for
	more                              bool  // a head has more to drop
	early                             bool  // the clock of this process is ahead of the server's
	failed                            bool
	noted                             bool // for traces
}

// again reports whether the shard deserves another page at once. Each call makes progress: what
// a key of another type keeps from being promoted is put off by the script.
func (p *page) again() bool { return !p.failed && !p.early && (p.full || p.more) }

// note notes what came due, once a call that had it did something: where others were first, both
// say so.
func (p *page) note(s *Store, now int64) {
	each := func(list []redis.Z, event string) {
		for _, z := range list {
			member, _ := z.Member.(string)
			text, queue, _ := strings.Cut(member, " ")
			seq, err := strconv.ParseInt(text, 10, 64)
			_, part := math.Modf(z.Score)
			if err != nil || z.Score > float64(now) || event == "promoted" && part > 0 { // one that waits for a slot is looked at again
				continue
			}
			ref := Ref{Shard: p.sh.Number, Seq: seq}
			s.note(p.ns, queue, ref, TraceEvent{AtMS: now, Event: event})
			if event == "lapsed" && part >= 0.5 && p.ns.keeps(queue) == 1 {
				s.note(p.ns, queue, ref, TraceEvent{AtMS: now, Event: Dead.String(), Reason: Lapsed.String()})
			}
		}
	}
	each(p.delayed.Val(), "promoted")
	each(p.lapsed.Val(), "lapsed")
}

// duePerQueue is what is due of one queue.
type duePerQueue struct {
	delayed, lapsed []string // sequences
	head            bool
}

// read reads a page of each shard: what is due, and what comes due within promoteEvery.
func (p *Promoter) read(ctx context.Context, shards []place) []*page {
	s := p.store
	now, _ := s.backend.Now()
	until := strconv.FormatInt(now+promoteEvery, 10)
	pages := make([]*page, len(shards))
	pipe := s.backend.ClientFor(ctx, shards[0].sh.Ledger).Pipeline()
	told := pipe.Time(ctx) // an idle process has no other reply that tells of a step
	for i, h := range shards {
		h.sh.look.Store(now + lookEvery(h.ns, h.sh)) // what is published from here on sets it back
		h.sh.looked.Store(time.Since(s.opened).Milliseconds())
		by := func(key string, count int64) *redis.ZSliceCmd {
			return pipe.ZRangeArgsWithScores(ctx,
				redis.ZRangeArgs{Key: key, ByScore: true, Start: "0", Stop: until, Count: count})
		}
		pages[i] = &page{
			place:     h,
			groups:    map[string]*duePerQueue{},
			delayed:   by(h.sh.delay, promotePage),
			lapsed:    by(h.sh.lease, promotePage),
			heads:     by(h.sh.queues, headPage),
			schedules: by(h.sh.due, 1),
			total:     h.sh.schedules.ask(ctx, pipe, h.sh, h.sh.looked.Load(), now),
		}
		if h.sh.told.Load() == 0 {
			pages[i].last = pipe.HMGet(ctx, h.sh.Ledger, "seq")
		}
		if h.sh.ends.Needed() { // prepared jobs are by minus that time, so the first is the highest
			pages[i].prepared = pipe.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: h.sh.delay, ByScore: true,
				Rev: true, Start: "(0", Stop: "-" + until, Count: promotePage})
		}
	}
	ctx, cancel := s.backend.Probing(ctx)
	defer cancel()
	sent := time.Now()
	_, execErr := pipe.Exec(ctx)
	if told.Err() == nil {
		s.backend.Clock().Observe(sent, time.Now(), told.Val().UnixMilli())
		now, _ = s.backend.Now()
	}
	var read []*page
	for _, page := range pages {
		err := page.delayed.Err()
		for _, e := range []error{page.lapsed.Err(), page.heads.Err(), page.schedules.Err()} {
			if err == nil {
				err = e
			}
		}
		if err == nil && execErr != nil && !backend.IsWrongType(execErr) &&
			len(page.delayed.Val())+len(page.lapsed.Val())+len(page.heads.Val()) == 0 {
			err = execErr // no connection was made; the commands have no error of their own
		}
		err = backend.Classify(err)
		page.sh.Breaker.Done(err)
		if err != nil {
			s.backend.CountError(err)
		} else {
			page.total()
			if page.stepped(told.Val().UnixMilli()) {
				s.behind.add(DueShard{page.ns, page.sh.Number})
				s.due.wake.Ring()
			}
			s.sortOut(page, now)
			read = append(read, page)
		}
	}
	return read
}

// stepped reports whether the clock of the server has gone back by more than a second: behind what it told before, or, for a
// process that is new, behind the newest job.
func (p *page) stepped(now int64) bool {
	before := p.sh.told.Swap(now)
	if p.last != nil && len(p.last.Val()) == 1 {
		text, _ := p.last.Val()[0].(string)
		us, _ := strconv.ParseInt(text, 10, 64)
		before = us / 1000
	}
	return now < before-1000
}

// sortOut groups what is due by queue, and notes when the shard deserves its next look.
func (s *Store) sortOut(p *page, now int64) {
	of := func(queue string) *duePerQueue {
		g := p.groups[queue]
		if g == nil {
			g = &duePerQueue{}
			p.groups[queue] = g
			p.names = append(p.names, queue)
		}
		return g
	}
	each := func(list []redis.Z, count int, due func(member string)) {
		n := 0
		for _, z := range list {
			if z.Score > float64(now) {
				s.comesDue(p.sh, int64(z.Score)+1)
				return
			}
			member, _ := z.Member.(string)
			due(member)
			p.latest = max(p.latest, int64(z.Score))
			n++
		}
		p.full = p.full || n == count
	}
	delayed := func(member string) {
		if seq, queue, ok := strings.Cut(member, " "); ok {
			of(queue).delayed = append(of(queue).delayed, seq)
		}
	}
	each(p.delayed.Val(), promotePage, delayed)
	if p.prepared != nil {
		asked := p.prepared.Val()
		for i := range asked {
			asked[i].Score = -asked[i].Score
		}
		each(asked, promotePage, delayed)
	}
	each(p.lapsed.Val(), promotePage, func(member string) {
		if seq, queue, ok := strings.Cut(member, " "); ok {
			of(queue).lapsed = append(of(queue).lapsed, seq)
		}
	})
	each(p.heads.Val(), headPage, func(queue string) { of(queue).head = true })
	for _, z := range p.schedules.Val() {
		if z.Score > float64(now) {
			s.comesDue(p.sh, int64(z.Score))
		} else {
			s.due.add(DueShard{p.ns, p.sh.Number})
		}
	}
}

// calls are the calls of promote for a page, with up to 64 queues each.
func (p *page) calls(s *Store) (calls []*backend.Call) {
	for names := p.names; len(names) > 0; {
		n := min(len(names), maxCallQueues)
		calls = append(calls, p.call(s, names[:n]))
		names = names[n:]
	}
	return calls
}

func (p *page) call(s *Store, names []string) *backend.Call {
	sh := p.sh
	keys := []string{sh.Ledger, sh.lease, sh.attempts, sh.queues, sh.delay, sh.tombstones}
	argv := []any{sh.channel, s.wake, headEvery, len(names)}
	for _, queue := range names {
		keys = append(keys, sh.ready(queue), sh.jobs(queue), sh.dead(queue), sh.ids(queue))
		argv = append(argv, queue)
	}
	for _, queue := range names {
		argv = append(argv, p.ns.keeps(queue))
	}
	for i, queue := range names {
		g := p.groups[queue]
		add := func(kind string, seqs []string) {
			argv = append(argv, i+1, kind, len(seqs))
			for _, seq := range seqs {
				argv = append(argv, seq)
			}
		}
		if len(g.delayed) > 0 {
			add("delay", g.delayed)
		}
		if len(g.lapsed) > 0 {
			add("lease", g.lapsed)
		}
		if g.head {
			add("head", nil)
		}
	}
	c := backend.NewCall(luajob.Promote, sh.Breaker, keys, argv...)
	c.Spare = &sh.ends
	return c
}
