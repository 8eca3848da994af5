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
