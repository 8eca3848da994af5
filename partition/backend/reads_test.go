package backend

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/partition/share"
)

func TestReadsOfATenantLeaveRoomForOthersAndForOperators(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rejected := prometheus.NewCounter(prometheus.CounterOpts{})
		l := NewReadLimit(4, time.Second, rejected)
		hold := make(chan struct{})
		greedy := share.As(t.Context(), "greedy")
		results := make(chan error, 200)
		for range 200 {
			go func() { results <- l.Do(greedy, func() error { <-hold; return nil }) }()
		}
		synctest.Wait()
		if len(results) != 200-131 { // three run and 128 wait
			t.Errorf("%d of 200 are rejected at once", len(results))
		}
		for _, ctx := range []context.Context{share.As(t.Context(), "calm"), t.Context()} {
			began := time.Now()
			if err := l.Do(ctx, func() error { return nil }); err != nil || time.Since(began) > 0 {
				t.Errorf("a read of another: %v, after %v", err, time.Since(began))
			}
		}
		time.Sleep(time.Second) // virtual: nobody waits for longer
		synctest.Wait()
		close(hold)
		synctest.Wait()
		read := 0
		for range 200 {
			if err := <-results; err == nil {
				read++
			} else if !errors.Is(err, ErrTooManyReads) || !errors.Is(err, ErrUnavailable) {
				t.Error(err)
			}
		}
		if read != 3 {
			t.Errorf("%d reads ran, want three", read)
		}
	})
}
