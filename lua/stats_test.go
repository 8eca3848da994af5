package lua_test

import (
	"testing"

	"github.com/spillway-io/spillway/lua"
)

func TestStatsDescribeAPartition(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		reply := p.stats()
		p.same("nothing there", reply, []any{0, reply[1]})

		p.produce(p.aged(10, 5000)...)
		p.produce(p.fresh(3)...)
		reply = p.stats()
		age := reply[3].(int64)
		p.same("reply", reply, []any{10, reply[1], 0, age, 13, 3, 0})
		if age < 5000 || age > 15_000 {
			t.Errorf("age of the oldest: %d ms, want about 5000", age)
		}
		from := p.claim("t1")[3].(int64)
		p.same("leased", p.stats()[2], 1)
		p.produce(p.fresh(2)...)
		p.commit("t1", from, from+4, [3]int64{2, 1, 1}, "d")
		reply = p.stats()
		p.same("settled", reply, []any{8, reply[1], 0, reply[3], 15, 3, 1})
		p.makeDue()
		p.claim("t2")
		p.makeDue()
		p.same("lapsed", p.stats()[2], 0)
		before := p.snapshot()
		p.stats()
		p.same("shard", p.snapshot(), before)
	})
}

func TestStatsDoNotCountLostEntriesAsEvicted(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(10)...)
		p.do("lpop", p.q, 3)
		p.repair()
		p.same("counts", p.stats()[4:], []any{10, 0, 0})
	})
}

func TestStatsOfForeignEntries(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.do("rpush", p.q, "garbage", "more")
		reply := p.stats()
		p.same("reply", reply, []any{2, reply[1], 0, 0, 2, 0, 0})
		future := partIn(t, p.c, p.ready[:len(p.ready)-len("ready")], "future")
		future.produce(future.aged(1, -60_000)...)
		p.same("age of an entry of the future", future.stats()[3], 0)
	})
}

// Each partition of a call has its own answer, also beside one with a foreign value.
func TestStatsDescribeSeveralPartitions(t *testing.T) {
	several(t, 4, func(t *testing.T, g group) {
		p := g[0]
		g[:3].produce(p.fresh(1), p.fresh(5), p.fresh(2))
		g[1].makeDue()
		g[1].claim("t1")
		g[1].release("t1", 60_000, 2)
		p.do("del", g[2].m)
		p.do("sadd", g[2].m, "foreign")
		keys, argv := []string{p.ready}, []any{}
		for _, q := range g {
			keys, argv = append(keys, q.own()...), append(argv, q.name)
		}
		reply := p.must(lua.Stats, keys, argv...)
		p.same("answers", reply[1:], []any{
			1, 1, 0, reply[4], 1, 0, 0, p.due(), 0,
			1, 5, 0, reply[13], 5, 0, 0, g[1].due(), 2,
			wrongType, 0,
		})
	})
}

// The entries behind a range that was dropped were never presented.
func TestStatsForgetTheAttemptsOfADroppedRange(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.batch = 2
		p.produce(p.fresh(4)...)
		p.makeDue()
		p.claim("t1")
		p.release("t1", 60_000, 2)
		attempt := func() any {
			reply := p.must(lua.Stats, p.statsKeys(), p.name)
			return reply[len(reply)-1]
		}
		p.same("presented twice", attempt(), 2)
		p.same("one of the range", p.must(lua.Purge, p.keys(), everything, 1, 1<<20, 1, 0, p.name)[1:], "[1 1]")
		p.same("the other one", attempt(), 2)
		p.same("the range", p.must(lua.Purge, p.keys(), everything, 1, 1<<20, 1, 0, p.name)[1:], "[1 1]")
		p.same("those behind it", attempt(), 0)
	})
}

// The oldest entries of 200 partitions may have 6 MiB, which would hold Redis up for 10 ms.
func TestStatsReadOldestEntriesUpToABound(t *testing.T) {
	several(t, 4, func(t *testing.T, g group) {
		p := g[0]
		g[:3].produce(p.large(1, 300_000), p.large(1, 300_000), p.fresh(1))
		keys, argv := []string{p.ready}, []any{}
		for _, q := range g {
			keys, argv = append(keys, q.own()...), append(argv, q.name)
		}
		reply := p.must(lua.Stats, keys, argv...)
		p.same("the first two are described, the others not read", []any{len(reply), reply[1], reply[10], reply[19:]}, []any{21, 1, 1, []any{2, 2}})
	})
}

func TestStatsRefuseForeignValues(t *testing.T) {
	refusesForeign(t, states, lua.Stats, func(p *part) ([]string, []any) { return p.statsKeys(), []any{p.name} })
}
