// Package guard stands between those who write to a sink and the sink: is it open, does it
// answer, how fast, and how many Writes may run at once. It knows nothing of leases, of
// buffers or of queues.
//
// A failed Write of a partition, or of a queue, costs that one only. What looks like a
// failure of the sink trips a breaker: then only probes get through, claims that learn
// whether it answers. drain/DESIGN.md says why.
package guard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
)

// A Guard is all that the drain knows of a namespace's sink: whether it is open,
// whether it answers, and how long its Writes take. The claimers ask it how much
// they may claim, and the workers write through it. It knows nothing of leases.
type Guard struct {
	sink    sink.Sink
	Timeout time.Duration   // of one Write
	Writing context.Context // Writes are cancelled when it ends
	metrics *Metrics

	opener  *opener
	breaker *breaker
	health  *health
	letters letterLog
	pace    Pace
	recent  *recentWrites
	fill    fillCount
	Slots   *Slots // for Writes; who writes takes one first
	limit   *limit // nil: the sink limits its Writes itself
}

// Config is how a guard works.
type Config struct {
	SinkTimeout             time.Duration         // of one Write, and of one Open
	BackoffBase, BackoffMax time.Duration         // between two Opens
	After                   func(context.Context) // waited for before the first Open; nil: nothing
	Writes                  int                   // at once; fewer where the sink's Caps say so
}

func New(writing context.Context, s sink.Sink, cfg Config, log *zap.Logger, m *Metrics) *Guard {
	h := &health{log: log, metrics: m}
	g := &Guard{
		sink:    s,
		Timeout: cfg.SinkTimeout,
		Writing: writing,
		metrics: m,
		health:  h,
		recent:  newRecentWrites(),
		letters: letterLog{log: log},
		opener:  newOpener(s, cfg, log, h, m),
		breaker: newBreaker(min(cfg.BackoffMax, MaxProbePause), m.Tripped),
	}
	if n := s.Caps().MaxInFlight; n > 0 {
		g.Slots = NewSlots(min(cfg.Writes, n))
		m.Concurrency.Set(float64(g.Slots.Size()))
	} else {
		g.Slots = NewSlots(cfg.Writes)
		g.limit = newLimit(g.Slots, m.Concurrency)
	}
	return g
}

// AtOnce is how many Writes may run at once at present.
func (g *Guard) AtOnce() int {
	if g.limit != nil {
		return g.limit.get()
	}
	return g.Slots.Size()
}

// Wait sleeps until pass may let something through. It is false when ctx ends.
func (g *Guard) Wait(ctx context.Context) bool {
	for {
		if open, changed := g.opener.state(); !open {
			if !waitFor(ctx, changed, math.MaxInt64) {
				return false
			}
			continue
		}
		pause, changed := g.breaker.pause()
		if pause <= 0 {
			return ctx.Err() == nil
		}
		if !waitFor(ctx, changed, pause) {
			return false
		}
	}
}

// Keep opens the sink, and reopens it, until ctx ends.
func (g *Guard) Keep(ctx context.Context) { g.opener.keep(ctx) }

// IsOpen reports whether the sink is open.
func (g *Guard) IsOpen() bool {
	open, _ := g.opener.state()
	return open
}

// Close closes a sink for which Open was called. No Write runs any more.
func (g *Guard) Close(ctx context.Context) error {
	g.health.stop()
	return g.opener.close(ctx)
}

// waitFor waits until changed closes, until d is over, or until ctx ends; then it is
// false.
func waitFor(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Pass returns which of the named partitions, which are due, may be claimed now:
// none while the sink is not open, a few probes while the breaker is tripped, else
// all. unused gives probes back.
func (g *Guard) Pass(names []string) []string {
	if !g.IsOpen() {
		return nil
	}
	return g.breaker.pass(names, g.opener.running())
}

// Tripped reports whether only probes pass.
func (g *Guard) Tripped() bool { return g.breaker.isTripped() }

// Unused gives n probes back for which nothing was due.
func (g *Guard) Unused(n int) { g.breaker.unused(n) }

// LastError is what the last Write of a partition failed with, if it failed.
func (g *Guard) LastError(partition string) (words string, at time.Time) {
	return g.breaker.lastError(partition)
}

// WriteTime is how long a Write takes at present; 0 until the first one ends.
func (g *Guard) WriteTime() time.Duration { return g.pace.Get() }

// MinLife is how much of its life an entry must have left to be worth a Write.
func (g *Guard) MinLife(maxAge time.Duration) time.Duration {
	return g.pace.minLife(g.Timeout, maxAge)
}

// Trial reports whether a Write is due whose entries have less life than minLife.
func (g *Guard) Trial() bool { return g.pace.trial() }

// Begin reserves a Write, which Write or Withdraw ends. It is false while the sink
// is not open.
func (g *Guard) Begin() bool { return g.opener.begin() }

// Withdraw ends a Write that was reserved and not made.
func (g *Guard) Withdraw() { g.opener.end(false) }

// Stopping reports whether Writes are cancelled, because Stop ran out of patience.
func (g *Guard) Stopping() bool { return g.Writing.Err() != nil }

// DeadLettered is told of every dead letter of a partition or a queue; which is its sequence or id.
func (g *Guard) DeadLettered(partition string, which zap.Field, err error) {
	g.letters.add(partition, which, err)
}

// A Write is a Write to make.
type Write struct {
	Partition string
	Pending
	End   time.Time // the lease needs the time after it
	Alone bool      // not together with other partitions: part of a rejected unit
}

// Write makes a Write that Begin has reserved, and tells everyone how it went. What
// it returns first is what it wrote: here all of it.
func (g *Guard) Write(w Write) (Pending, Outcome, error) {
	o, err := g.Attempt(w.Pending, w.End)
	g.Ended(o, err, Share{w.Partition, o.All == Retryable})
	return w.Pending, o, err
}

// Attempt makes a Write, which ended must follow. It ends at the sink timeout, at end and
// when its oldest entry goes stale, whichever comes first.
func (g *Guard) Attempt(w Pending, end time.Time) (Outcome, error) {
	start := time.Now()
	deadline := start.Add(g.Timeout)
	for _, t := range []time.Time{end, w.Stale} {
		if t.Before(deadline) {
			deadline = t
		}
	}
	g.metrics.Batches.Add(float64(len(w.Batches)))
	for _, b := range w.Batches {
		g.metrics.BatchEntries.Observe(float64(len(b.Entries)))
		g.fill.add(len(b.Entries))
	}
	err := g.call(w.Batches, deadline)
	took := time.Since(start)
	g.metrics.WriteSeconds.Observe(took.Seconds())
	g.recent.took(took)

	o := outcomeOf(err, w.Batches)
	o.began = start
	if o.All == Retryable && g.Stopping() {
		o.Reason = ReasonStopped
	}
	o.outlived = o.Reason == ReasonTimeout && deadline.Equal(w.Stale)
	switch {
	case o.All == Accepted:
		g.pace.Took(took, w.Trial)
	case o.outlived:
		g.pace.cut(took)
	}
	if g.limit != nil && o.All != Retryable {
		g.limit.answered(start)
	}
	g.health.recordWrite(o, err)
	return o, err
}

// call hands batches to the sink, until deadline at most. A process that was
// stopped in between finds the deadline passed, and must not write any more.
func (g *Guard) call(batches []*sink.Batch, deadline time.Time) (err error) {
	ctx, cancel := context.WithDeadline(g.Writing, deadline)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	defer recoverSink(g.metrics.Panics, &err)
	err = g.sink.Write(ctx, batches)
	if err != nil && ctx.Err() == context.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// Ended ends a Write that Begin has reserved, and learns from it.
func (g *Guard) Ended(o Outcome, err error, shares ...Share) {
	g.opener.end(o.reopen)
	if newly := g.breaker.record(o, err, shares...); newly && g.limit != nil && o.Reason == reasonThrottled {
		g.limit.throttled(o.began)
	}
}

// recoverSink turns a panic of the sink into an error; it is deferred.
func recoverSink(panics prometheus.Counter, err *error) {
	if p := recover(); p != nil {
		panics.Inc()
		*err = newPanicError(p, debug.Stack())
	}
}

// Panicked is told of panics outside of the sink: bugs of ours.
func (g *Guard) Panicked(what string, value any) {
	g.metrics.Panics.Inc()
	g.health.log.Error(what, zap.String("error", newPanicError(value, nil).text),
		zap.ByteString("stack", debug.Stack()))
}
