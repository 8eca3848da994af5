package guard

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
)

// An opener opens the sink, and opens it again whenever it has lost its
// connection. While the sink is not open nothing is claimed: what stays in the store
// keeps its age.
type opener struct {
	sink                             sink.Sink
	timeout, backoffBase, backoffMax time.Duration
	log                              *zap.Logger
	health                           *health // told of every Open
	metrics                          *Metrics
	after                            func(context.Context) // see Config

	mu      sync.Mutex
	changed chan struct{} // closes at the next change of what follows
	open    bool
	opened  bool // Open was called, so Close must be
	writes  int  // Writes that run
}

func newOpener(s sink.Sink, cfg Config, log *zap.Logger, h *health, m *Metrics) *opener {
	return &opener{
		sink:        s,
		timeout:     cfg.SinkTimeout,
		backoffBase: cfg.BackoffBase,
		backoffMax:  cfg.BackoffMax,
		after:       cfg.After,
		log:         log,
		health:      h,
		metrics:     m,
		changed:     make(chan struct{}),
	}
}

// change wakes those who wait; s.mu is held.
func (s *opener) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// state reports whether the sink is open; changed closes when that may differ.
func (s *opener) state() (open bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.changed
}

// running is how many Writes run.
func (s *opener) running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// begin begins a Write. It is false while the sink is not open.
func (s *opener) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		s.writes++
	}
	return s.open
}

// end ends a Write; lost: the sink is not connected any more.
func (s *opener) end(lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes--; s.writes == 0 && !s.open {
		s.change()
	}
	if lost && s.open {
		s.open = false
		s.metrics.Open.Set(0)
		s.change()
	}
}

// keep opens the sink, and again whenever its connection is lost, until ctx
// ends. It waits for Writes that still run, but no longer than the sink timeout.
func (s *opener) keep(ctx context.Context) {
	if s.after != nil {
		s.after(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	for {
		s.mu.Lock()
		open, changed := s.open, s.changed
		s.opened = s.opened || !open
		s.mu.Unlock()
		if open {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		s.waitForWrites(ctx)
		if !s.reopen(ctx) {
			return
		}
	}
}

// waitForWrites waits until no Write runs, for one sink timeout at most.
func (s *opener) waitForWrites(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for {
		s.mu.Lock()
		writes, changed := s.writes, s.changed
		s.mu.Unlock()
		if writes == 0 || !waitFor(limit, changed, s.timeout) {
			return
		}
	}
}

// reopen calls Open with back-off until it succeeds. It is false when ctx ends.
func (s *opener) reopen(ctx context.Context) bool {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		err := s.tryOpen(ctx)
		if err == nil {
			s.mu.Lock()
			s.open = true
			s.metrics.Open.Set(1)
			s.change()
			s.mu.Unlock()
			s.health.opened()
			s.log.Info("sink open", zap.Int("attempt", attempt))
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.health.openFailed(err)
		if !Sleep(ctx, Backoff(s.backoffBase, s.backoffMax, attempt, rand.Float64())) {
			return false
		}
	}
	return false
}

func (s *opener) tryOpen(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	defer recoverSink(s.metrics.Panics, &err)
	return s.sink.Open(ctx)
}

// close closes a sink for which Open was called, even if that failed. No Write runs
// any more.
func (s *opener) close(ctx context.Context) (err error) {
	s.mu.Lock()
	opened := s.opened
	s.mu.Unlock()
	if !opened {
		return nil
	}
	defer recoverSink(s.metrics.Panics, &err)
	return s.sink.Close(ctx)
}

// StopGrace is what Stop takes beyond its context, for the releases of what it
// cancelled and for closing sinks.
const StopGrace = 2 * time.Second

// LeaseMargin is the end of a lease in which no Write may run any more: it is
// kept for the last commit or release, and for the difference between the speeds
// of two clocks.
const LeaseMargin = time.Second

// Backoff is the full-jitter wait after the given attempt (1, 2, …): roll, in
// [0, 1), of min(limit, base·2^(attempt−1)).
func Backoff(base, limit time.Duration, attempt int, roll float64) time.Duration {
	ceiling := limit
	if shift := max(attempt, 1) - 1; shift < 62 && base <= limit>>shift {
		ceiling = base << shift
	}
	return time.Duration(roll * float64(ceiling))
}

// Sleep waits for d. It is false where ctx ends before.
func Sleep(ctx context.Context, d time.Duration) bool { return waitFor(ctx, nil, d) }

func endsWithin(limit time.Duration, ended <-chan struct{}) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-ended:
		return true
	case <-t.C:
		return false
	}
}
