package ingest

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/spillway-io/spillway/partition"
)

// lanes are group commit: requests that are in flight at the same moment share
// a round trip. What arrives while a flush is on the wire makes up the next one,
// so the busier it gets, the larger the flushes and the cheaper an entry; an
// idle lane flushes at once. A partition always has the same lane, and a lane
// one flush at a time: that is what keeps the order within a partition. Each
// zone of the store has lanes of its own, so a flush waits for no master that is
// away but its own.
type lanes struct {
	all    []*lane // those of a zone lie together
	zones  int
	finish func(*request)
	seed   maphash.Seed // not predictable: nobody can aim at one lane
	// abort ends flushes that outlast a shutdown's patience.
	abort   context.CancelFunc
	running sync.WaitGroup
}

// lane collects parts and flushes them, one flush at a time.
type lane struct {
	index   int // in lanes.all
	store   Store
	timeout time.Duration // of a flush
	ctx     context.Context
	metrics *metrics
	log     *zap.Logger
	loud    *rate.Sometimes // for what a person has to look at, however often it happens
	finish  func(*request)

	mu     sync.Mutex
	filled sync.Cond
	queue  []*part // arrived since the last flush began
	closed bool

	// The rest belongs to the lane's goroutine.
	waiting []*part // taken from the queue; oldest first
	head    int     // of waiting: those before were in a flush
	flush   flush
}

func newLanes(cfg Config, store Store, m *metrics, log *zap.Logger, finish func(*request)) *lanes {
	ctx, abort := context.WithCancel(context.Background())
	zones := store.Zones()
	ls := &lanes{zones: zones, finish: finish, seed: maphash.MakeSeed(), abort: abort}
	loud := &rate.Sometimes{First: 3, Interval: 10 * time.Second}
	for i := range zones * ((cfg.Lanes + zones - 1) / zones) {
		l := &lane{
			index: i, store: store, timeout: cfg.ProduceTimeout, ctx: ctx,
			metrics: m, log: log, loud: loud, finish: finish, flush: newFlush(maxKnownPartitions / zones),
		}
		l.filled.L = &l.mu
		ls.all = append(ls.all, l)
	}
	return ls
}

func (ls *lanes) start() {
	for _, l := range ls.all {
		ls.running.Go(l.run)
	}
}

// stop flushes what is queued and waits for the lanes to end. When ctx ends
// first, what is left is rejected. Nothing can be put afterwards.
func (ls *lanes) stop(ctx context.Context) error {
	defer ls.abort()
	defer context.AfterFunc(ctx, ls.abort)()
	for _, l := range ls.all {
		l.mu.Lock()
		l.closed = true
		l.filled.Signal()
		l.mu.Unlock()
	}
	ls.running.Wait()
	return ctx.Err()
}

// put queues all parts of a sealed request but those that were rejected at the
// door. Each gets its result, within three times the budget of a flush; finish
// is called after the last one. Unless the caller waits for that, the request
// is no longer its own.
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
		p.lane = ls.of(p)
	}
	// One more than there are: the request must not be finished, and its
	// memory used for another, while this loop still reads it.
	r.pending.Store(queued + 1)
	switch {
	case queued == 0:
	case len(r.parts) == 1:
		r.parts[0].lane.put(r.parts)
	default:
		ls.spread(r.parts)
	}
	r.partDone(ls.finish)
}

// spread puts parts into their lanes, and leaves out lanes that have none: on a
// cluster most of them.
func (ls *lanes) spread(parts []part) {
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

// of is the lane of a part.
func (ls *lanes) of(p *part) *lane {
	each := len(ls.all) / ls.zones
	i := int(maphash.String(ls.seed, p.name) % uint64(each)) // #nosec G115 -- less than 64
	if ls.zones > 1 {
		i += each * p.request.namespace.ZoneOf(p.name[len(p.request.namespace.Name)+1:])
	}
	return ls.all[i]
}

// settled counts one part less to wait for.
func (r *request) partDone(finish func(*request)) {
	if r.pending.Add(-1) == 0 {
		finish(r)
	}
}

// put queues those of the parts that are this lane's, under one lock, so that
// they share a flush.
func (l *lane) put(parts []part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.queue)
	for i := range parts {
		switch p := &parts[i]; {
		case p.lane != l:
		case l.closed:
			l.complete(p, errShuttingDown)
		default:
			l.queue = append(l.queue, p)
		}
	}
	if len(l.queue) > before {
		l.filled.Signal()
	}
}

// run flushes until the lane is closed and empty.
func (l *lane) run() {
	for l.collect() {
		if l.ctx.Err() != nil {
			l.reject(errShuttingDown)
			continue
		}
		now := time.Now()
		oldest := l.waiting[l.head].queued
		taken := l.flush.fill(l.waiting[l.head:], func(p *part) bool {
			if now.Sub(p.queued) <= 2*l.timeout {
				return true
			}
			l.complete(p, errOverloaded)
			return false
		})
		l.advance(taken)
		if len(l.flush.groups) == 0 {
			continue
		}
		l.metrics.laneWait.Observe(now.Sub(oldest).Seconds())
		l.metrics.flushEntries.Observe(float64(l.flush.entries))
		l.produce()
		l.metrics.flushSeconds.Observe(time.Since(now).Seconds())
		l.flush.share(l.complete)
	}
}

// collect waits for parts; false when there will be none.
func (l *lane) collect() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && l.head == len(l.waiting) {
		if l.closed {
			return false
		}
		l.filled.Wait()
	}
	l.waiting = append(l.waiting, l.queue...)
	clear(l.queue)
	l.queue = l.queue[:0]
	return true
}

// advance forgets the oldest that wait. What is left moves up when it is the
// smaller half, so that a part is moved about once however long the backlog is.
func (l *lane) advance(taken int) {
	clear(l.waiting[l.head : l.head+taken])
	l.head += taken
	if l.head >= len(l.waiting)-l.head {
		n := copy(l.waiting, l.waiting[l.head:])
		clear(l.waiting[n:])
		l.waiting, l.head = l.waiting[:n], 0
	}
}

// produce runs the flush. A panic of the store must not take the process along,
// and with it every lane; nobody knows then what was stored.
func (l *lane) produce() {
	ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			l.metrics.panics.Inc()
			l.log.Error("flush panicked", zap.String("panic", fmt.Sprint(v)), zap.Stack("stack"))
			for _, g := range l.flush.groups {
				g.Err = partition.ErrUnknown
			}
		}
	}()
	l.store.Produce(ctx, l.flush.groups)
	for _, g := range l.flush.groups {
		if errors.Is(g.Err, partition.ErrBroken) {
			l.loud.Do(func() {
				l.log.Error("store rejects partition", zap.String("namespace", g.Namespace.Name),
					zap.String("partition", g.Partition), zap.Error(g.Err))
			})
		}
	}
}

func (l *lane) reject(err error) {
	for _, p := range l.waiting[l.head:] {
		l.complete(p, err)
	}
	l.advance(len(l.waiting) - l.head)
}

// settle gives a part its result. The part may be another request's afterwards.
func (l *lane) complete(p *part, err error) {
	p.err = err
	p.request.partDone(l.finish)
}
