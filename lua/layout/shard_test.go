package layout_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	lualayout "github.com/spillway-io/spillway/lua/layout"
	"github.com/spillway-io/spillway/lua/redistest"
)

// A shard is the keys of one, as the scripts see them.
type shard struct {
	*testing.T
	c             *redis.Client
	prefix        string
	ledger, ready string
}

var shards atomic.Int64

// on runs a test on a real server and on miniredis, each time on a shard of its own.
func on(t *testing.T, f func(s shard)) {
	t.Helper()
	t.Parallel()
	run := func(t *testing.T, c *redis.Client) {
		prefix := fmt.Sprintf("sw:{layout.%d}:", shards.Add(1))
		f(shard{t, c, prefix, prefix + "ledger", prefix + "ready"})
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		run(t, redistest.SharedClient(t))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), DisableIdentity: true})
		t.Cleanup(func() { _ = c.Close() })
		run(t, c)
	})
}

// run returns what a script answers after the time.
func (s shard) run(script *lua.Script, keys []string, argv ...any) []any {
	s.Helper()
	v, err := s.c.Eval(context.Background(), script.Source, keys, argv...).Slice()
	if err != nil {
		s.Fatalf("%s: %v", script.Name, err)
	}
	if now, err := s.c.Time(context.Background()).Result(); err != nil || v[0].(int64) > now.UnixMilli() || v[0].(int64) < now.UnixMilli()-60_000 {
		s.Fatalf("%s: the time is %v, the server's %v, %v", script.Name, v[0], now, err)
	}
	return v[1:]
}

// answers fails unless a script answers so, after the time.
func (s shard) answers(got []any, want ...any) {
	s.Helper()
	if text(got) != text(want) {
		s.Fatalf("got %v, want %v", got, want)
	}
}

func text(values []any) string {
	all := ""
	for _, v := range values {
		all += fmt.Sprint(v, " ")
	}
	return all
}

// rejects fails unless a call is an error that holds the text, and writes nothing.
func (s shard) rejects(want string, script *lua.Script, keys []string, argv ...any) {
	s.Helper()
	before := s.all()
	err := s.c.Eval(context.Background(), script.Source, keys, argv...).Err()
	if err == nil || !strings.Contains(err.Error(), want) {
		s.Errorf("%s %v: got %v, want %q", script.Name, argv, err, want)
	}
	if after := s.all(); before != after {
		s.Errorf("%s %v: wrote: %s, before: %s", script.Name, argv, after, before)
	}
}

// all are the values of the shard.
func (s shard) all() string {
	ctx := context.Background()
	keys := s.c.Keys(ctx, strings.NewReplacer("{", "\\{", "}", "\\}").Replace(s.prefix)+"*").Val()
	slices.Sort(keys)
	values := ""
	for _, key := range keys {
		values += fmt.Sprint(key, s.c.Type(ctx, key).Val(), s.c.HGetAll(ctx, key).Val(), s.c.ZRangeWithScores(ctx, key, 0, -1).Val(), s.c.LRange(ctx, key, 0, -1).Val())
	}
	return values
}

func (s shard) set(fields ...any) {
	s.Helper()
	if err := s.c.HSet(context.Background(), s.ledger, fields...).Err(); err != nil {
		s.Fatal(err)
	}
}

func (s shard) field(name string) string {
	return s.c.HGet(context.Background(), s.ledger, name).Val()
}

func (s shard) due(name string, ms int64) {
	s.Helper()
	if err := s.c.ZAdd(context.Background(), s.ready, redis.Z{Score: float64(ms), Member: name}).Err(); err != nil {
		s.Fatal(err)
	}
}

func (s shard) now() int64 { return s.c.Time(context.Background()).Val().UnixMilli() }

func (s shard) fence(own, layout, version int, record string) []any {
	s.Helper()
	return s.run(lualayout.Fence, []string{s.ledger}, own, layout, version, record, "buffer")
}

func (s shard) gone(own int, names ...string) []any {
	s.Helper()
	keys, argv := []string{s.ledger, s.ready}, []any{own}
	for _, name := range names {
		keys, argv = append(keys, s.prefix+"q:"+name), append(argv, name)
	}
	return s.run(lualayout.Gone, keys, argv...)
}

func (s shard) close(own int) []any {
	s.Helper()
	return s.run(lualayout.Close, []string{s.ledger, s.ready}, own, 0)
}

// produce brings one entry to a partition, from a caller who knows the shard as one of a layout.
func (s shard) produce(name string, own int, floor int64) []any {
	s.Helper()
	entry := fmt.Sprintf("%013d entry", s.now())
	return s.run(lua.Produce, []string{s.ready, s.ledger, s.prefix + "q:" + name, s.prefix + "m:" + name},
		10, 4, 0, 100, 1000, 100, len(entry), len(s.prefix)+len("q:")+1, own, floor, 1, entry)
}
