package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua"
)

func TestProduceMakesAPartition(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		before := p.now()
		reply := p.produce(p.fresh(3)...)
		now := reply[1].(int64)
		p.same("reply", reply, []any{1, now, 3, 0, 3})
		if now < before || now > p.now() {
			t.Errorf("time of the reply: %d is not between %d and now", now, before)
		}
		if head := p.seq("head"); head < before*1000 || head > (p.now()+1)*1000 {
			t.Errorf("head %d is not the store's time in µs", head)
		}
		p.same("birth", p.field("birth"), p.field("head"))
		p.same("due", p.due(), now+p.linger)
		p.ledgerIs(map[string]int64{"accepted": 3})
		for _, key := range []string{p.q, p.m} {
			if ttl := p.c.PTTL(context.Background(), key).Val(); ttl != -1 {
				t.Errorf("%s would vanish by itself in %v", key, ttl)
			}
		}
		p.lawful()
	})
}

func TestProduceMakesAFullBatchDueAtOnce(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		reply := p.produce(p.fresh(4)...)
		p.same("due at birth", p.due(), reply[1])
		other := partIn(t, p.c, strings.TrimSuffix(p.ready, "ready"), "other")
		first := other.produce(p.fresh(3)...)[1].(int64)
		p.same("due of 3 entries", other.due(), first+p.linger)
		reply = other.produce(p.fresh(1)...)
		p.same("due of 4 entries", other.due(), reply[1])
		other.produce(p.fresh(1)...)
		p.same("due of 5 entries: its place in the queue stays", other.due(), reply[1])
	})
}

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

func TestProduceRepeatsTheResultAfterItsPartitionEnded(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produceOnce(p.fresh(4)...)
		from := p.claim("t1")[3].(int64)
		p.delivered("t1", from, from+4)
		p.maxActive = 0
		reply := p.produceOnce(p.fresh(4)...)
		p.same("reply", reply, []any{2, reply[1], 4, 0, 4})
		p.lawful()
	})
}

func TestProduceCountsAVanishedListAsLost(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(5)...)
		p.claim("t1")
		tail := p.seq("tail")
		p.do("del", p.q)
		p.maxActive = 1 // its own place in the active set is free again
		reply := p.produce(p.fresh(2)...)
		p.same("reply", reply, []any{1, reply[1], 2, 0, 2})
		p.same("token", p.field("token"), "")
		if p.seq("head") < tail {
			t.Errorf("head %d repeats sequences below %d", p.seq("head"), tail)
		}
		p.ledgerIs(map[string]int64{"accepted": 7, "lost": 5})
		p.lawful()
	})
}

func TestProduceAdoptsAListWithoutItsHash(t *testing.T) {
	for known, accepted := range map[bool]int64{true: 4, false: 9} {
		t.Run(fmt.Sprintf("active %v", known), func(t *testing.T) {
			on(t, func(t *testing.T, p *part) {
				p.do("rpush", p.q, "1", "2", "3", "4", "5")
				if known {
					p.do("zadd", p.ready, 77, p.name)
				}
				reply := p.produce(p.fresh(4)...)
				p.same("reply", reply, []any{1, reply[1], 4, 0, 9})
				p.ledgerIs(map[string]int64{"accepted": accepted})
				p.same("span", p.seq("tail")-p.seq("head"), 9)
				if p.due() > reply[1].(int64) {
					t.Errorf("due %d: a full batch waits", p.due())
				}
			})
		})
	}
}

func TestProduceRepairsCountsWhenItEvicts(t *testing.T) {
	t.Run("entries vanished", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			p.produce(p.fresh(10)...)
			from := p.claim("t1")[3].(int64)
			p.do("ltrim", p.q, 3, -1)
			p.produce(p.fresh(5)...)
			p.ledgerIs(map[string]int64{"accepted": 15, "lost": 3, "evicted": 2})
			p.same("head", p.seq("head"), from+5)
			p.same("range begins at", p.seq("from"), from+5)
			p.lawful()
		})
	})
	t.Run("another program pushed", func(t *testing.T) {
		on(t, func(t *testing.T, p *part) {
			p.produce(p.fresh(9)...)
			p.do("rpush", p.q, "a", "b", "c")
			p.produce(p.fresh(1)...)
			p.ledgerIs(map[string]int64{"accepted": 13, "evicted": 3})
			p.lawful()
		})
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
