package lua_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

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

func TestPeekRefusesWhatItCannotRead(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(4)...)
		p.refusesBadArgs(lua.Peek, p.own(), []any{0, 0, 1, 1}, nil, 3, 4)
		p.refuses("bad arguments", lua.Peek, p.own(), 2, 0, 1, 1)
	})
	refusesForeign(t, states, lua.Peek, func(p *part) ([]string, []any) { return p.own(), []any{0, 0, 1, 1} })
}
