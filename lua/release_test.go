package lua_test

import (
	"testing"

	"github.com/spillway-io/spillway/lua"
)

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

func TestReleaseRefusesBadArguments(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.leased(10, "t1")
		p.refusesBadArgs(lua.Release, p.releaseKeys(), p.releaseArgs("t1", 10, 1), []int{3, 4})
		p.refuses("ERR release: bad arguments", lua.Release, p.releaseKeys(), p.name, "t1", 0, 1, "012")
	})
}

func TestReleaseRefusesForeignValuesWhole(t *testing.T) {
	refusesForeign(t, states, lua.Release, func(p *part) ([]string, []any) {
		return p.releaseKeys(), p.releaseArgs("t1", 10, 1)
	})
}
