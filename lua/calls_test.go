package lua_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
)

var callsLine = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`)

// redisCalls are the Redis commands that run while f runs, without the
// EVALSHA that carries them.
func redisCalls(t *testing.T, c *redis.Client, f func()) (total int, each string) {
	t.Helper()
	ctx := context.Background()
	if err := c.ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	f()
	text, err := c.Info(ctx, "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range callsLine.FindAllStringSubmatch(text, -1) {
		if m[1] == "evalsha" || m[1] == "config|resetstat" {
			continue
		}
		n, _ := strconv.Atoi(m[2])
		total += n
		each += " " + m[1] + "×" + m[2]
	}
	return total, each
}

// callsServer is a server of the test's own, which knows the scripts: its
// command statistics are the test's.
func callsServer(t *testing.T) *redis.Client {
	t.Helper()
	c := redistest.Start(t).Client()
	for _, s := range lua.All() {
		if err := c.ScriptLoad(context.Background(), s.Source).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// costs runs a call and compares its Redis calls. A sample of what a produce evicted,
// which comes in one ms of 64, costs two more.
func costs(t *testing.T, c *redis.Client, s *lua.Script, keys []string, argv []any, want int) {
	t.Helper()
	total, each := redisCalls(t, c, func() {
		reply, err := c.EvalSha(context.Background(), s.SHA, keys, argv...).Slice()
		if err != nil {
			t.Fatal(err)
		}
		if s == lua.Produce {
			_, samples := withoutSamples(reply)
			want += 2 * samples
		}
	})
	if total != want {
		t.Errorf("%s: got %d Redis calls, want %d:%s", s.Name, total, want, each)
	}
}

// wide is a shard whose partitions take 1,000 entries and whose batches are of 128; all that a claim gives fits.
func wide(t *testing.T, c *redis.Client, n int) group {
	g := partsIn(newPart(t, c), n)
	for _, p := range g {
		p.capacity, p.full, p.batch, p.maxActive, p.bytes = 1000, 128, 128, 100, 64<<20
	}
	return g
}

// A call costs what all its partitions share and, for each of them, a fixed
// number more, however many entries it brings. These are the figures of DESIGN.md.
func TestRedisCallsOfProduceDependOnPartitionsOnly(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	for name, row := range map[string]struct{ before, shared, each int }{
		"new":             {0, 5, 4},
		"living":          {500, 4, 3},
		"full, k evicted": {1000, 4, 5},
	} {
		for _, n := range []int{1, 2, 16} {
			for _, k := range []int{1, 2, 5, 64, 127} {
				t.Run(fmt.Sprintf("%s, %d partitions, %d entries each", name, n, k), func(t *testing.T) {
					g := wide(t, c, n)
					if row.before > 0 {
						g.fill(row.before)
					}
					keys, argv := g.produceCall(k)
					costs(t, c, lua.Produce, keys, argv, row.shared+row.each*n)
				})
			}
		}
	}
}

// The partition whose batch a call completes is asked for its range, and one
// command makes all of them due. A batch that is full from the start costs nothing.
func TestRedisCallsOfTheProduceThatCompletesABatch(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	for _, n := range []int{1, 2, 16} {
		for k, before := range map[int]int{1: 127, 128: 1} {
			g := wide(t, c, n)
			g.fill(before)
			keys, argv := g.produceCall(k)
			costs(t, c, lua.Produce, keys, argv, 5+4*n)
		}
		keys, argv := wide(t, c, n).produceCall(128)
		costs(t, c, lua.Produce, keys, argv, 5+4*n)
	}
}

// Under an idempotency key, its result and the number of keys are read and written; a repeat only reads the result.
func TestRedisCallsOfAnIdempotentProduce(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	p := wide(t, c, 1)[0]
	p.produce(p.fresh(1)...)
	keys, argv := append(p.keys(), p.seen), p.produceArgs(1, p.fresh(5)...)
	costs(t, c, lua.Produce, keys, argv, 4+3+3)
	costs(t, c, lua.Produce, keys, argv, 3+1)
}

// The usual life of a sparse partition: created with one entry, claimed, committed, ended.
func TestRedisCallsOfPartitionsWithOneEntry(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	for _, n := range []int{1, 2, 16} {
		g := wide(t, c, n)
		g.fill(1)
		g.makeDue()
		keys, argv := g.claimCall("t1")
		costs(t, c, lua.Claim, keys, argv, 5+3*n)
		keys, argv = g.commitCall("t1")
		costs(t, c, lua.Commit, keys, argv, 6+2*n)
		for _, p := range g {
			p.same("the partition is gone", p.due(), -1)
		}
	}
}

// Claim and commit of a full batch, whatever the partition holds beyond it.
func TestRedisCallsOfClaimAndCommitDoNotDependOnDepth(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	for _, n := range []int{1, 2, 16} {
		for _, depth := range []int{256, 900} {
			g := wide(t, c, n)
			g.fill(depth)
			keys, argv := g.claimCall("t1")
			costs(t, c, lua.Claim, keys, argv, 5+4*n)
			keys, argv = g.commitCall("t1")
			costs(t, c, lua.Commit, keys, argv, 5+6*n)
		}
	}
}

func TestRedisCallsOfRelease(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	for _, n := range []int{1, 2, 16} {
		g := wide(t, c, n)
		g.fill(1)
		g.makeDue()
		g.claim("t1")
		keys, argv := g.releaseCall("t1", "")
		costs(t, c, lua.Release, keys, argv, 3+3*n)
		g.makeDue()
		g.claim("t2")
		keys, argv = g.releaseCall("t2", "1")
		costs(t, c, lua.Release, keys, argv, 3+4*n)
	}
}
