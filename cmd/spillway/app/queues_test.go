package app

import (
	"context"
	"testing"
	"time"
)

// stuck is a component whose Redis is away: Stop takes all the time there is.
type stuck struct{ began chan struct{} }

func (s stuck) Start(context.Context) error { return nil }

func (s stuck) Stop(ctx context.Context) error {
	close(s.began)
	<-ctx.Done()
	return ctx.Err()
}

func TestAPoolThatDoesNotStopHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := stuck{make(chan struct{})}, stuck{make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- stopEach(ctx, []startStopper{a, b}) }()
	for _, s := range []stuck{a, b} {
		select {
		case <-s.began:
		case <-ctx.Done():
			t.Fatal("one waits for the other")
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("got no error")
	}
}
