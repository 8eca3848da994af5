package backend

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/clocktest"
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
		clocktest.Pass(time.Second) // virtual: nobody waits for longer
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

// Two servers, and calls and commands for both at once.
func TestCallsAndPipelinesGoToTheBackendOfTheirShards(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var both [2]*Backend
	for i := range both {
		b, err := Open(Config{URL: "embedded:"}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		both[i] = b
	}
	near, far := both[0], both[1]
	script := &lua.Script{Name: "put", Source: "redis.call('SET', KEYS[1], 1) return {tonumber(redis.call('TIME')[1]) * 1000}"}
	put := func(breaker *Breaker, key string) *Call {
		c := NewCall(script, breaker, []string{key})
		c.WithText()
		return c
	}
	near.Run(ctx, near.In, []*Call{put(near.NewBreaker("l"), "a"), put(far.NewBreaker("l"), "b"), put(nil, "c")})
	near.RunDurably(ctx, near.In, []*Call{put(far.NewBreaker("l"), "d")})
	for i, want := range [][]string{{"a", "c"}, {"b", "d"}} {
		keys := both[i].Out.Keys(ctx, "*").Val()
		if slices.Sort(keys); !slices.Equal(keys, want) {
			t.Errorf("server %d has %q, want %q", i, keys, want)
		}
		if _, known := both[i].Now(); !known {
			t.Errorf("the time of server %d was not taken from its answers", i)
		}
	}

	pipes := Pipes{}
	a, b := pipes.To(near.Out).Get(ctx, "a"), pipes.To(far.Out).Get(ctx, "b")
	none := pipes.To(far.Out).Get(ctx, "a")
	if err := pipes.Exec(ctx); err != nil || a.Val() != "1" || b.Val() != "1" || !errors.Is(none.Err(), redis.Nil) {
		t.Errorf("%v, %v, %v, %v", err, a, b, none)
	}
	_ = far.Close()
	a, b = pipes.To(near.Out).Get(ctx, "a"), pipes.To(far.Out).Get(ctx, "b")
	if err := pipes.Exec(ctx); err == nil || a.Val() != "1" || b.Err() == nil {
		t.Errorf("one away: %v, %v, %v", err, a, b)
	}
}
