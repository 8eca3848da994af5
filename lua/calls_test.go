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

// The price of a produce is the number of Redis calls in its script; that it
// does not grow with the entries is what makes batches cheap.
func TestRedisCallsOfProduceDoNotDependOnEntries(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	if err := c.ScriptLoad(context.Background(), lua.Produce.Source).Err(); err != nil {
		t.Fatal(err)
	}
	const capacity = 1000
	for name, row := range map[string]struct{ before, calls int }{
		"born":            {0, 10},
		"neither":         {500, 5},
		"full, k evicted": {capacity, 8},
	} {
		for _, k := range []int{1, 2, 5, 128} {
			t.Run(fmt.Sprintf("%s, %d entries", name, k), func(t *testing.T) {
				p := newPart(t, c)
				p.capacity, p.full = capacity, 128
				if row.before > 0 {
					p.produce(p.fresh(row.before)...)
				}
				argv := p.produceArgs(0, p.fresh(k)...)
				total, each := redisCalls(t, c, func() {
					if err := c.EvalSha(context.Background(), lua.Produce.SHA, p.keys(), argv...).Err(); err != nil {
						t.Fatal(err)
					}
				})
				if total != row.calls {
					t.Errorf("got %d Redis calls, want %d:%s", total, row.calls, each)
				}
			})
		}
	}
}

// The call that completes a batch looks at the active set and the range, and
// makes the partition due: three calls more, once a batch.
func TestRedisCallsOfTheProduceThatCompletesABatch(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	if err := c.ScriptLoad(context.Background(), lua.Produce.Source).Err(); err != nil {
		t.Fatal(err)
	}
	for k, before := range map[int]int{1: 127, 128: 1} {
		p := newPart(t, c)
		p.capacity, p.full = 1000, 128
		p.produce(p.fresh(before)...)
		argv := p.produceArgs(0, p.fresh(k)...)
		total, each := redisCalls(t, c, func() {
			if err := c.EvalSha(context.Background(), lua.Produce.SHA, p.keys(), argv...).Err(); err != nil {
				t.Fatal(err)
			}
		})
		if total != 8 {
			t.Errorf("%d entries: got %d Redis calls, want 8:%s", k, total, each)
		}
	}
}

// Claim and commit of a full batch, whatever the partition holds beyond it.
func TestRedisCallsOfClaimAndCommitDoNotDependOnDepth(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	ctx := context.Background()
	for _, s := range []*lua.Script{lua.Claim, lua.Commit} {
		if err := c.ScriptLoad(ctx, s.Source).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, depth := range []int{129, 900} {
		p := newPart(t, c)
		p.capacity, p.full, p.batch = 1000, 128, 128
		p.produce(p.fresh(depth)...)
		p.makeDue()
		total, each := redisCalls(t, c, func() {
			if err := c.EvalSha(ctx, lua.Claim.SHA, p.keys(), p.claimArgs("t1")...).Err(); err != nil {
				t.Fatal(err)
			}
		})
		if total != 11 {
			t.Errorf("claim at depth %d: got %d Redis calls, want 11:%s", depth, total, each)
		}
		from := p.seq("from")
		argv := p.commitArgs("t1", from, from+128, [3]int64{128, 0, 0})
		total, each = redisCalls(t, c, func() {
			if err := c.EvalSha(ctx, lua.Commit.SHA, append(p.keys(), p.dead), argv...).Err(); err != nil {
				t.Fatal(err)
			}
		})
		if total != 14 {
			t.Errorf("commit at depth %d: got %d Redis calls, want 14:%s", depth, total, each)
		}
	}
}
