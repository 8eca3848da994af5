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
//   - Start returns once the component works, or returns an error; after an error the
//     component is stopped. ctx limits only the start: the component goes on after ctx
//     has ended. A second Start, and a Start after Stop, return an error and change
//     nothing.
//   - Stop ends the component and waits until everything that it started has ended. If
//     ctx ends first, Stop gives up and returns an error. Stop is safe before Start,
//     twice and concurrently; every call returns when the component has stopped.
type Component interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// timeout is how long the suite waits for a component.
const timeout = 20 * time.Second

// Run tests the contract on components that build returns. None of them has been
// started yet.
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
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
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

// lives is optional: Alive returns nil while the component works.
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
