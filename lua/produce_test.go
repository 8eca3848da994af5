package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua"
)

// The samples of evicted entries come in one ms of 64, and never name what a sink has, or
// may get: those of the range that was claimed.
func TestProduceNamesWhatNobodyWasGivenInOneMsOf64(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p = partIn(t, p.c, fmt.Sprintf("sampled%d:", shards.Add(1)), "kart")
		prefix := strings.TrimSuffix(p.ready, ":ready")
		onTheClock := *lua.Produce
		onTheClock.Source = onClock(t, lua.Produce)
		at := func(ms int64, entries ...string) []any {
			p.do("set", "clock:"+prefix, ms*1000)
			return p.must(&onTheClock, p.keys(), p.produceArgs(0, entries...)...)[1:]
		}
		const sampled = 64 * 26_562_500_000
		long := p.large(1, 300)
		p.same("before it is full", at(sampled, append(p.fresh(9), long...)...), []any{1, 10, 0, 10})
		old := p.list()
		p.same("a ms too early", at(sampled-1, p.fresh(1)...), []any{1, 1, 1, 10})
		p.same("one", at(sampled, p.fresh(1)...), []any{3, 1, 1, 10, old[1]})
		p.same("four", at(sampled+64, p.fresh(4)...), []any{3, 4, 4, 10, old[5]})
		p.same("a ms too late", at(sampled+65, p.fresh(1)...), []any{1, 1, 1, 10})
		p.same("its payload is cut", at(sampled+128, p.fresh(3)...), []any{3, 3, 3, 10, long[0][:79]})

		old = p.list()
		p.makeDue()
		p.claim("t1") // the 4 oldest
		p.same("of the range", at(sampled+128, p.fresh(4)...), []any{1, 4, 4, 10})
		p.same("beyond the range", at(sampled+128, p.fresh(1)...), []any{3, 1, 1, 10, old[4]})
		p.same("as many as there are", at(sampled+128, p.fresh(5)...), []any{3, 5, 5, 10, old[9]})
	})
}

func TestProduceOfANewPartitionKeepsTheNewestOfTooMany(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.capacity, p.full = 1, 1
		entries := p.fresh(2500) // more than one unpack
		reply := p.produce(entries...)
		p.same("reply", reply, []any{1, reply[1], 2500, 2499, 1})
		p.same("entries", p.list(), entries[2499:])
		p.same("due", p.due(), reply[1])
		p.lawful()
	})
}

func TestProduceRepeatsTheResultOfItsKey(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(8)...)
		entries := p.fresh(5)
		first := p.produceOnce(entries...)
		p.same("first", first, []any{1, first[1], 5, 3, 10})
		before := p.snapshot()
		again := p.produceOnce(entries...)
		p.same("again", again, []any{2, again[1], 5, 3, 10})
		p.same("shard", p.snapshot(), before)
		if ttl := p.c.PTTL(context.Background(), p.seen).Val(); ttl <= 119*time.Second || ttl > 120*time.Second {
			t.Errorf("the result is kept for %v, want 2m", ttl)
		}
		p.seen += "other"
		other := p.produceOnce(entries...)
		p.same("under another key", other, []any{1, other[1], 5, 5, 10})
		p.lawful()
	})
}

func TestProduceRejectsBadArguments(t *testing.T) {
	for _, entries := range []int{0, 2, 10} {
		t.Run(fmt.Sprintf("%d entries there", entries), func(t *testing.T) {
			on(t, func(t *testing.T, p *part) {
				if entries > 0 {
					p.produce(p.fresh(entries)...)
				}
				p.rejectsBadArgs(lua.Produce, append(p.keys(), p.seen), p.produceArgs(1, p.fresh(1)...), []int{9}, 1, 2, 5, 8, 9)
			})
		})
	}
}

func TestProduceRejectsForeignValuesWhole(t *testing.T) {
	rejectsForeign(t, states, lua.Produce, func(p *part) ([]string, []any) {
		return append(p.keys(), p.seen), p.produceArgs(1, p.fresh(1)...)
	})
}

func TestProduceRejectsAForeignResult(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.do("set", p.seen, "foreign")
		p.rejects("ERR", lua.Produce, append(p.keys(), p.seen), p.produceArgs(1, p.fresh(1)...)...)
	})
}
