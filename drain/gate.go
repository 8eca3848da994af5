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

// What a failed Write counts while no Write is answered. tripAt in all trip the
// breaker. A partition that newly fails says more about the sink than one that is
// known to, whose own back-off bounds what it costs, and a time-out, a lost
// connection or a throttle more than either. So 64 time-outs trip it, 256 new
// partitions, or 1024 Writes of known ones, all in a row.
const (
	tripAt          = 1024
	knownFailure    = 1
	newFailure      = 4
	sinkWideFailure = 16
)

// Probes of a tripped sink begin at 100 a second and slow down to one a second
// within about a minute. So a sink that still answers one new partition in twenty
// is found alive within the second, and a dead one is left alone.
const (
	probePauseMin, probePause = 10 * time.Millisecond, time.Second
	probeGrowth               = 1.02
	// probeRound is the shortest wait between two looks for partitions to probe;
	// quicker probes go out together.
	probeRound = 100 * time.Millisecond
	// probesAtOnce bounds quick probes that hang: while so many Writes run, one a
	// probePause is added.
	probesAtOnce = int(probeRound / probePauseMin)
)

// A gate decides how much of a namespace may be claimed: nothing until its sink
// is open, a few probes while the sink seems dead, else all that the workers can
// take. What is not claimed stays in the store and ages honestly.
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
	failures int       // since a Write was answered, by their weight
	broken   bool      // the breaker has tripped
	probes   int       // since then
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
		tripped := g.broken
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
// all, none, or those of a round of probes. Probes are taken by asking for them;
// unused gives them back.
func (g *gate) pass(names []string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.open:
		return nil
	case !g.broken:
		return names
	case time.Until(g.resume) > 0:
		return nil
	}
	pause := g.probeEvery()
	names = g.known.healthiest(names, max(1, int(probeRound/pause)))
	g.probes += len(names)
	g.pauseProbes(time.Duration(len(names)) * pause)
	return names
}

// tripped reports whether only probes pass.
func (g *gate) tripped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken
}

// probeEvery is the present pause between two probes.
func (g *gate) probeEvery() time.Duration {
	most := min(g.cfg.BackoffMax, probePause)
	if g.writes >= probesAtOnce {
		return most
	}
	return time.Duration(min(float64(most), float64(probePauseMin)*math.Pow(probeGrowth, float64(g.probes))))
}

func (g *gate) pauseProbes(d time.Duration) {
	g.resume = time.Now().Add(d/2 + time.Duration(rand.Float64()*float64(d/2)))
}

// unused gives n probes back for which nothing was due.
func (g *gate) unused(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.broken {
		g.probes = max(0, g.probes-n)
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

// withdraw takes an enter back: there was no Write.
func (g *gate) withdraw() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends()
}

// ends counts a Write out; g.mu is held.
func (g *gate) ends() {
	if g.writes--; g.writes == 0 && !g.open {
		g.change()
	}
}

// leave ends a Write of a partition's entries.
func (g *gate) leave(partition string, v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends()
	if v.reopen && g.open {
		g.open = false
		g.health.metrics.sinkOpen.Set(0)
		g.change()
	}
	if v.all != unsettled {
		g.answered(partition)
		return
	}
	weight := knownFailure
	if g.known.failed(partition) {
		weight = newFailure
	}
	if v.sinkWide() {
		weight = sinkWideFailure
	}
	if g.failures += weight; !g.broken && g.failures >= tripAt {
		g.broken, g.probes = true, 0
		g.pauseProbes(probeRound)
		g.health.metrics.sinkTripped.Set(1)
	}
}

// answered notes that the sink works for a partition; g.mu is held.
func (g *gate) answered(partition string) {
	g.known.answered(partition)
	g.failures = 0
	if g.broken {
		g.broken = false
		g.health.metrics.sinkTripped.Set(0)
		g.change()
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
