package lua_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

func TestPageRefusesBadArguments(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(1)...)
		p.refusesBadArgs(lua.Page, []string{p.ready}, []any{"-inf", "", 1}, nil, 3)
		if names, due := p.page("-inf", "", 1); fmt.Sprint(names) != "[kart]" || due != fmt.Sprint(p.due()) {
			t.Errorf("got %v %s", names, due)
		}
		p.do("del", p.ready)
		if names, due := p.page("-inf", "", 1); len(names) != 0 || due != "-inf" {
			t.Errorf("of nothing: got %v %s", names, due)
		}
		p.do("set", p.ready, "foreign")
		p.refuses("WRONGTYPE", lua.Page, []string{p.ready}, "-inf", "", 1)
	})
}
