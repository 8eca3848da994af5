package lua_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

// leased is a partition with a leased range: its first sequence.
func (p *part) leased(entries int, token string) int64 {
	p.t.Helper()
	p.produce(p.fresh(entries)...)
	p.makeDue()
	return p.claim(token)[3].(int64)
}

func TestCommitSettlesARange(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		from := p.leased(4, "t1")
		reply := p.commit("t1", from, from+4, [3]int64{1, 1, 2}, "d1", "d2")
		p.same("reply", reply, []any{1, reply[1]})
		p.ledgerIs(map[string]int64{"accepted": 4, "delivered": 1, "expired": 1, "dead": 2})
		p.same("dead letters", p.c.LRange(context.Background(), p.dead, 0, -1).Val(), []string{"d1", "d2"})
		p.same("high-water mark", p.count("high_water"), from+4)
		p.same("the partition is forgotten", p.field("tail")+p.field("to"), "")
		p.lawful()
		again := p.commit("t1", from, from+4, [3]int64{1, 1, 2}, "d1", "d2")
		p.same("again", again, []any{0, again[1]})
		p.ledgerIs(map[string]int64{"accepted": 4, "delivered": 1, "expired": 1, "dead": 2})
	})
}

func TestCommitSettlesAPrefix(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.batches = 2
		from := p.leased(8, "t1")
		due := p.due()
		p.same("first batch", p.delivered("t1", from, from+4)[0], 1)
		p.same("from", p.seq("from"), from+4)
		p.same("due: the lease goes on", p.due(), due)
		p.lawful()
		before := p.snapshot()
		reply := p.delivered("t1", from, from+4)
		p.same("again", reply, []any{2, reply[1]})
		p.same("shard", p.snapshot(), before)
		p.same("second batch", p.delivered("t1", from+4, from+8)[0], 1)
		p.ledgerIs(map[string]int64{"accepted": 8, "delivered": 8})
		p.lawful()
	})
}

func TestCommitRejectsAnotherRange(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.batches = 2
		from := p.leased(9, "t1")
		p.delivered("t1", from, from+4)
		before := p.snapshot()
		for _, r := range [][2]int64{{from, from + 8}, {from + 5, from + 8}, {from + 4, from + 9}, {from + 8, from + 9}} {
			reply := p.delivered("t1", r[0], r[1])
			p.same(fmt.Sprint(r), reply, []any{3, reply[1], from + 4})
		}
		p.same("shard", p.snapshot(), before)
	})
}

func TestOnlyTheHolderCanCommit(t *testing.T) {
	gone := func(p *part, token string, from int64) {
		p.t.Helper()
		before := p.snapshot()
		reply := p.delivered(token, from, from+4)
		p.same("reply", reply, []any{0, reply[1]})
		p.same("shard", p.snapshot(), before)
	}
	t.Run("another token, and none", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			from := p.leased(4, "t1")
			gone(p, "t2", from)
			gone(p, "", from)
		})
	})
	t.Run("no lease", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			p.produce(p.fresh(4)...)
			gone(p, "t1", p.seq("head"))
			gone(p, "", p.seq("head"))
		})
	})
	t.Run("released", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			from := p.leased(4, "t1")
			p.release("t1", 0, 1)
			gone(p, "t1", from)
		})
	})
	t.Run("lapsed and leased again", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			from := p.leased(4, "t1")
			p.makeDue()
			p.claim("t2")
			gone(p, "t1", from)
		})
	})
	t.Run("ended", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			from := p.leased(4, "t1")
			p.do("del", p.q, p.m)
			p.do("zrem", p.ready, p.name)
			gone(p, "t1", from)
		})
	})
}

func TestCommitAfterTheLeaseLapsedWorksWhileNobodyElseHasIt(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		from := p.leased(4, "t1")
		p.makeDue()
		p.same("reply", p.delivered("t1", from, from+4)[0], 1)
		p.ledgerIs(map[string]int64{"accepted": 4, "delivered": 4})
		p.lawful()
	})
}

func TestCommitReclaimsEntriesEvictedMeanwhile(t *testing.T) {
	for overflow, want := range map[int]map[string]int64{
		1:  {"accepted": 11, "evicted": 1, "delivered": 8, "reclaimed": 1},
		5:  {"accepted": 15, "evicted": 5, "delivered": 8, "reclaimed": 5},
		8:  {"accepted": 18, "evicted": 8, "delivered": 8, "reclaimed": 8},
		10: {"accepted": 20, "evicted": 10, "delivered": 8, "reclaimed": 8},
		25: {"accepted": 35, "evicted": 25, "delivered": 8, "reclaimed": 8},
	} {
		t.Run(fmt.Sprintf("%d evicted", overflow), func(t *testing.T) {
			on(t, func(t *testing.T, p *part) {
				p.batches = 2
				from := p.leased(10, "t1")
				p.produce(p.fresh(overflow)...)
				newest := p.list()
				p.delivered("t1", from, from+4)
				p.lawful()
				p.delivered("t1", from+4, from+8)
				p.ledgerIs(want)
				p.lawful()
				p.same("entries", p.list(), newest[max(0, 8-overflow):])
				p.same("since birth", fmt.Sprint(p.stats()[4:]), fmt.Sprintf("[%d %d 0]", 10+overflow, max(0, overflow-8)))
			})
		})
	}
}

func TestCommitStartsAfterEntriesThatVanished(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		from := p.leased(9, "t1")
		p.do("ltrim", p.q, 2, -1)
		reply := p.delivered("t1", from, from+4)
		p.same("reply", reply, []any{3, reply[1], from + 2})
		p.lawful()
		p.same("from there", p.delivered("t1", from+2, from+4)[0], 1)
		p.ledgerIs(map[string]int64{"accepted": 9, "lost": 2, "delivered": 2})
		p.lawful()
	})
}

func TestCommitOfEntriesThatVanished(t *testing.T) {
	t.Run("the range", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			from := p.leased(9, "t1")
			p.do("ltrim", p.q, 5, -1)
			reply := p.delivered("t1", from, from+4)
			p.same("reply", reply, []any{2, reply[1]})
			p.ledgerIs(map[string]int64{"accepted": 9, "lost": 5})
			p.lawful()
		})
	})
	t.Run("all", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			from := p.leased(9, "t1")
			p.do("del", p.q)
			reply := p.delivered("t1", from, from+4)
			p.same("reply", reply, []any{0, reply[1]})
			p.ledgerIs(map[string]int64{"accepted": 9, "lost": 9})
			p.lawful()
		})
	})
}

func TestCommitSaysWhenTheRestIsDue(t *testing.T) {
	for name, row := range map[string]struct {
		rest int
		age  int64 // of what remains, ms
		wait int64 // until it is due, ms; 0 = due at once
	}{
		"fresh, less than a batch":              {3, 0, 50_000},
		"fresh, a batch":                        {4, 0, 0},
		"fresh, more than a batch":              {6, 0, 0},
		"it has waited half of the linger":      {3, 25_000, 25_000},
		"it has waited longer than the linger":  {3, 51_000, 0},
		"its time is in the future, by a clock": {3, -70_000, 50_000},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(t *testing.T, p *part) {
				p.produce(p.fresh(4)...)
				rest := p.aged(row.rest, row.age)
				p.produce(rest...)
				from := p.claim("t1")[3].(int64)
				now := p.delivered("t1", from, from+4)[1].(int64)
				want := now
				if row.wait > 0 {
					written, _ := strconv.ParseInt(rest[0][:13], 10, 64)
					want = min(now, written) + p.linger
				}
				p.same("due", p.due(), want)
				p.same("range", p.field("to")+p.field("token")+p.field("cuts")+p.field("attempt"), "")
				p.lawful()
			})
		})
	}
}

func TestCommitMakesAMalformedRestDueNow(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(append(p.fresh(4), "garbage")...)
		from := p.claim("t1")[3].(int64)
		p.same("due", p.due() > 0, true)
		p.same("due", p.delivered("t1", from, from+4)[1], p.due())
	})
}

func TestCommitBoundsTheDeadLetters(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		for i := range 3 {
			from := p.leased(4, fmt.Sprint("t", i))
			p.commit(fmt.Sprint("t", i), from, from+4, [3]int64{2, 0, 2}, fmt.Sprint("a", i), fmt.Sprint("b", i))
		}
		p.same("kept", p.c.LRange(context.Background(), p.dead, 0, -1).Val(), []string{"b1", "a2", "b2"})
		p.ledgerIs(map[string]int64{"accepted": 12, "delivered": 6, "dead": 6, "dead_evicted": 3})
		p.lawful()
	})
}

func TestCommitRejectsBadArguments(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		from := p.leased(10, "t1")
		keys := append(p.keys(), p.dead)
		p.rejectsBadArgs(lua.Commit, keys, p.commitArgs("t1", from, from+4, [3]int64{2, 1, 1}, "d"), []int{7, 8, 9, 10}, 1, 3, 4)
		for name, argv := range map[string][]any{
			"nothing to settle":     p.commitArgs("t1", from, from, [3]int64{}),
			"backwards":             p.commitArgs("t1", from+4, from, [3]int64{-4, 0, 0}),
			"more than there are":   p.commitArgs("t1", from, from+4, [3]int64{0, 5, 0}),
			"a count below zero":    p.commitArgs("t1", from, from+4, [3]int64{5, -1, 0}),
			"a dead letter missing": p.commitArgs("t1", from, from+4, [3]int64{2, 0, 2}, "d"),
			"a letter too many":     p.commitArgs("t1", from, from+4, [3]int64{3, 0, 1}, "d", "e"),
		} {
			t.Log(name)
			p.rejects("ERR commit: bad arguments", lua.Commit, keys, argv...)
		}
	})
}

func TestCommitRejectsForeignValuesWhole(t *testing.T) {
	rejectsForeign(t, states, lua.Commit, func(p *part) ([]string, []any) {
		from := max(p.seq("from"), 1)
		return append(p.keys(), p.dead), p.commitArgs("t1", from, from+4, [3]int64{2, 1, 1}, "d")
	})
}

func TestCommitBoundsTheBytesOfDeadLetters(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.maxDead, p.deadBytes = 100, 10
		bury := func(letters ...string) {
			t.Helper()
			from := p.leased(4, "t")
			p.commit("t", from, from+4, [3]int64{4 - int64(len(letters)), 0, int64(len(letters))}, letters...)
			p.lawful()
		}
		kept := func(want ...string) {
			t.Helper()
			list := p.c.LRange(context.Background(), p.dead, 0, -1).Val()
			p.same("kept", list, want)
			size := 0
			for _, letter := range list {
				size += len(letter)
			}
			p.same("their size", p.count("dead_bytes"), size)
		}
		bury("aaaa", "bbbb")
		kept("aaaa", "bbbb")
		bury("cc")
		kept("aaaa", "bbbb", "cc")
		bury("d")
		kept("bbbb", "cc", "d")
		bury("one that is larger than all together")
		kept("one that is larger than all together")
		p.do("del", p.dead)
		bury("e")
		kept("e")
		p.same("dropped", p.count("dead_evicted"), 4)
	})
}

// A foreign value under the dead letters affects only commits that bring dead letters.
func TestCommitWithoutDeadLettersDoesNotTouchThem(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.do("set", p.dead, "foreign")
		from := p.leased(4, "t1")
		p.rejects("WRONGTYPE", lua.Commit, p.commitKeys(1), p.commitArgs("t1", from, from+4, [3]int64{3, 0, 1}, "d")...)
		p.same("without", p.delivered("t1", from, from+4)[0], 1)
		p.lawful()
	})
}

func TestReleaseGivesTheRangeBack(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		from := p.leased(10, "t1")
		reply := p.release("t1", 2500, 3)
		p.same("reply", reply, []any{1, reply[1]})
		p.same("due", p.due(), reply[1].(int64)+2500)
		p.same("token and from", p.field("token")+p.field("from"), "")
		p.same("attempt", p.field("attempt"), 3)
		p.lawful()
		p.same("not before the back-off ends", p.claim("t2")[0], 0)
		p.makeDue()
		again := p.claim("t2")
		p.same("again", again[:5], []any{2, again[1], 0, from, 4})
	})
}

func TestOnlyTheHolderCanRelease(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.leased(10, "t1")
		before := p.snapshot()
		for _, token := range []string{"t2", ""} {
			reply := p.release(token, 0, 1)
			p.same("reply", reply, []any{0, reply[1]})
		}
		p.same("shard", p.snapshot(), before)
		p.same("the holder", p.release("t1", 0, 1)[0], 1)
		p.same("twice", p.release("t1", 0, 1)[0], 0)
	})
}

func TestReleaseAfterAPartialCommitKeepsTheRest(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.batches = 2
		from := p.leased(8, "t1")
		p.delivered("t1", from, from+4)
		p.release("t1", 0, 1)
		reply := p.claim("t2")
		p.same("again", reply[:5], []any{2, reply[1], 0, from + 4, 2})
		p.same("batches", batches(reply), [][]string{p.list()})
		p.lawful()
	})
}

func TestReleaseMakesEvictionsFinal(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.leased(10, "t1")
		p.produce(p.fresh(2)...)
		p.release("t1", 0, 1)
		from := p.claim("t2")[3].(int64)
		p.delivered("t2", from, from+2)
		p.ledgerIs(map[string]int64{"accepted": 12, "evicted": 2, "delivered": 2})
		p.lawful()
	})
}

func TestReleaseRejectsBadArguments(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.leased(10, "t1")
		p.rejectsBadArgs(lua.Release, p.releaseKeys(), p.releaseArgs("t1", 10, 1), []int{3, 4})
		p.rejects("ERR release: bad arguments", lua.Release, p.releaseKeys(), p.name, "t1", 0, 1, "012")
	})
}

func TestReleaseRejectsForeignValuesWhole(t *testing.T) {
	rejectsForeign(t, states, lua.Release, func(p *part) ([]string, []any) {
		return p.releaseKeys(), p.releaseArgs("t1", 10, 1)
	})
}
