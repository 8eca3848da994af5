package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
)

// A value that no script writes into a partition's hash affects that partition only:
// the call goes on, the other partition is served, and the ledger stays exact.
func TestAForeignFieldInOneHashAffectsNothingElse(t *testing.T) {
	values := []string{"", "abc", "nan", "-5", "1.5", "5", "9000000000000000", "9223372036854775807"}
	if testing.Short() {
		values = []string{"abc", "-5", "9000000000000000"} // no number, one too small, one too large
	}
	calls := map[string]func(g group) []any{
		"claim": func(g group) []any {
			keys, argv := g.claimCall("t9")
			return g[0].must(lua.Claim, keys, argv...)
		},
		"repair": func(g group) []any {
			return g[0].must(lua.Repair, g.keys(), g[0].maxAge, 600_000, g[0].name, g[1].name)
		},
		"produce":                  func(g group) []any { return g.produce(g.entries(2)...) },
		"produce that evicts":      func(g group) []any { return g.produce(g.entries(90)...) },
		"produce of large entries": func(g group) []any { return g.produce(g[0].large(1, 5000), g[1].large(1, 5000)) },
		"commit": func(g group) []any {
			argv := g[0].commitShared()
			for _, p := range g {
				argv = append(argv, p.commitOwn("t1", p.from, p.from+2, [3]int64{1, 1, 0})...)
			}
			return g[0].must(lua.Commit, g.keys(), argv...)
		},
		"purge": func(g group) []any {
			return g[0].must(lua.Purge, g.keys(), g[0].now()-100_000, 1000, 1<<20, 1, 0, g[0].name, g[1].name)
		},
		"purge of all": func(g group) []any {
			return g[0].must(lua.Purge, g.keys(), everything, 7, 1<<20, 1, 0, g[0].name, g[1].name)
		},
		"release": func(g group) []any {
			keys, argv := g.releaseCall("t1", "")
			return g[0].must(lua.Release, keys, argv...)
		},
	}
	for verb, call := range calls {
		for _, field := range []string{"head", "tail", "birth", "settled", "expired", "big", "attempt", "to", "from", "cuts", "done"} {
			t.Run(verb+", "+field, func(t *testing.T) {
				several(t, 2, func(t *testing.T, g group) {
					for _, held := range []bool{false, true} {
						for _, value := range values {
							g := partsIn(newPart(t, g[0].c), 2)
							p, spoilt := g[0], g[1]
							p.capacity, p.batch, spoilt.capacity, spoilt.batch = 80, 3, 80, 3
							g.produce(append(p.aged(2, 200_000), p.fresh(4)...), append(p.aged(2, 200_000), p.fresh(4)...))
							g.makeDue()
							if held || verb == "commit" || verb == "release" {
								g.claim("t1")
							}
							p.from, spoilt.from = p.seq("from"), spoilt.seq("from")
							p.do("hset", spoilt.m, field, value)
							g.makeDue()
							call(g)
							g.adds(fmt.Sprintf("%s=%q, held %v", field, value, held))
							g.makeDue()
							p.must(lua.Repair, g.keys(), p.maxAge, 600_000, p.name, spoilt.name)
							g.claim("t10")
							g.adds(fmt.Sprintf("%s=%q, held %v, then repaired and claimed", field, value, held))
							if n := p.count("accepted"); n > 1000 || n < 12 {
								t.Fatalf("%s=%q: accepted is %d", field, value, n)
							}
						}
					}
				})
			})
		}
	}
}

// adds checks the law of the ledger where the sequences of a partition may be wrong.
func (g group) adds(what string) {
	p := g[0]
	p.t.Helper()
	ctx, pipe := context.Background(), p.c.Pipeline()
	ledger := pipe.HGetAll(ctx, p.ledger)
	var lists []*redis.IntCmd
	for _, q := range g {
		lists = append(lists, pipe.LLen(ctx, q.q))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		p.t.Fatal(err)
	}
	n := func(class string) int64 { v, _ := strconv.ParseInt(ledger.Val()[class], 10, 64); return v }
	buffered := int64(0)
	for _, length := range lists {
		buffered += length.Val()
	}
	out := n("delivered") + n("evicted") - n("reclaimed") + n("expired") + n("dead") + n("lost")
	if in := n("accepted"); in != out+buffered {
		p.t.Fatalf("%s: accepted %d, out %d, buffered %d", what, in, out, buffered)
	}
}

// The field done of a range that is gone must not be read as that of the next range.
func TestDoneOfALostRangeIsNotUsedForAnotherRange(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(2)...)
		p.makeDue()
		p.claim("t1")
		p.releaseDone("t1", "11")
		p.produce(p.fresh(2)...)
		p.do("hdel", p.m, "to")
		p.makeDue()
		p.claim("t2")
		p.same("done of the new range", p.done, "")
		p.makeDue()
		p.claim("t3")
		p.same("done of its replay", p.done, "")
		p.lawful()
	})
}

// An error of the server must be the reply of the call, because the client drops its
// connection to a replica then. It does not, where the error is inside an answer.
func TestProduceRepliesWithTheErrorOfAServerThatTakesNoWrites(t *testing.T) {
	several(t, 2, func(t *testing.T, g group) {
		keys, argv := g.produceCall(1)
		rejecting := *lua.Produce
		rejecting.Source = strings.ReplaceAll(rejecting.Source, "create_meta(redis.pcall", "create_meta(function() return { err = 'READONLY replica' } end")
		reply, err := g[0].try(&rejecting, keys, argv...)
		if err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
			t.Errorf("got %v, %v; want the rejection as the answer", reply, err)
		}
	})
}

func TestCommitDropsABoundedNumberOfDeadLetters(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		letters := slices.Repeat([]any{"letter"}, 1000)
		p.do(append([]any{"rpush", p.dead}, letters...)...)
		p.maxDead, p.deadBytes = 10, 1<<20
		from := p.leased(4, "t1")
		p.commit("t1", from, from+4, [3]int64{3, 0, 1}, "newest")
		p.same("kept", p.c.LLen(t.Context(), p.dead).Val(), 1001-101)
		p.same("their size", p.count("dead_bytes"), 6*(1001-101))
		p.do("ltrim", p.dead, -5, -1) // something else removed the others
		from = p.leased(4, "t2")
		p.commit("t2", from, from+4, [3]int64{3, 0, 1}, "newest")
		p.same("their size once some were removed", p.count("dead_bytes"), 6*6)
		p.same("counted", p.count("dead_count"), 6)
	})
}
