package lua_test

import (
	"testing"

	"github.com/spillway-io/spillway/lua"
)

func TestRepairLeavesAHealthyPartition(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		for _, state := range []string{"a partition", "one below a full batch", "a leased partition", "a lapsed lease", "a range that waits"} {
			p := newPart(t, p.c)
			states[state](p)
			before := p.snapshot()
			reply := p.repair()
			p.same(state, reply, []any{0, reply[1], 0})
			p.same(state, p.snapshot(), before)
		}
	})
}

func TestRepairMakesAnUnknownListActive(t *testing.T) {
	t.Run("made by another program", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			entries := p.fresh(3)
			for _, e := range entries {
				p.do("rpush", p.q, e)
			}
			reply := p.repair()
			p.same("reply", reply, []any{1, reply[1], 0})
			p.same("due", p.due(), reply[1])
			p.ledgerIs(map[string]int64{"accepted": 3})
			p.lawful()
		})
	})
	t.Run("made by Spillway", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			p.produce(p.fresh(3)...)
			p.do("zrem", p.ready, p.name)
			reply := p.repair()
			p.same("reply", reply, []any{1, reply[1], 0})
			p.same("due", p.due(), reply[1])
			p.ledgerIs(map[string]int64{"accepted": 3})
			p.lawful()
		})
	})
	t.Run("leased: the holder keeps it", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			from := p.leased(4, "t1")
			p.do("zrem", p.ready, p.name)
			reply := p.repair()
			p.same("reply", reply, []any{1, reply[1], 0})
			p.same("due", p.due(), reply[1].(int64)+p.lease)
			p.same("nobody else gets it", p.claim("t2")[0], 0)
			p.same("commit", p.delivered("t1", from, from+4)[0], 1)
			p.lawful()
		})
	})
}

func TestRepairEndsAPartitionWithoutEntries(t *testing.T) {
	t.Run("a member alone", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			p.makeDue()
			reply := p.repair()
			p.same("reply", reply, []any{1, reply[1], 0})
			p.lawful()
			p.ledgerIs(map[string]int64{})
		})
	})
	t.Run("the list is gone", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			p.leased(4, "t1")
			tail := p.seq("tail")
			p.do("del", p.q)
			reply := p.repair()
			p.same("reply", reply, []any{1, reply[1], 0})
			p.same("high-water mark", p.count("high_water"), tail)
			p.ledgerIs(map[string]int64{"accepted": 4, "lost": 4})
			p.lawful()
		})
	})
	t.Run("the hash alone", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			p.produce(p.fresh(4)...)
			p.do("del", p.q)
			p.do("zrem", p.ready, p.name)
			p.repair()
			p.ledgerIs(map[string]int64{"accepted": 4, "lost": 4})
			p.lawful()
		})
	})
}

func TestRepairRepairsCounts(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(6)...)
		p.do("lpop", p.q, 2)
		reply := p.repair()
		p.same("vanished", reply, []any{1, reply[1], 0})
		p.do("rpush", p.q, "pushed")
		reply = p.repair()
		p.same("pushed", reply, []any{1, reply[1], 0})
		p.ledgerIs(map[string]int64{"accepted": 7, "lost": 2})
		p.lawful()
	})
}

func TestRepairAdoptsAListWithHalfAHash(t *testing.T) {
	for _, field := range []string{"head", "tail"} {
		t.Run(field+" is gone", func(t *testing.T) {
			on(t, func(t *testing.T, p *part) {
				p.produce(p.fresh(4)...)
				p.do("hdel", p.m, field)
				reply := p.repair()
				p.same("reply", reply, []any{1, reply[1], 0})
				p.ledgerIs(map[string]int64{"accepted": 4})
				p.lawful()
			})
		})
	}
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

func TestRepairDropsStaleEntriesThatNobodyHolds(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.aged(6, 170_000)...)
		p.produce(p.fresh(1)...)
		p.claim("t1")
		p.maxAge = 160_000
		before := p.snapshot()
		reply := p.repair()
		p.same("while leased", reply, []any{0, reply[1], 0})
		p.same("shard", p.snapshot(), before)
		p.makeDue()
		reply = p.repair()
		p.same("once lapsed", reply, []any{0, reply[1], 6})
		p.same("token", p.field("token"), "")
		p.ledgerIs(map[string]int64{"accepted": 7, "expired": 6})
		p.lawful()
	})
}

func TestRepairEndsAPartitionThatIsAllStale(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.aged(6, 200_000)...)
		reply := p.repair()
		p.same("reply", reply, []any{0, reply[1], 6})
		p.same("due", p.due(), -1)
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
