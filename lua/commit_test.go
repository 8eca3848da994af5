package lua_test

import (
	"context"
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

func TestCommitAfterTheLeaseLapsedWorksWhileNobodyElseHasIt(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		from := p.leased(4, "t1")
		p.makeDue()
		p.same("reply", p.delivered("t1", from, from+4)[0], 1)
		p.ledgerIs(map[string]int64{"accepted": 4, "delivered": 4})
		p.lawful()
	})
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

func TestCommitMakesAMalformedRestDueNow(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(append(p.fresh(4), "garbage")...)
		from := p.claim("t1")[3].(int64)
		p.same("due", p.due() > 0, true)
		p.same("due", p.delivered("t1", from, from+4)[1], p.due())
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
