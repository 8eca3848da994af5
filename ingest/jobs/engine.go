// Package jobs serves durable jobs on the data port: publish, claim, settle and read.
//
// An Engine runs the requests of all connections. Requests that are in flight together
// share calls of the store (lane.go). A claim that finds nothing may wait (poll.go): it is
// woken when its queues have jobs (waiters.go), and costs no command of the store until
// then. So does a wait for the end of a job (await.go). A client that goes away while it waits,
// or before it is answered, takes no job with it (hangup_linux.go). Mount gives the native routes to an ingest.Server.
package jobs

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/share"
)

// Engine runs requests about jobs. Its methods may be called concurrently.
type Engine struct {
	cfg     Config
	store   Store
	log     *zap.Logger
	metrics *metrics
	lanes   []*lane // ordered by zone; the last of each zone is for large jobs
	zones   zoned   // nil: one zone
	seed    maphash.Seed
	abort   context.CancelFunc // ends the flushes that still run when the context of Stop ends
	running sync.WaitGroup
	claims  sync.WaitGroup // claims that run, or are answered
	returns sync.WaitGroup // jobs that are given back now
	ended   chan struct{}  // closed when Stop has ended
	hangups *hangups
	wakes   job.Listener
	workers workers
	awaited atomic.Int64  // requests that wait for the end of a job: an ack looks no further where there are none
	again   time.Duration // see lookAgain
	// publishes counts those of queues over several shards.
	publishes atomic.Uint64

	mu      sync.Mutex
	started bool
	stopped bool                // it takes no claims any more
	closed  bool                // nor jobs that are to be given back
	queues  map[queueKey]*queue // that polls wait for
	polls   map[*poll]struct{}  // that wait
	turn    int                 // where the next poll over several shards begins
	last    map[string]answer   // to a claim, of each namespace
	awaits  awaits              // requests that wait for the end of a job
}

// answer is what a claim got. The next of its namespace take about as much of a flush.
type answer struct {
	jobs  int
	large bool // the jobs, or those of the last answer that had any
}

// New makes an engine that is not started. It returns a *partition.FieldError for an unusable
// setting.
func New(cfg Config, store Store, reg prometheus.Registerer, log *zap.Logger) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg:    cfg,
		store:  store,
		log:    log,
		seed:   maphash.MakeSeed(),
		ended:  make(chan struct{}),
		queues: map[queueKey]*queue{},
		polls:  map[*poll]struct{}{},
		last:   map[string]answer{},
		awaits: awaits{},
		again:  lookAgain,
	}
	e.wakes, e.hangups = store.Listen(e.hear), newHangups(log)
	var err error
	if e.metrics, err = newMetrics(reg, e); err != nil {
		return nil, err
	}
	zones := 1
	if z, ok := store.(zoned); ok && z.Zones() > 1 {
		e.zones, zones = z, z.Zones()
	}
	ctx, abort := context.WithCancel(context.Background())
	e.abort = abort
	perZone := (cfg.Lanes+zones-1)/zones + 1
	for i := range zones * perZone {
		l := &lane{
			engine:   e,
			memory:   store.NewLane(),
			ctx:      ctx,
			maxBytes: maxFlushBytes,
			waiting:  share.NewQueue[*work](),
		}
		if i%perZone == perZone-1 {
			l.maxBytes = maxLargeFlushBytes
		}
		l.filled.L = &l.mu
		e.lanes = append(e.lanes, l)
	}
	return e, nil
}

// Start runs the lanes until Stop. A second Start is an error.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started || e.stopped {
		return errors.New("start: the engine was started or stopped before")
	}
	if err := e.wakes.Start(ctx); err != nil {
		return err
	}
	e.started = true
	for _, l := range e.lanes {
		e.running.Go(l.run)
	}
	return nil
}

// Stop answers the claims that wait, flushes the work that is queued, and gives back the jobs
// of claims with an unknown outcome and of clients that went away. When ctx ends first, it
// rejects the work that is left. Requests after Stop get ErrStopping. It is safe before Start,
// twice, and concurrently.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	first, started := !e.stopped, e.started
	e.stopped = true
	for p := range e.polls {
		p.nudge()
	}
	e.mu.Unlock()
	defer e.abort()
	defer context.AfterFunc(ctx, e.abort)() // flushes, claims and returns then end at once
	if !first {
		<-e.ended
		return ctx.Err()
	}
	defer close(e.ended)
	if !started {
		for _, l := range e.lanes {
			l.close()
		}
		return nil
	}
	e.claims.Wait() // they may have jobs to give back
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.returns.Wait()
	for _, l := range e.lanes {
		l.close()
	}
	e.running.Wait()
	err := ctx.Err()
	for _, l := range e.lanes {
		err = errors.Join(err, e.store.Revert(ctx, l.memory))
	}
	e.hangups.close()
	return errors.Join(err, e.wakes.Stop(ctx))
}

// enter counts a claim, until e.claims.Done; false: the engine stops.
func (e *Engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return false
	}
	e.claims.Add(1)
	return true
}

// laneOf is the lane of a queue. It is always the same one, so that requests of one queue
// share a script call.
func (e *Engine) laneOf(ns *job.Namespace, queue string) *lane {
	zone := e.zoneOf(ns, queue)
	at := 0
	if n := len(zone) - 1; n > 1 {
		at = int(maphash.String(e.seed, queue) % uint64(n)) // #nosec G115 -- at most 64
	}
	return zone[at]
}

// zoneOf are the lanes of a queue's zone.
func (e *Engine) zoneOf(ns *job.Namespace, queue string) []*lane {
	if e.zones == nil {
		return e.lanes
	}
	n, at := len(e.lanes)/e.zones.Zones(), e.zones.ZoneOf(ns, ns.Shards(queue)[0])
	return e.lanes[n*at : n*(at+1)]
}

// Publish stores messages and sets the results.
func (e *Engine) Publish(ps ...*job.Publish) {
	run(ps, e.publishLane, func(w *work, p *job.Publish) {
		w.namespace = p.Namespace.Name
		w.batch.Publishes = append(w.batch.Publishes, p)
		w.jobs += len(p.Messages)
		w.bytes += publishBytes(p)
	})
}

// publishLane is the lane of a publish. Large ones have a lane of their own: small work does
// not wait until they are sent.
func (e *Engine) publishLane(p *job.Publish) *lane {
	if publishBytes(p) < largePublish {
		return e.laneOf(p.Namespace, p.Queue)
	}
	return e.largeLane(p.Namespace, p.Queue)
}

func (e *Engine) largeLane(ns *job.Namespace, queue string) *lane {
	zone := e.zoneOf(ns, queue)
	return zone[len(zone)-1]
}

func publishBytes(p *job.Publish) (bytes int) {
	for i := range p.Messages {
		bytes += len(p.Messages[i].Payload) + len(p.Messages[i].Attributes) + recordOverhead
	}
	return bytes
}

// recordOverhead is what the store adds to a job, in bytes, about.
const recordOverhead = 64

// Ack ends jobs and sets the results.
func (e *Engine) Ack(as ...*job.Ack) {
	run(as, func(a *job.Ack) *lane { return e.laneOf(a.Namespace, a.Queue) }, func(w *work, a *job.Ack) {
		w.namespace = a.Namespace.Name
		w.batch.Acks = append(w.batch.Acks, a)
		w.jobs++
	})
	if e.awaited.Load() == 0 {
		return
	}
	for _, a := range as {
		if a.Acked || a.Deleted {
			e.tellEnd(a.Namespace, a.Ref)
		}
	}
}

// Settle changes or ends leases and sets the results.
func (e *Engine) Settle(ss ...*job.Settle) {
	run(ss, func(s *job.Settle) *lane { return e.laneOf(s.Namespace, s.Queue) },
		func(w *work, s *job.Settle) {
			w.namespace = s.Namespace.Name
			w.batch.Settles = append(w.batch.Settles, s)
			w.jobs++
		})
	if e.awaited.Load() == 0 {
		return
	}
	for _, s := range ss {
		if s.Err == nil && (s.State == job.Dead || s.State == job.Expired || s.State == job.Lost) {
			e.tellEnd(s.Namespace, s.Ref)
		}
	}
}

// run gives each item to its lane and waits for all of them. The items of one lane are one
// work, which counts for the namespace of its last item.
func run[T any](items []T, of func(T) *lane, add func(*work, T)) {
	p := &pending{done: make(chan struct{}, 1)}
	works := make([]*work, 0, 1)
	lanes := make([]*lane, 0, 1)
	for _, item := range items {
		l := of(item)
		i := slices.Index(lanes, l)
		if i < 0 {
			i = len(lanes)
			lanes, works = append(lanes, l), append(works, &work{done: p.finish})
		}
		add(works[i], item)
	}
	if len(works) == 0 {
		return
	}
	p.left.Store(int32(len(works))) // #nosec G115 -- at most as many as lanes
	for i, l := range lanes {
		l.put(works[i])
	}
	<-p.done
}

// pending counts the lanes that have not yet answered, and then wakes the caller.
type pending struct {
	left atomic.Int32
	done chan struct{}
}

func (p *pending) finish() {
	if p.left.Add(-1) == 0 {
		p.done <- struct{}{}
	}
}

// Store is what an Engine needs; *job.Store is one.
type Store interface {
	verb.Store
	job.Reads
	Namespace(name string) *job.Namespace
	Queues(ctx context.Context, ns *job.Namespace) ([]string, error)
	Revert(ctx context.Context, l *job.Lane) error
	Listen(on func(job.WakeEvent)) job.Listener
}

// zoned is a store over several Redis masters, in zones of slots.
type zoned interface {
	Zones() int
	ZoneOf(ns *job.Namespace, shard int) int
}

// Errors of an Engine, beside the store's. After each of them nothing is stored or claimed.
var (
	ErrOverloaded = errors.New("waited too long for a flush")
	ErrStopping   = errors.New("shutting down")
	// ErrHungUp: the client closed its connection, or its half of it.
	ErrHungUp = errors.New("the client went away")
	// ErrNoNamespace: the namespace was deleted while the client waited.
	ErrNoNamespace = errors.New("the namespace was deleted")
	// ErrRevoked: the client's token was removed while it waited.
	ErrRevoked = errors.New("the token was revoked")
)
