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

func TestRepairPullsBackDueTimesTooFarAhead(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(4)...)
		far := p.now() + 700_000
		p.do("zadd", p.ready, far, p.name)
		reply := p.repair()
		p.same("reply", reply, []any{1, reply[1], 0})
		p.same("due", p.due(), reply[1])

		from := p.claim("t1")[3].(int64)
		p.do("zadd", p.ready, p.now()+3_700_000, p.name)
		reply = p.repair()
		p.same("reply of a leased one", reply, []any{1, reply[1], 0})
		p.same("due of a leased one", p.due(), reply[1].(int64)+p.lease)
		p.same("commit", p.delivered("t1", from, from+4)[0], 1)
		p.lawful()
	})
}

func TestRepairRejectsBadArguments(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(10)...)
		p.rejectsBadArgs(lua.Repair, p.keys(), p.repairArgs(), nil, 1)
	})
}

func TestRepairRejectsForeignValuesWhole(t *testing.T) {
	rejectsForeign(t, states, lua.Repair, func(p *part) ([]string, []any) { return p.keys(), p.repairArgs() })
}
