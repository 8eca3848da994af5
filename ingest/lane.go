package ingest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/share"
)

// lane queues parts and flushes them, one flush at a time, with equal shares for the
// namespaces that wait. Large parts go on to another lane, once all that came before them is
// stored, and so do later parts of their partitions until they are stored: the order within
// a partition stays.
type lane struct {
	index    int   // in lanes.all
	large    *lane // nil: it is one for large parts
	store    Store
	timeout  time.Duration // of a flush
	ctx      context.Context
	metrics  *metrics
	log      *zap.Logger
	logLimit *rate.Sometimes // for errors that every flush may repeat

	mu     sync.Mutex
	filled sync.Cond
	queue  []*part // put since the last flush began
	closed bool
	away   map[string]*int // parts that are in the lane for large ones, by partition

	anyAway atomic.Int32 // length of away

	// The rest belongs to the lane's goroutine.
	waiting share.Queue[*part]
	leaving []*part // that go on to the lane for large ones after this flush
	swept   time.Time
	flush   flush
}

// largePart is from how many bytes on a part is large. It is what packages jobs takes for a
// large publish: to send it takes Redis as long as some hundred small requests.
const largePart = 64 << 10

// sweepEvery is how often a lane looks for parts that wait too long behind other namespaces.
const sweepEvery = 20 * time.Millisecond

// put queues those of the parts that are this lane's, under one lock, so that
// they share a flush.
func (l *lane) put(parts []part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range parts {
		if parts[i].lane == l {
			l.add(&parts[i])
		}
	}
}

// add queues a part. The lane is locked.
func (l *lane) add(p *part) {
	if l.closed {
		l.complete(p, errShuttingDown)
		return
	}
	l.queue = append(l.queue, p)
	l.filled.Signal()
}

// putLarge queues parts that came from another lane, where they may have waited too long.
func (l *lane) putLarge(parts []*part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range parts {
		if !l.rejectLate(p, time.Now()) {
			l.add(p)
		}
	}
}

// rejectLate rejects a part that waits too long, and reports whether it did.
func (l *lane) rejectLate(p *part, now time.Time) bool {
	if now.Sub(p.queued) <= 2*l.timeout {
		return false
	}
	l.complete(p, errOverloaded)
	return true
}

// close makes run return once it has flushed what is queued.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.filled.Signal()
}

// run flushes until the lane is closed and empty.
func (l *lane) run() {
	for l.wait() {
		l.flushOnce()
	}
}

// flushOnce flushes what is next.
func (l *lane) flushOnce() {
	now := time.Now()
	oldest := now
	if now.Sub(l.swept) >= sweepEvery {
		l.swept = now
		l.waiting.Drop(func(p *part) bool { return l.rejectLate(p, now) })
	}
	l.flush.fill(&l.waiting, func(p *part) bool {
		switch {
		case l.ctx.Err() != nil:
			l.complete(p, errShuttingDown)
		case l.rejectLate(p, now):
		case l.goesOn(p):
			l.leaving = append(l.leaving, p)
		default:
			if p.queued.Before(oldest) {
				oldest = p.queued
			}
			return true
		}
		return false
	})
	if len(l.flush.groups) > 0 {
		l.metrics.laneWait.Observe(now.Sub(oldest).Seconds())
		l.metrics.flushEntries.Observe(float64(l.flush.entries))
		l.produce()
		l.metrics.flushSeconds.Observe(time.Since(now).Seconds())
		l.flush.results(l.complete)
	}
	if len(l.leaving) > 0 {
		l.large.putLarge(l.leaving)
		clear(l.leaving)
		l.leaving = l.leaving[:0]
	}
}

// goesOn reports whether a part is for the lane of large ones, and counts it.
func (l *lane) goesOn(p *part) bool {
	if l.large == nil || p.bytes < largePart && l.anyAway.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.away[p.name]
	switch {
	case n == nil && p.bytes < largePart:
		return false
	case n == nil:
		n = new(int)
		l.away[strings.Clone(p.name)] = n // the part's is the request's memory
		l.anyAway.Add(1)
	}
	*n++
	p.home = l
	return true
}

// came notes that a part which went on is done.
func (l *lane) came(p *part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.away[p.name]
	if *n--; *n == 0 {
		delete(l.away, p.name)
		l.anyAway.Add(-1)
	}
}

// wait waits for parts; it is false once the lane is closed and empty.
func (l *lane) wait() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 {
		if _, waits := l.waiting.Next(); waits {
			return true
		} else if l.closed {
			return false
		}
		l.filled.Wait()
	}
	for _, p := range l.queue {
		l.waiting.Push(p.request.namespace.Name, p)
	}
	clear(l.queue)
	l.queue = l.queue[:0]
	return true
}

// produce calls the store with the flush. A panic of the store must not end the
// process and with it every lane. After a panic the outcome is unknown.
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
			l.logLimit.Do(func() {
				l.log.Error("store rejects partition", zap.String("namespace", g.Namespace.Name),
					zap.String("partition", g.Partition), zap.Error(g.Err))
			})
		}
	}
}

// complete gives a part its result. Afterwards the part may belong to another
// request.
func (l *lane) complete(p *part, err error) {
	p.err = err
	if p.home != nil {
		p.home.came(p)
	}
	p.request.partDone()
}
