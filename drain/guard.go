package drain

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

// A sinkGuard is all that the drain knows of a namespace's sink: whether it is open,
// whether it answers, and how long its Writes take. The claimers ask it how much
// they may claim, and the workers write through it. It knows nothing of leases.
type sinkGuard struct {
	sink    sink.Sink
	timeout time.Duration   // of one Write
	writing context.Context // Writes are cancelled when it ends
	metrics *sinkMetrics

	opener  *sinkOpener
	breaker *breaker
	health  *health
	letters letterLog
	pace    pace
	recent  *recentWrites
	fill    fillCount
	slots   *slots         // for Writes; who writes takes one first
	limit   *adaptiveLimit // nil: the sink limits its Writes itself
}

// guardConfig is how a guard works.
type guardConfig struct {
	sinkTimeout             time.Duration         // of one Write, and of one Open
	backoffBase, backoffMax time.Duration         // between two Opens
	after                   func(context.Context) // waited for before the first Open; nil: nothing
	writes                  int                   // at once; fewer where the sink's Caps say so
}

func newSinkGuard(writing context.Context, s sink.Sink, cfg guardConfig, log *zap.Logger, m *sinkMetrics) *sinkGuard {
	h := &health{log: log, metrics: m}
	g := &sinkGuard{
		sink: s, timeout: cfg.sinkTimeout, writing: writing, metrics: m, health: h, recent: newRecentWrites(), letters: letterLog{log: log},
		opener:  newSinkOpener(s, cfg, log, h, m),
		breaker: newBreaker(min(cfg.backoffMax, maxProbePause), m.sinkTripped),
	}
	if n := s.Caps().MaxInFlight; n > 0 {
		g.slots = newSlots(min(cfg.writes, n))
		m.concurrency.Set(float64(g.slots.size()))
	} else {
		g.slots = newSlots(cfg.writes)
		g.limit = newAdaptiveLimit(g.slots, m.concurrency)
	}
	return g
}

// atOnce is how many Writes may run at once at present.
func (g *sinkGuard) atOnce() int {
	if g.limit != nil {
		return g.limit.get()
	}
	return g.slots.size()
}

// wait sleeps until pass may let something through. It is false when ctx ends.
func (g *sinkGuard) wait(ctx context.Context) bool {
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

// keep opens the sink, and reopens it, until ctx ends.
func (g *sinkGuard) keep(ctx context.Context) { g.opener.keep(ctx) }

// isOpen reports whether the sink is open.
func (g *sinkGuard) isOpen() bool {
	open, _ := g.opener.state()
	return open
}

// close closes a sink for which Open was called. No Write runs any more.
func (g *sinkGuard) close(ctx context.Context) error {
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

// pass returns which of the named partitions, which are due, may be claimed now:
// none while the sink is not open, a few probes while the breaker is tripped, else
// all. unused gives probes back.
func (g *sinkGuard) pass(names []string) []string {
	if !g.isOpen() {
		return nil
	}
	return g.breaker.pass(names, g.opener.running())
}

// tripped reports whether only probes pass.
func (g *sinkGuard) tripped() bool { return g.breaker.isTripped() }

// unused gives n probes back for which nothing was due.
func (g *sinkGuard) unused(n int) { g.breaker.unused(n) }

// lastError is what the last Write of a partition failed with, if it failed.
func (g *sinkGuard) lastError(partition string) (words string, at time.Time) {
	return g.breaker.lastError(partition)
}

// writeTime is how long a Write takes at present; 0 until the first one ends.
func (g *sinkGuard) writeTime() time.Duration { return g.pace.get() }

// minLife is how much of its life an entry must have left to be worth a Write.
func (g *sinkGuard) minLife(maxAge time.Duration) time.Duration {
	return g.pace.minLife(g.timeout, maxAge)
}

// trial reports whether a Write is due whose entries have less life than minLife.
func (g *sinkGuard) trial() bool { return g.pace.trial() }

// begin reserves a Write, which write or withdraw ends. It is false while the sink
// is not open.
func (g *sinkGuard) begin() bool { return g.opener.begin() }

// withdraw ends a Write that was reserved and not made.
func (g *sinkGuard) withdraw() { g.opener.end(false) }

// stopping reports whether Writes are cancelled, because Stop ran out of patience.
func (g *sinkGuard) stopping() bool { return g.writing.Err() != nil }

// deadLettered is told of every dead letter of a partition or a queue; which is its sequence or id.
func (g *sinkGuard) deadLettered(partition string, which zap.Field, err error) {
	g.letters.add(partition, which, err)
}

// A sinkWrite is a Write to make.
type sinkWrite struct {
	partition string
	pendingWrite
	end   time.Time // the lease needs the time after it
	alone bool      // not together with other partitions: part of a rejected unit
}

// write makes a Write that begin has reserved, and tells everyone how it went. What
// it returns first is what it wrote: here all of it.
func (g *sinkGuard) write(w sinkWrite) (pendingWrite, writeOutcome, error) {
	o, err := g.attempt(w.pendingWrite, w.end)
	g.ended(o, err, share{w.partition, o.all == retryable})
	return w.pendingWrite, o, err
}

// attempt makes a Write, which ended must follow. It ends at the sink timeout, at end and
// when its oldest entry goes stale, whichever comes first.
func (g *sinkGuard) attempt(w pendingWrite, end time.Time) (writeOutcome, error) {
	start := time.Now()
	deadline := start.Add(g.timeout)
	for _, t := range []time.Time{end, w.stale} {
		if t.Before(deadline) {
			deadline = t
		}
	}
	g.metrics.batches.Add(float64(len(w.batches)))
	for _, b := range w.batches {
		g.metrics.batchEntries.Observe(float64(len(b.Entries)))
		g.fill.add(len(b.Entries))
	}
	if g.limit != nil {
		defer g.limit.begin()()
	}
	err := g.call(w.batches, deadline)
	took := time.Since(start)
	g.metrics.writeSeconds.Observe(took.Seconds())
	g.recent.took(took)

	o := outcomeOf(err, w.batches)
	if o.all == retryable && g.stopping() {
		o.reason = reasonStopped
	}
	o.outlived = o.reason == reasonTimeout && deadline.Equal(w.stale)
	switch {
	case o.all == accepted:
		g.pace.took(took, w.trial)
	case o.outlived:
		g.pace.cut(took)
	}
	if g.limit != nil && o.all != retryable {
		g.limit.answered(took)
	}
	g.health.recordWrite(o, err)
	return o, err
}

// call hands batches to the sink, until deadline at most. A process that was
// stopped in between finds the deadline passed, and must not write any more.
func (g *sinkGuard) call(batches []*sink.Batch, deadline time.Time) (err error) {
	ctx, cancel := context.WithDeadline(g.writing, deadline)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	defer recoverSink(g.metrics.panics, &err)
	err = g.sink.Write(ctx, batches)
	if err != nil && ctx.Err() == context.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// ended ends a Write that begin has reserved, and learns from it.
func (g *sinkGuard) ended(o writeOutcome, err error, shares ...share) {
	g.opener.end(o.reopen)
	if newly := g.breaker.record(o, err, shares...); newly && g.limit != nil && o.reason == reasonThrottled {
		g.limit.throttled()
	}
}

// recoverSink turns a panic of the sink into an error; it is deferred.
func recoverSink(panics prometheus.Counter, err *error) {
	if p := recover(); p != nil {
		panics.Inc()
		*err = newPanicError(p, debug.Stack())
	}
}

// panicked is told of panics outside of the sink: bugs of ours.
func (g *sinkGuard) panicked(what string, value any) {
	g.metrics.panics.Inc()
	g.health.log.Error(what, zap.String("error", newPanicError(value, nil).text), zap.ByteString("stack", debug.Stack()))
}
