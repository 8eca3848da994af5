package lua_test

import (
	"slices"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

func (p *part) discard(letters ...any) []any {
	p.t.Helper()
	return p.must(lua.Discard, []string{p.dead, p.ledger}, letters...)[1:]
}

func TestDiscardRemovesLettersOnce(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		from := p.leased(4, "t1")
		p.commit("t1", from, from+4, [3]int64{1, 0, 3}, "first", "second", "third")
		p.same("removed", p.discard("second", "other", "second", "first"), "[1 0 0 1]")
		p.same("left", p.c.LRange(t.Context(), p.dead, 0, -1).Val(), "[third]")
		p.same("in the ledger", []int64{p.count("dead"), p.count("dead_count"), p.count("dead_bytes")}, []int64{3, 1, 5})
		p.same("again", p.discard("second"), "[0]")
		p.do("rpush", p.dead, "first", "third")
		p.same("one of two", p.discard("third"), "[1]")
		p.same("left", p.c.LRange(t.Context(), p.dead, 0, -1).Val(), "[third first]")
		p.lawful()
	})
}

// After something other than Spillway removed letters, the count in the ledger never falls below 0.
func TestDiscardOfForeignLettersCountsNoneBelowZero(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.do("rpush", p.dead, "a", "b")
		p.same("removed", p.discard("a", "b"), "[1 1]")
		p.same("in the ledger", []int64{p.count("dead_count"), p.count("dead_bytes")}, []int64{0, 0})
	})
}

func TestDiscardRefusesWhatItCannotWrite(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.do("rpush", p.dead, "a")
		keys := []string{p.dead, p.ledger}
		p.refuses("bad arguments", lua.Discard, keys)
		p.refuses("bad arguments", lua.Discard, slices.Concat(keys, keys), "a")
		p.do("set", p.dead, "foreign")
		p.refuses("WRONGTYPE", lua.Discard, keys, "a")
		p.do("del", p.dead)
		p.do("rpush", p.dead, "a")
		p.do("hset", p.ledger, "dead_count", "foreign")
		p.refuses("foreign value", lua.Discard, keys, "a")
	})
}
