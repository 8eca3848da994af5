package drain

import (
	"context"
	"errors"
	"sync"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// maxSettlements bounds the commits and releases that are sent together: as many as one
// script call takes.
const maxSettlements = 64

// errSettlerStopped answers what comes after the end: the lease lapses.
var errSettlerStopped = errors.New("drain has stopped")

// What a settler needs of the store.
type settleStore interface {
	Settle(ctx context.Context, commits []*partition.Commit, releases []*partition.Release)
}

// A settler is the group commit of the workers: it sends what is waiting in one
// round trip while others gather for the next. It never waits for more. Each
// worker has at most one commit or release on its way, which bounds what waits. Each zone
// of the store has a settler, so a master that is away delays its own only.
type settler struct {
	store settleStore

	mu      sync.Mutex
	waiting []*settleRequest
	closed  bool
	wake    lifecycle.Signal // holds one
	ended   chan struct{}
}

// A settleRequest is a commit or a release on its way; done closes when its result is
// known.
type settleRequest struct {
	commit   *partition.Commit  // or nil
	release  *partition.Release // or nil
	done     chan struct{}
	rejected bool // the settler had stopped
}

func (w *settleRequest) err() error {
	switch {
	case w.rejected:
		return errSettlerStopped
	case w.commit != nil:
		return w.commit.Err
	default:
		return w.release.Err
	}
}

func newSettler(store settleStore) *settler {
	return &settler{store: store, wake: lifecycle.NewSignal(), ended: make(chan struct{})}
}

// submit sends a commit or a release on its way and returns at once.
func (s *settler) submit(w *settleRequest) *settleRequest {
	w.done = make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		w.rejected = true
		close(w.done)
		return w
	}
	s.waiting = append(s.waiting, w)
	s.wake.Ring()
	return w
}

// run serves until close; ctx bounds the calls.
func (s *settler) run(ctx context.Context) {
	defer close(s.ended)
	for range s.wake {
		for {
			group, closed := s.take()
			if len(group) > 0 {
				s.send(ctx, group)
			} else if closed {
				return
			} else {
				break
			}
		}
	}
}

func (s *settler) take() (group []*settleRequest, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), maxSettlements)
	group = s.waiting[:n:n]
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	return group, s.closed
}

func (s *settler) send(ctx context.Context, group []*settleRequest) {
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	commits := make([]*partition.Commit, 0, len(group))
	var releases []*partition.Release
	for _, w := range group {
		if w.commit != nil {
			commits = append(commits, w.commit)
		} else {
			releases = append(releases, w.release)
		}
	}
	s.store.Settle(call, commits, releases)
	for _, w := range group {
		close(w.done)
	}
}

// close sends what waits, ends run and waits for it. A worker that a sink kept
// beyond Stop is rejected from here on.
func (s *settler) close() {
	s.mu.Lock()
	s.closed = true
	s.wake.Ring()
	s.mu.Unlock()
	<-s.ended
}
