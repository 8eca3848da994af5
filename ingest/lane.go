package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/spillway-io/spillway/partition"
)

// lane queues parts and flushes them, one flush at a time.
type lane struct {
	index    int // in lanes.all
	store    Store
	timeout  time.Duration // of a flush
	ctx      context.Context
	metrics  *metrics
	log      *zap.Logger
	logLimit *rate.Sometimes // for errors that every flush may repeat
	finish   func(*request)

	mu     sync.Mutex
	filled sync.Cond
	queue  []*part // put since the last flush began
	closed bool

	// The rest belongs to the lane's goroutine.
	waiting []*part // taken from the queue, oldest first
	head    int     // index in waiting of the first part that was in no flush
	flush   flush
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
		if l.ctx.Err() != nil {
			l.rejectAll(errShuttingDown)
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
		l.flush.results(l.complete)
	}
}

// wait waits for parts; it is false once the lane is closed and empty.
func (l *lane) wait() bool {
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

// advance removes the oldest parts from waiting. It moves the rest to the front
// only when the rest is the smaller half. So a part is moved about once, however
// long the backlog is.
func (l *lane) advance(taken int) {
	clear(l.waiting[l.head : l.head+taken])
	l.head += taken
	if l.head >= len(l.waiting)-l.head {
		n := copy(l.waiting, l.waiting[l.head:])
		clear(l.waiting[n:])
		l.waiting, l.head = l.waiting[:n], 0
	}
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

func (l *lane) rejectAll(err error) {
	for _, p := range l.waiting[l.head:] {
		l.complete(p, err)
	}
	l.advance(len(l.waiting) - l.head)
}

// complete gives a part its result. Afterwards the part may belong to another
// request.
func (l *lane) complete(p *part, err error) {
	p.err = err
	p.request.partDone(l.finish)
}
