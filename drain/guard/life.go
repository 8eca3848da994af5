package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Life is the life of what claims, and writes to sinks. Stop ends it in three steps: no more
// claims, no more Writes, no more calls to the store.
type Life struct {
	Claiming, Writing, Calling          context.Context
	endClaiming, endWriting, endCalling context.CancelFunc

	name             string // such as "drain"
	mu               sync.Mutex
	started, stopped bool
	ended            chan struct{} // closes when nothing of it runs any more
}

// NewLife makes a life, which must be stopped even if it never starts.
func NewLife(name string) *Life {
	l := &Life{name: name, ended: make(chan struct{})}
	l.Claiming, l.endClaiming = context.WithCancel(context.Background())
	l.Writing, l.endWriting = context.WithCancel(context.Background())
	l.Calling, l.endCalling = context.WithCancel(context.Background())
	return l
}

// Begin starts what claims. finish waits until that, and all that it claimed, has ended. A second
// Begin, and one after End, are errors and change nothing.
func (l *Life) Begin(start func() error, finish func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started || l.stopped {
		return fmt.Errorf("start %s: it was started or stopped before", l.name)
	}
	if err := start(); err != nil {
		return fmt.Errorf("start %s: %w", l.name, err)
	}
	l.started = true
	go func() {
		finish()
		l.endWriting()
		l.endCalling()
		close(l.ended)
	}()
	return nil
}

// End ends the claims and waits until what was claimed is written and settled. When ctx ends
// first it cancels the Writes, which takes at most 2 s more, and returns an error that Is ctx's.
// Only a Write that ignores its context can outlive that; its lease lapses. End may come before
// Begin, twice and concurrently; each call waits for the end. unused frees what never began,
// closed is what the sinks said when they were closed, and stuck names those that do not return.
func (l *Life) End(ctx context.Context, unused func(), closed func() error,
	stuck func() string) error {
	l.mu.Lock()
	if !l.started && !l.stopped {
		unused()
		l.endWriting()
		l.endCalling()
		close(l.ended)
	}
	l.stopped = true
	l.mu.Unlock()

	l.endClaiming()
	select {
	case <-l.ended:
		return closed()
	case <-ctx.Done():
	}
	l.endWriting()
	if !endsWithin(StopGrace, l.ended) {
		l.endCalling()
		// The calls to the store end at once; a Close may take a moment.
		if !endsWithin(StopGrace/10, l.ended) {
			return fmt.Errorf("stop %s: sinks of %s do not return: %w", l.name, stuck(), ctx.Err())
		}
	}
	return errors.Join(fmt.Errorf("stop %s: writes were cancelled: %w", l.name, ctx.Err()), closed())
}
