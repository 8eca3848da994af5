package lifecycletest_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/spillway-io/spillway/partition/lifecycletest"
)

// component does nothing, by the contract.
type component struct {
	mu               sync.Mutex
	started, stopped bool
}

func (c *component) Start(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.stopped {
		return errors.New("started before")
	}
	c.started = true
	return nil
}

func (c *component) Stop(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	return nil
}

func (c *component) Alive(context.Context) error { return nil }

func TestAMinimalComponentPasses(t *testing.T) {
	t.Parallel()
	lifecycletest.Run(t, func(*testing.T) lifecycletest.Component { return &component{} })
}
