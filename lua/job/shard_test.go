package job_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
)

// on runs one directed test on a real server and on miniredis, in parallel, each time
// on a shard of its own.
func on(t *testing.T, f func(t *testing.T, s *shard)) {
	t.Helper()
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) string{
		"redis":     func(t *testing.T) string { return redistest.Shared(t) },
		"miniredis": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A call that is sent again would run twice.
			c := redis.NewClient(&redis.Options{Addr: start(t), DisableIdentity: true, MaxRetries: -1, ReadTimeout: time.Minute})
			t.Cleanup(func() { _ = c.Close() })
			f(t, newShard(t, c))
		})
	}
}

// shard is the keys of one shard, as the scripts see them, and the policy that the calls
// of a test pass.
type shard struct {
	t      testing.TB
	c      *redis.Client
	prefix string

	maxJobs, maxQueues int64
	maxKeys            int64
	keep, bytes        int64 // ms, bytes
	ttr                int64 // ms
	keeps              bool  // dead letters
	tokens             int
	clock              int64 // µs since 1970; 0: the server's
	called             func(script *lua.Script, keys []string, argv []any)
}

var shards atomic.Int64

func newShard(t testing.TB, c *redis.Client) *shard {
	return &shard{
		t: t, c: c, prefix: fmt.Sprintf("sw:{jobs.%d}:", shards.Add(1)),
		maxJobs: 100_000, maxQueues: 1000, maxKeys: 1000, keep: 600_000, bytes: 4 << 20, ttr: 60_000, keeps: true,
	}
}

var ctx = context.Background()

func (s *shard) key(name string) string { return s.prefix + name }
func (s *shard) ledger() string         { return s.key("ledger") }

// common are the keys that ack, settle, promote, respawn, purge and expire share.
func (s *shard) common(queues ...string) []string {
	keys := []string{s.ledger(), s.key("lease"), s.key("attempts"), s.key("queues"), s.key("delay"), s.key("tombstones")}
	for _, q := range queues {
		keys = append(keys, s.key("r:"+q), s.key("j:"+q), s.key("d:"+q), s.key("u:"+q))
	}
	return keys
}

func (s *shard) try(script *lua.Script, keys []string, argv ...any) ([]any, error) {
	if s.called != nil {
		s.called(script, keys, argv)
	}
	source := script.Source
	if s.clock != 0 {
		source = strings.Replace(source, "redis.call('TIME')", fmt.Sprintf("{ '%d', '%d' }", s.clock/1e6, s.clock%1e6), 1)
	}
	v, err := s.c.Eval(ctx, source, keys, argv...).Result()
	reply, _ := v.([]any)
	return reply, err
}

func (s *shard) must(script *lua.Script, keys []string, argv ...any) []any {
	s.t.Helper()
	reply, err := s.try(script, keys, argv...)
	if err != nil {
		s.t.Fatalf("%s: %v", script.Name, err)
	}
	return reply
}

func (s *shard) do(args ...any) any {
	s.t.Helper()
	v, err := s.c.Do(ctx, args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return v
}

func (s *shard) same(what string, got, want any) {
	s.t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		s.t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

// now is the store's time in ms.
func (s *shard) now() int64 {
	s.t.Helper()
	if s.clock != 0 {
		return s.clock / 1000
	}
	v, err := s.c.Time(ctx).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return v.UnixMilli()
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func keepsOf(s *shard, n int) []any {
	argv := make([]any, n)
	for i := range argv {
		argv[i] = bit(s.keeps)
	}
	return argv
}

func anys(list []string) []any {
	argv := make([]any, len(list))
	for i, x := range list {
		argv[i] = x
	}
	return argv
}

func num(v any) int64 {
	switch x := v.(type) {
	case int64:
		return x
	case string:
		n, err := strconv.ParseInt(x, 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	panic(fmt.Sprintf("%T is no number", v))
}

func nums(list []any) []int64 {
	out := make([]int64, len(list))
	for i, v := range list {
		out[i] = num(v)
	}
	return out
}
