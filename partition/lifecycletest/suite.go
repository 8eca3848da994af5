// Package lifecycletest is the conformance suite of everything in Spillway that
// starts and stops: the service, its servers, the drain, the janitor.
//
//	func TestLifecycle(t *testing.T) {
//		lifecycletest.Run(t, func(t *testing.T) lifecycletest.Component { return newServer(t) })
//	}
package lifecycletest

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Component is the contract.
//
//   - Start returns once the component works, or an error; after an error it is
//     stopped. ctx bounds the start alone: that ctx ends later ends nothing. A second Start, and a Start after Stop, are
//     errors and change nothing.
//   - Stop ends the component and waits until all that it started has ended, or ctx
//     has: then it gives up what is left and returns an error. It is
//     safe before Start, twice, and concurrently; every call returns when
//     the component has stopped.
type Component interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// patience bounds what the suite waits for.
const patience = 20 * time.Second

// Run tries the contract on components that build returns, each of which has not
// been started yet.
func Run(t *testing.T, build func(t *testing.T) Component) {
	t.Helper()
	cases := map[string]func(*testing.T, context.Context, Component){
		"starts and stops":                  startsAndStops,
		"stops before a start":              stopsBeforeAStart,
		"stops twice and concurrently":      stopsConcurrently,
		"starts once":                       startsOnce,
		"outlives the context of its start": outlivesTheContextOfItsStart,
	}
	for name, try := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			try(t, ctx, build(t))
		})
	}
}

func startsAndStops(t *testing.T, ctx context.Context, c Component) {
	if err := c.Start(ctx); err != nil {
		t.Fatalf("Start: %v", err)
	}
	if err := c.Stop(ctx); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func stopsBeforeAStart(t *testing.T, ctx context.Context, c Component) {
	if err := c.Stop(ctx); err != nil {
		t.Errorf("Stop before Start: %v", err)
	}
	if err := c.Start(ctx); err == nil {
		t.Error("Start after Stop: got no error")
	}
	if err := c.Stop(ctx); err != nil {
		t.Errorf("Stop again: %v", err)
	}
}

func stopsConcurrently(t *testing.T, ctx context.Context, c Component) {
	if err := c.Start(ctx); err != nil {
		t.Fatalf("Start: %v", err)
	}
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if err := c.Stop(ctx); err != nil {
				t.Errorf("Stop: %v", err)
			}
		})
	}
	callers.Wait()
	if err := c.Stop(ctx); err != nil {
		t.Errorf("Stop once more: %v", err)
	}
}

func startsOnce(t *testing.T, ctx context.Context, c Component) {
	if err := c.Start(ctx); err != nil {
		t.Fatalf("Start: %v", err)
	}
	if err := c.Start(ctx); err == nil {
		t.Error("a second Start: got no error")
	}
	if err := c.Stop(ctx); err != nil {
		t.Errorf("Stop after a second Start: %v", err)
	}
	if err := c.Start(ctx); err == nil {
		t.Error("Start after Stop: got no error")
	}
}

// lives is what a component may offer for the suite to see that it still works.
type lives interface {
	Alive(ctx context.Context) error
}

func outlivesTheContextOfItsStart(t *testing.T, ctx context.Context, c Component) {
	starting, cancel := context.WithCancel(ctx)
	if err := c.Start(starting); err != nil {
		t.Fatalf("Start: %v", err)
	}
	cancel()
	if l, ok := c.(lives); ok {
		if err := l.Alive(ctx); err != nil {
			t.Errorf("after the context of Start ended: %v", err)
		}
	}
	if err := c.Stop(ctx); err != nil {
		t.Errorf("Stop: %v", err)
	}
}
