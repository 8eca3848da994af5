// Package lifecycle is the life of whatever works in the background: it starts once, and stops
// for good. Its suite is partition/lifecycletest.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrStarted is the error of a second Start, and of a Start after Stop.
var ErrStarted = errors.New("started or stopped before")

// Loop is a component with one goroutine. What it is part of embeds it for its Start and Stop.
type Loop struct {
	name  string
	first func(context.Context) error
	run   func(context.Context)
	end   context.CancelFunc
	ctx   context.Context // of run; it ends with Stop

	mu    sync.Mutex
	ended chan struct{} // closed once the goroutine has ended; nil before Start
}

// New makes a loop that runs run, which returns when its context ends. Start calls first before
// that, with its own context; an error of first is that of Start. nil: nothing comes first.
func New(name string, first func(context.Context) error, run func(context.Context)) *Loop {
	l := &Loop{name: name, first: first, run: run}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// Start returns once the loop runs. It is an error a second time and after Stop.
func (l *Loop) Start(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil || l.ctx.Err() != nil {
		return fmt.Errorf("%s: %w", l.name, ErrStarted)
	}
	if l.first != nil {
		if err := l.first(ctx); err != nil {
			l.end()
			return err
		}
	}
	ended := make(chan struct{})
	l.ended = ended
	go func() {
		defer close(ended)
		l.run(l.ctx)
	}()
	return nil
}

// Stop ends what is under way and waits for it, for as long as ctx lets it.
func (l *Loop) Stop(ctx context.Context) error {
	l.end() // without the lock: a Start that is under way ends by its own context
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", l.name, ctx.Err())
	}
}

// Every calls f at intervals until ctx ends.
func Every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// A Signal wakes a goroutine that receives from it: now, or when it looks next. It holds one.
type Signal chan struct{}

// NewSignal makes a signal.
func NewSignal() Signal { return make(Signal, 1) }

// Ring sends the signal. It does not wait.
func (s Signal) Ring() {
	select {
	case s <- struct{}{}:
	default:
	}
}
