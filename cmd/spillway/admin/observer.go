package admin

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/lifecycle"
	"github.com/spillway-io/spillway/partition/space"
)

const (
	accountsEvery = time.Second
	firstRead     = 250 * time.Millisecond
	// ledgerTime bounds what a ledger takes.
	ledgerTime = 2 * time.Second
	// idleFor bounds how long an account that does not change is not read, where two other
	// processes read it every second and nobody watches.
	idleFor = 30 * time.Second
	// accountsShare is the part of the time that reading may take, so that many
	// namespaces or a slow Redis are read less often.
	accountsShare = 20
	// agesEvery is how often the queues of each namespace are counted for their ages, while
	// nobody asks.
	agesEvery = 10 * time.Second
	// recentFor is how long a rate is taken for that of now. Many accounts are read less often than
	// each second.
	recentFor = 15 * time.Second
)

// observer reads the ledger of each namespace every second, see watched.rests, and counts queues now and
// then. Metrics, overview, findings, log and history take what they need from it, so a scrape or a
// watcher costs the store nothing. It belongs to the Server, and outlives a reload.
type observer struct {
	source          Source
	log             *zap.Logger
	now             func() time.Time
	wake            lifecycle.Signal // of the sweep
	buffers, queues kind
	// rejections are not in the log: a sender's mistakes are none of the service.
	rejections *drops.Notices

	counts *backend.Pace // of reads that go through many queues or jobs
	audits *backend.Pace
	names  *backend.Pace // of reads of all names
	single *backend.Pace // of counts of one queue, which need not wait for those of many

	lastNames atomic.Pointer[queueNames]

	took atomic.Int64 // ns of the last reading of a buffer, which is one round trip

	maxRows   int // of the sweep, and how many it reads again each second
	refreshed int
	turn      int // which namespace is first in its next tick

	mu      sync.Mutex
	store   Store // that the figures of buffers are of
	watched watched
	spaces  map[string]*figures
	tables  map[tableKey]*queueTable
	known   int           // rows of all spaces
	ticked  chan struct{} // closed when a tick of the sweep ends
}

// A kind is what the figures of one kind of namespace are called.
type kind struct {
	drops  *drops.Notices
	rates  []string // outcomes, in the order of a record of the history
	gauges []string // the same, behind them; the first is what waits
	oldest string   // the age of what waits for longest
}

// figures are what is known of a namespace.
type figures struct {
	of *kind
	swept
	reading      // the last one
	changed      time.Time
	recent       window
	rejected     window      // what this process rejected
	minute       int64       // of the last record
	counted      *queueTable // the last one of all its queues; nil: none yet
	dying        string      // the queue whose dead letters rose most when they last did
	dyingAt      time.Time   // when they were counted
	pausedQueues []job.PausedQueue
}

// A reading is the ledger of a namespace at a time.
type reading struct {
	partition.Overview            // of a buffer
	jobs               job.Ledger // of queues
	at                 time.Time
	totals             map[string]int64 // by outcome
	gauges             []int64
}

func newObserver(source Source, log *zap.Logger) *observer {
	reasons := map[string]string{}
	for _, reason := range drops.Reasons() {
		if reason.Rejection() {
			reasons[string(reason)] = ""
		}
	}
	return &observer{
		source: source,
		log:    log,
		now:    time.Now,
		wake:   lifecycle.NewSignal(),
		buffers: kind{
			drops: drops.NewNotices(log, "entries", map[string]string{
				"evicted":              "entries are evicted: partitions are full",
				"expired":              "entries expire: they are older than max_age before a sink takes them",
				"dead":                 "entries become dead letters: the sink rejects them",
				"lost":                 "entries are lost: something other than Spillway removes them from Redis",
				"dead_letters_evicted": "dead letters are dropped: there are more than max_dead or max_dead_bytes keep",
			}),
			rates:  []string{"accepted", "delivered", "evicted", "expired", "dead", "lost", "purged", "dead_letters_evicted"},
			gauges: []string{"buffered"},
			oldest: "oldest_age_ms",
		},
		queues: kind{
			drops: drops.NewNotices(log, "jobs", map[string]string{
				"expired": "jobs expire: nobody acked them within their ttl",
				"died":    "jobs become dead letters: their tries are used up, or a worker buried them",
				"lost":    "jobs are lost: something other than Spillway removes them from Redis",
			}),
			rates:  []string{"published", "acked", "expired", "deleted", "lost", "died", "respawned"},
			gauges: []string{"ready", "pending", "dead"},
			oldest: "oldest_ready_age_ms",
		},
		rejections: drops.NewNotices(zap.NewNop(), "entries", reasons),
		counts:     backend.NewPace(),
		audits:     backend.NewPace(),
		names:      backend.NewPace(),
		single:     backend.NewPace(),
		maxRows:    maxRows,
		refreshed:  refreshed,
		ticked:     make(chan struct{}),
		spaces:     map[string]*figures{},
		tables:     map[tableKey]*queueTable{},
	}
}

// run reads until ctx ends.
func (o *observer) run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { repeat(ctx, accountsEvery, o.read) })
	loops.Go(func() { repeat(ctx, agesEvery, o.readAges) })
	loops.Go(func() { o.sweep(ctx) })
	loops.Wait()
}

// repeat calls f until ctx ends, after a pause that leaves the store most of its time: f
// returns how long it was busy. A call that timed out is none of its work.
func repeat(ctx context.Context, every time.Duration,
	f func(context.Context) (busy time.Duration)) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
			wait.Reset(max(every, accountsShare*f(ctx)))
		}
	}
}

// observed is a namespace of any kind.
type observed struct {
	*kind
	name string
	home *space.Home // nil: no store made it
	read func(context.Context) (reading, error)
}

// observed are the namespaces of a view: the buffers, then the queues of each pool.
func (o *observer) observed(v View) [][]observed {
	all := make([][]observed, 1+len(v.Jobs))
	if v.Store != nil {
		for _, ns := range v.Store.Namespaces() {
			all[0] = append(all[0], observed{&o.buffers, ns.Name, ns.Home(), func(ctx context.Context) (reading, error) {
				l, err := v.Store.Overview(ctx, ns)
				return reading{Overview: l, totals: endings(l), gauges: []int64{l.Ledger.Buffered}}, err
			}})
		}
	}
	for i, store := range v.Jobs {
		for _, ns := range store.Namespaces() {
			all[i+1] = append(all[i+1], observed{&o.queues, ns.Name, ns.Home, func(ctx context.Context) (reading, error) {
				l, err := store.Ledger(ctx, ns)
				return reading{jobs: l, totals: l.Totals(), gauges: []int64{l.Ready, l.Prepared + l.Delayed + l.Leased, l.Dead}}, err
			}})
		}
	}
	return all
}

// follow makes room for the namespaces of the view that holds now.
func (o *observer) follow(store Store, all [][]observed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ns := range slices.Concat(all...) {
		f := o.spaces[ns.name]
		if f == nil {
			f = &figures{of: ns.kind, swept: swept{rows: map[string]*row{}}}
			o.spaces[ns.name] = f
		}
		if ns.kind == &o.buffers && o.store != store { // after a reload, perhaps of another Redis
			f.reading, f.recent, f.rejected = reading{}, nil, nil
		}
	}
	o.store = store
}

// forget drops what is known of namespaces that are no more. Only the sweep calls it, between its own steps.
func (o *observer) forget(all [][]observed) {
	known := map[string]*kind{}
	for _, ns := range slices.Concat(all...) {
		known[ns.name] = ns.kind
	}
	gone := func(name string) bool { return known[name] == nil }
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.spaces, func(name string, f *figures) bool {
		other := known[name] != f.of // it is gone, or was made again as another kind
		if other {
			o.known -= len(f.rows)
		}
		return other
	})
	maps.DeleteFunc(o.tables, func(key tableKey, _ *queueTable) bool { return gone(key.namespace) })
	for _, n := range []*drops.Notices{o.buffers.drops, o.queues.drops, o.rejections} {
		n.Forget(gone)
	}
}

// read reads every ledger once, those of each pool beside those of the others. Where the store does not
// answer, the last ones stay.
func (o *observer) read(ctx context.Context) (busy time.Duration) {
	v := o.source()
	all := o.observed(v)
	o.follow(v.Store, all)
	var pools sync.WaitGroup
	took := make([]time.Duration, len(all))
	for i, pool := range all {
		pools.Go(func() {
			for _, ns := range pool {
				if o.rests(ns) {
					continue
				}
				began := time.Now()
				err := o.readOne(ctx, ns)
				if err == nil {
					took[i] += time.Since(began)
				} else if ns.kind == &o.queues {
					return // the others of the pool would wait, too
				}
			}
		})
	}
	o.reject(v)
	pools.Wait()
	return slices.Max(took)
}

func (o *observer) readOne(ctx context.Context, ns observed) error {
	ctx, cancel := context.WithTimeout(ctx, ledgerTime)
	defer cancel()
	began := time.Now()
	now, err := ns.read(ctx)
	if err != nil {
		return err
	}
	if now.at = o.now(); ns.kind == &o.buffers {
		o.took.Store(int64(time.Since(began)))
	}
	o.note(ns.kind, ns.name, now)
	o.record(ctx, ns, now)
	return nil
}

// note keeps a reading, and has the log say when a namespace begins to lose what it holds, of which kind,
// how much, and when that ends.
func (o *observer) note(of *kind, namespace string, now reading) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.spaces[namespace]
	if f == nil {
		return // it was deleted meanwhile
	}
	if f.at.IsZero() || f.Ledger != now.Ledger || f.Partitions != now.Partitions || f.jobs != now.jobs {
		f.changed = now.at
	}
	if !f.at.IsZero() {
		of.drops.Note(namespace, f.totals, now.totals, now.at)
	}
	f.reading = now
	f.recent.add(now.at, now.totals)
}

// reject notes what ingest of this process rejects.
func (o *observer) reject(v View) {
	if v.Store == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ns := range v.Store.Namespaces() {
		f, now, all := o.spaces[ns.Name], map[string]int64{}, int64(0)
		if f == nil { // it was deleted meanwhile
			continue
		}
		for reason, t := range v.Drops.Totals(ns.Name) {
			if reason.Rejection() {
				now[string(reason)] = t.Entries
				if reason != drops.Unauthorized { // anybody can be that, any number of times
					all += t.Entries
				}
			}
		}
		if n := len(f.rejected); n > 0 {
			o.rejections.Note(ns.Name, f.rejected[n-1].totals, now, o.now())
		}
		now["rejected"] = all
		f.rejected.add(o.now(), now)
	}
}

// record adds what was read to the history, once a minute, by one of all processes. One that has just started leaves its
// first minute to the others: it does not know all yet.
func (o *observer) record(ctx context.Context, ns observed, now reading) {
	if !ns.home.Records() {
		return
	}
	minute, _ := ns.home.History.Minute()
	o.mu.Lock()
	f := o.spaces[ns.name]
	if f == nil || f.minute == minute {
		o.mu.Unlock()
		return
	}
	first := f.minute == 0
	f.minute = minute
	oldest := f.oldest
	if f.counted != nil {
		oldest = f.counted.oldest()
	}
	o.mu.Unlock()
	switch waits := now.gauges[0]; {
	case first:
		return
	case waits == 0:
		oldest = 0
	case oldest == 0:
		oldest = notKnown
	}
	r := space.Record{Minute: minute}
	for _, name := range ns.rates {
		r.Figures = append(r.Figures, now.totals[name])
	}
	r.Figures = append(append(r.Figures, now.gauges...), oldest)
	if err := ns.home.History.Record(ctx, r); err != nil {
		o.log.Debug("history not written", zap.String("namespace", ns.name), zap.Error(err))
	}
}

// watched is since when somebody looks.
type watched struct{ since, last time.Time }

func (w *watched) look(now time.Time) {
	if !w.now(now) {
		w.since = now
	}
	w.last = now
}

func (w *watched) now(now time.Time) bool { return now.Sub(w.last) <= watchedFor }

// rests reports whether the next reading can wait: for as long as the account has not changed, at
// most for idleFor and for what others leave to this process.
func (o *observer) rests(ns observed) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, now := o.spaces[ns.name], o.now()
	return f != nil && !o.watched.now(now) && now.Before(f.due(ns.home.Rest(space.Whole)))
}

func (f *figures) due(others time.Duration) time.Time {
	return f.at.Add(min(idleFor, others, f.at.Sub(f.changed)))
}

// late is how long there should be another reading: it rested, until somebody looked.
func (f *figures) late(now time.Time, others time.Duration, w watched) time.Duration {
	due := f.due(others)
	if w.now(now) && w.since.Before(due) {
		due = w.since
	}
	if f.at.After(due) {
		due = f.at
	}
	return now.Sub(due)
}

// seen are the figures of a namespace, its rates by outcome where they are known, and what a judge needs of them.
func (o *observer) seen(of *kind, name string, home *space.Home, now time.Time) (f *figures, rates map[string]float32, e evidence) {
	if f = o.spaces[name]; f == nil { // it is new
		f = &figures{of: of}
	}
	rates = map[string]float32{}
	f.recent.rates(rates, of.rates, now)
	f.rejected.rates(rates, []string{"rejected"}, now)
	e = evidence{late: f.late(now, home.Rest(space.Whole), o.watched), ends: of.drops.Now(name, now)}
	return f, rates, e
}
