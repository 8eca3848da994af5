package lua_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
)

// on runs one directed test on a real server and on miniredis, in parallel,
// each time on a partition of its own.
func on(t *testing.T, f func(t *testing.T, p *part)) {
	t.Helper()
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		f(t, newPart(t, redistest.SharedClient(t)))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), DisableIdentity: true})
		t.Cleanup(func() { _ = c.Close() })
		f(t, newPart(t, c))
	})
}

// part is one partition in a shard of its own, as the scripts see it, and the
// policy that the calls of a test pass.
type part struct {
	t    *testing.T
	c    *redis.Client
	name string

	q, ready, m, ledger, dead, seen string

	capacity, full, linger, maxActive int64
	maxKeys                           int64
	batch, batches, bytes             int64
	maxAge, lease                     int64
	maxDead, deadBytes                int64

	made int    // entries made so far
	done string // of the last lease
	from int64  // where it began, for tests that spoil the hash
}

var shards atomic.Int64

func newPart(t *testing.T, c *redis.Client) *part {
	return partIn(t, c, fmt.Sprintf("sw:{test.%d}:", shards.Add(1)), "kart")
}

func partIn(t *testing.T, c *redis.Client, prefix, name string) *part {
	return &part{
		t: t, c: c, name: name,
		q: prefix + "q:" + name, ready: prefix + "ready", m: prefix + "m:" + name,
		ledger: prefix + "ledger", dead: prefix + "dead", seen: prefix + "dd:" + name + ":0f",
		capacity: 10, full: 4, linger: 50_000, maxActive: 3, maxKeys: 3,
		batch: 4, batches: 1, bytes: 1 << 20,
		maxAge: 180_000, lease: 15_000,
		maxDead: 3, deadBytes: 1 << 20,
	}
}

func (p *part) try(s *lua.Script, keys []string, argv ...any) ([]any, error) {
	v, err := p.c.Eval(context.Background(), s.Source, keys, argv...).Result()
	reply, _ := v.([]any)
	return reply, err
}

func (p *part) must(s *lua.Script, keys []string, argv ...any) []any {
	p.t.Helper()
	reply, err := p.try(s, keys, argv...)
	if err != nil {
		p.t.Fatalf("%s: %v", s.Name, err)
	}
	return reply
}

// now is the store's time in ms.
func (p *part) now() int64 {
	p.t.Helper()
	v, err := p.c.Time(context.Background()).Result()
	if err != nil {
		p.t.Fatal(err)
	}
	return v.UnixMilli()
}

// fresh makes n entries of this moment; aged n of the given age in ms. No two
// entries of a test are the same.
func (p *part) fresh(n int) []string { return p.aged(n, 0) }

func (p *part) aged(n int, age int64) []string {
	p.t.Helper()
	now := p.now()
	entries := make([]string, n)
	for i := range entries {
		p.made++
		entries[i] = fmt.Sprintf("%013d entry %d", now-age, p.made)
	}
	return entries
}

// makeDue is time passing: what the partition waits for has come.
func (p *part) makeDue() {
	p.t.Helper()
	p.do("zadd", p.ready, 0, p.name)
}

func (p *part) do(args ...any) {
	p.t.Helper()
	if err := p.c.Do(context.Background(), args...).Err(); err != nil {
		p.t.Fatalf("%v: %v", args, err)
	}
}

func (p *part) field(name string) string { return p.c.HGet(context.Background(), p.m, name).Val() }

func (p *part) seq(name string) int64 {
	n, _ := strconv.ParseInt(p.field(name), 10, 64)
	return n
}

func (p *part) list() []string { return p.c.LRange(context.Background(), p.q, 0, -1).Val() }

// due is the partition's score, -1 when it is not active.
func (p *part) due() int64 {
	score, err := p.c.ZScore(context.Background(), p.ready, p.name).Result()
	if err != nil {
		return -1
	}
	return int64(score)
}

func (p *part) count(class string) int64 {
	n, _ := p.c.HGet(context.Background(), p.ledger, class).Int64()
	return n
}
