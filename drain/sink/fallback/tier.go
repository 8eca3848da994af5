package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
)

const (
	// probePause is the pause between two attempts to use a tier that is down, or to
	// open one that is not open.
	probePause = time.Second
	// forgets is how old the last failure may be to count with the next one. It is
	// longer than the drain's longest back-off.
	forgets = time.Minute
)

// A tier is a sink that opens by itself, and knows whether it answers.
type tier struct {
	Tier
	caps  sink.Caps
	slots chan struct{} // one a Write; nil: any number
	grace time.Duration // how long it fails before it counts as down
	log   *zap.Logger

	gate   sync.RWMutex // Writes hold it shared, Open alone
	opened atomic.Bool

	mu          sync.Mutex
	since, last time.Time // the first and the last failure since an answer
	down        bool
	probed      time.Time // when it was last tried while it was down or not open
}

func newTier(t Tier, grace time.Duration, log *zap.Logger) *tier {
	n := &tier{Tier: t, caps: t.Sink.Caps(), grace: grace, log: log}
	if n.caps.MaxInFlight > 0 {
		n.slots = make(chan struct{}, n.caps.MaxInFlight)
	}
	return n
}

// takes is how many of the batches, which are one or more, the sink takes in a Write.
// Without Linger they must be of one partition.
func (t *tier) takes(batches []*sink.Batch) int {
	n := min(len(batches), max(t.caps.MaxBatches, 1))
	if t.caps.Linger > 0 {
		return n
	}
	for i := range n {
		if batches[i].Partition != batches[0].Partition {
			return i
		}
	}
	return n
}

// write writes to the sink, opens it first where that is needed, and notes whether it
// answers. One that is down or not open is tried once a probePause.
func (t *tier) write(ctx context.Context, batches []*sink.Batch) error {
	opened := t.opened.Load()
	if (t.isDown() || !opened) && !t.probe() {
		return t.failed(sink.Unsent(errors.New("down or not open")))
	}
	if t.slots != nil {
		select {
		case t.slots <- struct{}{}:
			defer func() { <-t.slots }()
		case <-ctx.Done():
			return sink.Unsent(errors.New("busy"))
		}
	}
	if !opened {
		if err := t.reopen(ctx); err != nil {
			return sink.Unsent(errors.New(brief(err)))
		}
	}
	if !t.gate.TryRLock() {
		return sink.Unsent(errors.New("opening"))
	}
	defer t.gate.RUnlock()
	err := t.Sink.Write(ctx, batches)
	n := acceptedOf(err, batches)
	if t.Accepted != nil {
		t.Accepted.Add(float64(n))
	}
	if disconnected(err) {
		t.opened.Store(false)
	}
	switch {
	case err == nil, n > 0, rejects(err):
		t.answered()
	case errors.Is(ctx.Err(), context.Canceled):
		// The drain stops. That says nothing about the tier.
	default:
		return t.failed(err)
	}
	return err
}

// reopen opens the sink, unless a Write or another Open runs.
func (t *tier) reopen(ctx context.Context) error {
	if !t.gate.TryLock() {
		return errors.New("opening")
	}
	defer t.gate.Unlock()
	if err := t.Sink.Open(ctx); err != nil {
		return t.failed(fmt.Errorf("open %s: %w", t.Label, err))
	}
	t.opened.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.down { // only attempts that fail are kept apart
		t.probed = time.Time{}
	}
	return nil
}

func (t *tier) close(ctx context.Context) error {
	t.opened.Store(false)
	return t.Sink.Close(ctx)
}

func (t *tier) isDown() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.down
}

// probe reports whether the tier may be tried although it is down or not open.
func (t *tier) probe() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.probed) < probePause {
		return false
	}
	t.probed = time.Now()
	return true
}

// failed notes a failure, and returns it.
func (t *tier) failed(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.since.IsZero() || now.Sub(t.last) > forgets {
		t.since = now
	}
	t.last = now
	if !t.down && now.Sub(t.since) >= t.grace {
		t.probed = now
		t.setDown(true)
		t.log.Warn("sink tier down, its entries go to the next", zap.Duration("failing_for", now.Sub(t.since)),
			zap.String("error", brief(err)))
	}
	return err
}

// answered notes that the target took or rejected entries.
func (t *tier) answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down {
		t.log.Info("sink tier up", zap.Duration("failed_for", time.Since(t.since)))
		t.setDown(false)
	}
	t.since = time.Time{}
}

// setDown notes whether the tier is down; t.mu is held.
func (t *tier) setDown(down bool) {
	t.down = down
	if t.Down == nil {
		return
	}
	t.Down.Set(0)
	if down {
		t.Down.Set(1)
	}
}
