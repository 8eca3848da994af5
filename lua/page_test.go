package lua_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

// page returns the names of a page, and where the next one begins.
func (p *part) page(due, name string, count int) (names []string, lastDue string) {
	p.t.Helper()
	reply := p.must(lua.Page, []string{p.ready}, due, name, count)
	for _, v := range reply[2:] {
		names = append(names, v.(string))
	}
	return names, reply[1].(string)
}

// pages reads all pages; between calls after each.
func (p *part) pages(count int, between func(names []string)) (all []string) {
	p.t.Helper()
	due, name := "-inf", ""
	for {
		names, last := p.page(due, name, count)
		all = append(all, names...)
		if len(names) < count {
			return all
		}
		due, name = last, names[len(names)-1]
		between(names)
	}
}

// Equal due times are common after an outage; names differ in case, and one begins another.
func TestPagesHoldEveryPartitionOnceInTheOrderOfDueTimes(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		var want []string
		for _, due := range []int64{0, 7, 1_763_629_675_123, 1_763_629_675_124} {
			names := []string{"A", "B-1", "B.1", "B_1", "Z", "a", "a0", "a00", "b", "Ab", "aB"}
			slices.Sort(names)
			for _, name := range names {
				name = fmt.Sprintf("%s%d", name, due)
				p.do("zadd", p.ready, due, name)
			}
		}
		want = p.c.ZRange(t.Context(), p.ready, 0, -1).Val()
		for _, count := range []int{1, 2, 3, 11, 43, 44, 100} {
			p.same(fmt.Sprint("pages of ", count), p.pages(count, func([]string) {}), want)
		}
		names, _ := p.page("7", "", 2)
		p.same("from a due time", names, want[11:13])
	})
}

func TestPagesMissNoPartitionThatStays(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		want := map[string]int{}
		for i := range 300 {
			name := fmt.Sprintf("p%03d", i)
			p.do("zadd", p.ready, 1000+i/100, name)
			if i%3 == 0 {
				want[name] = 1
			}
		}
		got := map[string]int{}
		for _, name := range p.pages(7, func(names []string) {
			for i := range 300 {
				name := fmt.Sprintf("p%03d", i)
				switch {
				case want[name] == 1:
				case rand.IntN(20) == 0:
					p.do("zrem", p.ready, name)
				case rand.IntN(20) == 0:
					p.do("zadd", p.ready, 1000+rand.IntN(4), name)
				}
			}
		}) {
			if want[name] == 1 {
				got[name]++
			}
		}
		p.same("partitions that stayed", got, want)
	})
}

func TestPageRejectsBadArguments(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(1)...)
		p.rejectsBadArgs(lua.Page, []string{p.ready}, []any{"-inf", "", 1}, nil, 3)
		if names, due := p.page("-inf", "", 1); fmt.Sprint(names) != "[kart]" || due != fmt.Sprint(p.due()) {
			t.Errorf("got %v %s", names, due)
		}
		p.do("del", p.ready)
		if names, due := p.page("-inf", "", 1); len(names) != 0 || due != "-inf" {
			t.Errorf("of nothing: got %v %s", names, due)
		}
		p.do("set", p.ready, "foreign")
		p.rejects("WRONGTYPE", lua.Page, []string{p.ready}, "-inf", "", 1)
	})
}

// peek returns {length, head, position, values...}.
func (p *part) peek(keys []string, back, at, count, bytes int) []any {
	p.t.Helper()
	return p.must(lua.Peek, keys, back, at, count, bytes)[1:]
}

func TestPeekReadsBothWays(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		keys := []string{p.dead}
		p.same("an empty list", p.peek(keys, 1, 5, 3, 1000), "[0 0 -1]")
		p.same("an empty list", p.peek(keys, 0, 0, 3, 1000), "[0 0 0]")
		var all []string
		for i := range 40 {
			all = append(all, fmt.Sprint("letter", i))
			p.do("rpush", p.dead, all[i])
		}
		for at := range 45 {
			for _, count := range []int{1, 2, 15, 16, 17, 18, 33, 34, 50} {
				forth, back := []any{40, 0, at}, []any{40, 0, min(at, 39)}
				for i := at; i < min(at+count, 40); i++ {
					forth = append(forth, all[i])
				}
				for i := min(at, 39); i > min(at, 39)-count && i >= 0; i-- {
					back = append(back, all[i])
				}
				p.same(fmt.Sprint("towards the newest ", at, count), p.peek(keys, 0, at, count, 1<<20), forth)
				p.same(fmt.Sprint("towards the oldest ", at, count), p.peek(keys, 1, at, count, 1<<20), back)
			}
		}
	})
}

func TestPeekIsBoundedInBytes(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		for range 100 {
			p.do("rpush", p.dead, strings.Repeat("x", 1000))
		}
		for size, want := range map[int]int{1: 1, 999: 1, 1000: 1, 1001: 2, 10_000: 10, 50_000: 50, 1 << 20: 100} {
			p.same(fmt.Sprint("values of at most ", size), len(p.peek([]string{p.dead}, 1, 99, 1000, size))-3, want)
		}
	})
}

// The sequences are those that the other scripts would give the entries.
func TestPeekKnowsTheSequenceOfTheOldest(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(13)...)
		keys := p.own()
		head := p.seq("head")
		p.same("evicted", p.peek(keys, 0, 0, 1, 1)[1], head)
		p.do("lpop", p.q, 2)
		p.same("vanished", p.peek(keys, 0, 0, 1, 1)[1], head+2)
		p.do("rpush", p.q, "a", "b", "c")
		p.same("pushed", p.peek(keys, 0, 0, 1, 1)[1], head)
		p.do("hdel", p.m, "tail")
		p.same("no hash", p.peek(keys, 0, 0, 1, 1)[1], 0)
	})
}

func TestPeekRejectsWhatItCannotRead(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(4)...)
		p.rejectsBadArgs(lua.Peek, p.own(), []any{0, 0, 1, 1}, nil, 3, 4)
		p.rejects("bad arguments", lua.Peek, p.own(), 2, 0, 1, 1)
	})
	rejectsForeign(t, states, lua.Peek, func(p *part) ([]string, []any) { return p.own(), []any{0, 0, 1, 1} })
}

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

func TestStatsRejectForeignValues(t *testing.T) {
	rejectsForeign(t, states, lua.Stats, func(p *part) ([]string, []any) { return p.statsKeys(), []any{p.name} })
}
