package drain

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
)

const (
	// tripAt is how many partitions in a row must newly fail, with no Write
	// answered in between, before it is the sink that failed and not they. Fewer,
	// and those known to fail, cannot hammer a dead sink: each of them has its
	// own back-off.
	tripAt = 8
	// probePause bounds the wait between two probes of a tripped sink. The search
	// for a partition that it still answers takes one probe for each that it
	// does not, so this is also what a healthy partition waits for.
	probePause = time.Second
)

// A gate decides how much of a namespace may be claimed: nothing until its sink
// is open, one lease now and then while the sink seems dead, else all that the
// workers can take. What is not claimed stays in the store and ages honestly.
type gate struct {
	sink   sink.Sink
	cfg    Config
	health *health

	mu       sync.Mutex
	changed  chan struct{} // closes at the next change of what follows
	open     bool
	touched  bool      // Open was called, so Close must be
	writes   int       // Writes that run
	known    standing  // of the partitions
	suspects int       // partitions that newly failed since a Write was answered
	probes   int       // since the breaker tripped; 0 = it has not
	resume   time.Time // no probe before
}

func newGate(s sink.Sink, cfg Config, h *health) *gate {
	return &gate{sink: s, cfg: cfg, health: h, changed: make(chan struct{}), known: newStanding()}
}

// change wakes those who wait; g.mu is held.
func (g *gate) change() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// wait sleeps until pass may let something through. It is false when ctx ends.
func (g *gate) wait(ctx context.Context) bool {
	for {
		g.mu.Lock()
		closed, changed, pause := !g.open, g.changed, time.Until(g.resume)
		tripped := g.probes > 0
		g.mu.Unlock()
		if closed || tripped && pause > 0 {
			if closed {
				pause = math.MaxInt64
			}
			if !wake(ctx, changed, pause) {
				return false
			}
			continue
		}
		return ctx.Err() == nil
	}
}

// wake waits for changed, for d, or for the end of ctx, which it reports.
func wake(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// pass returns which of the named partitions, which are due, may be claimed now:
// all, none, or the one of a probe. A probe is taken by asking for it; unused
// gives it back.
func (g *gate) pass(names []string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.open:
		return nil
	case g.probes == 0:
		return names
	case time.Until(g.resume) > 0:
		return nil
	}
	g.probes++
	g.pauseProbes()
	return []string{g.known.healthiest(names)}
}

// tripped reports whether only probes pass.
func (g *gate) tripped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.probes > 0
}

func (g *gate) pauseProbes() {
	g.resume = time.Now().Add(backoff(g.cfg.BackoffBase, min(g.cfg.BackoffMax, probePause), g.probes, 0.5+rand.Float64()/2))
}

// unused gives a probe back for which nothing was due.
func (g *gate) unused() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.probes > 1 {
		g.probes--
		g.resume = time.Time{}
		g.change()
	}
}

// enter begins a Write. It is false while the sink is not open.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		g.writes++
	}
	return g.open
}

// leave ends a Write of a partition's entries.
func (g *gate) leave(partition string, v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.writes--; g.writes == 0 && !g.open {
		g.change()
	}
	if v.reopen && g.open {
		g.open = false
		g.health.metrics.sinkOpen.Set(0)
		g.change()
	}
	switch {
	case v.all != unsettled:
		g.known.answered(partition)
		g.suspects = 0
		if g.probes > 0 {
			g.probes = 0
			g.health.metrics.sinkTripped.Set(0)
			g.change()
		}
	case g.known.failed(partition) && g.probes == 0:
		if g.suspects++; g.suspects >= tripAt {
			g.suspects, g.probes = 0, 1
			g.pauseProbes()
			g.health.metrics.sinkTripped.Set(1)
		}
	}
}

// keep opens the sink, and again whenever its connection is lost, until ctx
// ends. Writes that still run are waited for, though no longer than they may.
func (g *gate) keep(ctx context.Context) {
	for {
		g.mu.Lock()
		open, changed := g.open, g.changed
		g.touched = g.touched || !open
		g.mu.Unlock()
		if open {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		g.settleDown(ctx)
		if !g.reopen(ctx) {
			return
		}
	}
}

// settleDown waits until no Write runs, for one sink timeout at most.
func (g *gate) settleDown(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, g.cfg.SinkTimeout)
	defer cancel()
	for {
		g.mu.Lock()
		writes, changed := g.writes, g.changed
		g.mu.Unlock()
		if writes == 0 || !wake(limit, changed, g.cfg.SinkTimeout) {
			return
		}
	}
}

// reopen calls Open with back-off until it succeeds. It is false when ctx ends.
func (g *gate) reopen(ctx context.Context) bool {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		err := g.tryOpen(ctx)
		if err == nil {
			g.mu.Lock()
			g.open = true
			g.health.metrics.sinkOpen.Set(1)
			g.change()
			g.mu.Unlock()
			g.health.log.Info("sink open", zap.Int("attempt", attempt))
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		g.health.failed(reasonOf(err), err)
		if !sleep(ctx, backoff(g.cfg.BackoffBase, g.cfg.BackoffMax, attempt, rand.Float64())) {
			return false
		}
	}
	return false
}

func (g *gate) tryOpen(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.SinkTimeout)
	defer cancel()
	defer g.recovered(&err)
	return g.sink.Open(ctx)
}

// close closes a sink that was ever opened, or nearly. No Write runs any more.
func (g *gate) close(ctx context.Context) (err error) {
	g.mu.Lock()
	touched := g.touched
	g.mu.Unlock()
	if !touched {
		return nil
	}
	defer g.recovered(&err)
	return g.sink.Close(ctx)
}

// recovered turns a panic of the sink into an error; it is deferred.
func (g *gate) recovered(err *error) {
	if p := recover(); p != nil {
		g.health.metrics.panics.Inc()
		*err = newPanicError(p, debug.Stack())
	}
}
