package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/share"
)

// Bounds of a flush. A script call of 1000 jobs takes Redis a few ms, and one of 1 MiB of
// payloads 2 ms.
const (
	maxFlushJobs       = 4096
	maxFlushBytes      = 1 << 20
	maxFlushClaims     = 1024
	maxLargeFlushBytes = 4 << 20 // in a lane for large jobs
	// largePublish is from how many bytes on a publish has the lane for large jobs; so do
	// claims of a namespace, when its jobs were as large the last time. A flush
	// with one of 16 MiB takes 100 ms and more, most of them on the way to Redis.
	largePublish = 64 << 10
	// maxClaimBytes bounds the answers to all claims of a flush, in bytes, about; each may
	// have minClaimBytes at least.
	maxClaimBytes = 16 << 20
	minClaimBytes = 16 << 10
)

// work is what one caller wants of one lane.
type work struct {
	batch     job.Batch // with one claim at most
	namespace string    // that it counts for; empty: none
	jobs      int
	bytes     int
	queued    time.Time
	done      func()
	revert    bool // nothing but that claims with an unknown outcome are taken back
}

// cost is the part of a flush that the work takes, where a whole flush is maxFlushBytes.
func (w *work) cost() int {
	cost := max(1, w.bytes, w.jobs*(maxFlushBytes/maxFlushJobs))
	if len(w.batch.Claims) > 0 {
		cost = max(cost, maxFlushBytes/maxFlushClaims)
	}
	return cost
}

// fail gives every request of the work the same error.
func (w *work) fail(err error) {
	for _, p := range w.batch.Publishes {
		p.Err = err
	}
	for _, a := range w.batch.Acks {
		a.Err = err
	}
	for _, s := range w.batch.Settles {
		s.Err = err
	}
	for _, c := range w.batch.Claims {
		c.Err = err
		c.Jobs = nil
		c.Left = nil
		c.Held = nil
	}
}

// lane queues work and runs it in flushes, one at a time. What arrives during a flush makes
// up the next one: an idle lane flushes at once, and a busy one batches by itself, with
// equal shares for the namespaces that wait.
type lane struct {
	engine   *Engine
	memory   *job.Lane
	ctx      context.Context
	maxBytes int // of payloads in a flush

	mu     sync.Mutex
	filled sync.Cond
	queue  []*work // put since the last flush began
	closed bool

	// The rest belongs to the lane's goroutine.
	taken   []*work // the memory of queue, while queue has the other
	waiting share.Queue[*work]
	flying  []*work   // in this flush
	oldest  time.Time // when the oldest work of this flush was queued
	batch   job.Batch
	revert  bool // this flush takes claims with an unknown outcome back
	reverts int  // flushes in a row that are to do so; 0: none is on its way
}

// put queues work, or answers it at once when the lane is closed.
func (l *lane) put(w *work) {
	w.queued = time.Now()
	l.mu.Lock()
	if !l.closed {
		l.queue = append(l.queue, w)
		l.filled.Signal()
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.reject(w, ErrStopping)
}

// reject answers work that was not run.
func (l *lane) reject(w *work, err error) {
	w.fail(err)
	w.done()
}

// rejectLate rejects work that waits too long, and reports whether it did.
func (l *lane) rejectLate(w *work, now time.Time) bool {
	if w.revert || now.Sub(w.queued) <= 2*l.engine.cfg.FlushTimeout {
		return false
	}
	l.reject(w, ErrOverloaded)
	return true
}

// close makes run return once it has flushed the work that is queued.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.filled.Signal()
}

func (l *lane) run() {
	for l.wait() {
		if l.ctx.Err() != nil {
			for w, waits := l.waiting.Next(); waits; w, waits = l.waiting.Next() {
				l.waiting.Pop(0)
				l.reject(w, ErrStopping)
			}
			continue
		}
		l.fill(time.Now())
		if len(l.flying) > 0 {
			l.flush()
		}
	}
}

// wait waits for work; it is false once the lane is closed and empty.
func (l *lane) wait() bool {
	l.mu.Lock()
	for len(l.queue) == 0 {
		if _, waits := l.waiting.Next(); waits {
			break
		} else if l.closed {
			l.mu.Unlock()
			return false
		}
		l.filled.Wait()
	}
	l.queue, l.taken = l.taken[:0], l.queue
	l.mu.Unlock()
	for _, w := range l.taken {
		l.waiting.Push(w.namespace, w)
	}
	clear(l.taken)
	return true
}

// fill takes work into a batch, within the bounds. Work that is larger than they are by
// itself has a flush of its own.
func (l *lane) fill(now time.Time) {
	l.waiting.Drop(func(w *work) bool { return l.rejectLate(w, now) }) // else behind other namespaces it would wait longer
	jobs, bytes := 0, 0
	for w, waits := l.waiting.Next(); waits; w, waits = l.waiting.Next() {
		if len(l.flying) > 0 && (jobs+w.jobs > maxFlushJobs || bytes+w.bytes > l.maxBytes ||
			len(l.batch.Claims) == maxFlushClaims) {
			break
		}
		switch {
		case w.revert:
			l.revert = true
		case l.rejectLate(w, now):
			l.waiting.Pop(0)
			continue
		default:
			l.batch.Publishes = append(l.batch.Publishes, w.batch.Publishes...)
			l.batch.Acks = append(l.batch.Acks, w.batch.Acks...)
			l.batch.Settles = append(l.batch.Settles, w.batch.Settles...)
			l.batch.Claims = append(l.batch.Claims, w.batch.Claims...)
		}
		l.waiting.Pop(w.cost())
		jobs, bytes = jobs+w.jobs, bytes+w.bytes
		if len(l.flying) == 0 || w.queued.Before(l.oldest) {
			l.oldest = w.queued
		}
		l.flying = append(l.flying, w)
	}
	if n := len(l.batch.Claims); n > 0 {
		share := max(maxClaimBytes/n, minClaimBytes)
		for _, c := range l.batch.Claims {
			if c.MaxBytes == 0 || c.MaxBytes > share {
				c.MaxBytes = share
			}
		}
	}
}

// flush runs the batch and hands out the results.
func (l *lane) flush() {
	m, start := l.engine.metrics, time.Now()
	m.laneWait.Observe(start.Sub(l.oldest).Seconds())
	m.flushRequests.Observe(float64(len(l.flying)))
	l.call()
	m.flushSeconds.Observe(time.Since(start).Seconds())
	for _, w := range l.flying {
		w.done()
	}
	clear(l.flying)
	clear(l.batch.Publishes)
	clear(l.batch.Acks)
	clear(l.batch.Settles)
	clear(l.batch.Claims)
	b := &l.batch
	l.flying = l.flying[:0]
	*b = job.Batch{
		Publishes: b.Publishes[:0],
		Acks:      b.Acks[:0],
		Settles:   b.Settles[:0],
		Claims:    b.Claims[:0],
	}
}

// call runs the batch. After a panic the outcome is unknown.
func (l *lane) call() {
	ctx, cancel := context.WithTimeout(l.ctx, l.engine.cfg.FlushTimeout)
	defer cancel()
	if !l.try(func() bool { l.engine.store.Run(ctx, l.memory, &l.batch); return true }) {
		for _, w := range l.flying {
			w.fail(partition.ErrUnknown)
		}
	}
	l.revertUnknown(ctx)
}

// try is false where f panics. A panic of the store must not end the process and with it every
// lane.
func (l *lane) try(f func() bool) bool {
	defer func() {
		if v := recover(); v != nil {
			l.engine.metrics.panics.Inc()
			l.engine.log.Error("flush panicked", zap.String("panic", fmt.Sprint(v)), zap.Stack("stack"))
		}
	}()
	return f()
}

// revertUnknown takes claims with an unknown outcome back, a moment later, until it has
// worked. The lane's next claim of the shard would, but there may be none for long, and a
// lease may last for days.
func (l *lane) revertUnknown(ctx context.Context) {
	unknown := l.memory.Unknown || slices.ContainsFunc(l.batch.Claims,
		func(c *job.Claim) bool { return errors.Is(c.Err, partition.ErrUnknown) })
	if l.revert {
		l.revert = false
		if l.try(func() bool { return l.engine.store.Revert(ctx, l.memory) == nil }) {
			l.reverts = 0
			return
		}
	} else if !unknown || l.reverts > 0 {
		return
	}
	pause := min(minPause<<min(l.reverts, 6), time.Second)
	l.reverts++
	time.AfterFunc(pause, func() { l.put(&work{revert: true, done: func() {}}) })
}
