package job

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// lifecycle is the life of a component with one goroutine. It follows partition/lifecycletest.
type lifecycle struct {
	name   string
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc

	mu    sync.Mutex
	ended chan struct{} // closed once the goroutine has ended; nil before Start
}

func newLifecycle(name string) lifecycle {
	ctx, cancel := context.WithCancel(context.Background())
	return lifecycle{name: name, ctx: ctx, cancel: cancel}
}

// start runs f in a goroutine.
func (l *lifecycle) start(f func(context.Context)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil || l.ctx.Err() != nil {
		return errors.New(l.name + ": it starts only once")
	}
	ended := make(chan struct{})
	l.ended = ended
	go func() {
		defer close(ended)
		f(l.ctx)
	}()
	return nil
}

// Stop ends what is under way and waits for it, for as long as ctx lets it.
func (l *lifecycle) Stop(ctx context.Context) error {
	l.mu.Lock()
	l.cancel()
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
