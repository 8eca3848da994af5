package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
)

func (p *part) pauseArgs(name string, max int) []any { return []any{name, 0, `{"by":"alice"}`, max} }

func (p *part) pause(name string) []any {
	p.t.Helper()
	return one(p.must(lua.Pause, []string{p.ledger}, p.pauseArgs(name, 1000)...))
}

func (p *part) resumeKeys(name string) []string {
	if name == "*" {
		return []string{p.ready, p.ledger}
	}
	return []string{p.ready, p.ledger, p.m}
}

func (p *part) resume(name string) []any {
	p.t.Helper()
	return one(p.must(lua.Resume, p.resumeKeys(name), name))
}

func (p *part) pauseField(name string) string {
	return p.c.HGet(context.Background(), p.ledger, name).Val()
}

func TestAPausedPartitionGetsNoLeaseAndIsPutOff(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.aged(10, 30_000)...)
		p.pause(p.name)
		p.same("stored", p.pauseField("pause:kart")[13:], ` {"by":"alice"}`)
		reply := p.claim("t1")
		p.same("claim", reply, []any{5, reply[1], 0})
		// Not before its oldest entry goes stale, and that is in 150 s.
		if wait := p.due() - reply[1].(int64); wait < 149_000 || wait > 151_000 {
			t.Errorf("put off for %d ms, want about 150000", wait)
		}
		p.same("token", p.field("token")+p.field("to"), "")
		again := p.claim("t1")
		p.same("not due", again, []any{0, again[1], p.due()})
		p.lawful()

		reply = p.resume(p.name)
		p.same("resume", reply, []any{1, reply[1]})
		p.same("due", p.due(), reply[1])
		p.same("nothing is left of the pause", p.pauseField("pause:kart")+p.pauseField("paused"), "")
		p.same("claim", p.claim("t2")[0], 2)
		before := p.snapshot()
		p.same("resume again", p.resume(p.name)[0], 0)
		p.same("shard", p.snapshot(), before)
	})
}

func TestAPausedPartitionStandsBackWhileItsEntriesGoStaleOneByOne(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(append(p.aged(3, p.maxAge+5000), p.aged(4, p.maxAge-100)...)...)
		p.pause(p.name)
		reply := p.claim("t1")
		p.same("claim", reply, []any{5, reply[1], 3})
		p.same("put off for a sixteenth of the max age", p.due()-reply[1].(int64), p.maxAge/16)
		p.ledgerIs(map[string]int64{"accepted": 7, "expired": 3})
		p.lawful()
		maxAge := p.maxAge
		p.maxAge = 1
		p.makeDue()
		reply = p.claim("t1")
		p.same("all are stale", reply, []any{1, reply[1], 4})
		p.maxAge = maxAge
		p.ledgerIs(map[string]int64{"accepted": 7, "expired": 7})
		p.lawful()
		p.same("it is still paused", p.pauseField("paused"), 1)
		p.produce(p.fresh(4)...)
		p.same("claim of new entries", p.claim("t1")[0], 5)
	})
}

func TestAPausedPartitionWithManyStaleEntriesIsClaimedAgainAtOnce(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.capacity = 10_000
		p.produce(p.aged(2500, p.maxAge+5000)...)
		p.produce(p.fresh(1)...)
		p.pause(p.name)
		for _, want := range []string{"1 ≥1024", "1 ≥1024", "5 the rest"} {
			reply := p.claim("t1")
			p.same(want, reply[0], want[:1])
			if reply[0] == int64(1) {
				p.same("due", p.due(), reply[1])
			}
			p.lawful()
		}
		p.ledgerIs(map[string]int64{"accepted": 2501, "expired": 2500})
	})
}

func TestALeaseThatRunsWhenThePauseComesFinishes(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		from := p.leased(10, "t1")
		due := p.due()
		p.pause(p.name)
		p.same("it is not taken away", []any{p.due(), p.claim("t2")[0]}, []any{due, 0})
		p.same("commit", p.delivered("t1", from, from+4)[0], 1)
		p.makeDue()
		p.same("the rest waits", p.claim("t2")[0], 5)
		p.lawful()
	})
}

func TestALapsedLeaseOfAPausedPartitionEnds(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		from := p.leased(10, "t1")
		p.pause(p.name)
		p.makeDue() // it lapses
		p.same("claim", p.claim("t2")[0], 5)
		p.same("token", p.field("token"), "")
		p.same("its former holder", p.delivered("t1", from, from+4)[0], 0)
		p.resume(p.name)
		p.same("the same range comes again", p.claim("t3")[3:5], []any{from, 2})
		p.lawful()
	})
}

func TestResumeLeavesARunningLeaseAlone(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.leased(10, "t1")
		p.pause(p.name)
		due := p.due()
		p.same("resume", p.resume(p.name)[0], 1)
		p.same("due", p.due(), due)
	})
}

func TestAPausedNamespaceIsLeftAloneUntilTheJanitorExpiresItsEntries(t *testing.T) {
	several(t, 3, func(t *testing.T, g group) {
		p := g[0]
		g.produce(p.aged(4, 5000), p.aged(4, 5000), p.aged(4, 5000))
		p.pause("*")
		before := p.snapshot()
		p.same("claim", g.claim("t1"), []any{[]any{6}, []any{6}, []any{6}})
		p.same("shard", p.snapshot(), before)
		for _, q := range g {
			q.maxAge = 1000
			p.same("expired by repair", q.repair()[2], 4)
		}
		p.ledgerIs(map[string]int64{"accepted": 12, "expired": 12})
		g.lawful()
		p.same("resume", p.resume("*")[0], 1)
		p.same("paused", p.pauseField("paused"), "")
		g.fill(4)
		p.same("claim", p.claim("t2")[0], 2)
	})
}

func TestOnlyThePausedPartitionsOfACallArePaused(t *testing.T) {
	several(t, 3, func(t *testing.T, g group) {
		p := g[0]
		g.fill(4)
		p.pause(g[1].name)
		codes := func(answers []any) (list []any) {
			for _, a := range answers {
				list = append(list, a.([]any)[0])
			}
			return list
		}
		p.same("claim", codes(g.claim("t1")), []any{2, 5, 2})
		p.pause("*")
		g.makeDue()
		p.same("the namespace, too", codes(g.claim("t2")), []any{6, 6, 6})
		p.resume("*")
		p.same("it is still paused", codes(g.claim("t3")), []any{2, 5, 2})
		g.lawful()
	})
}

func TestASecondPauseKeepsTheTimeOfTheFirst(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		for _, name := range []string{p.name, "*"} {
			args := []any{name, 1_700_000_000_000, "first", 10, 1}
			p.must(lua.Pause, []string{p.ledger}, args...)
			args[1], args[2] = 1_800_000_000_000, "second"
			p.must(lua.Pause, []string{p.ledger}, args...)
			p.same("stored", p.pauseField("pause:"+name), "1700000000000 second")
		}
		p.same("counted once each", p.pauseField("paused"), 2)
		reply := p.pause("other")
		p.same("without a time: now", p.pauseField("pause:other")[:13], reply[1])
	})
}

func TestPausesAreBounded(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		try := func(name string) any { return p.must(lua.Pause, []string{p.ledger}, p.pauseArgs(name, 2)...)[1] }
		p.same("two partitions, and the namespace", []any{try("a"), try("*"), try("b")}, []any{1, 1, 1})
		before := p.snapshot()
		p.same("a third", try("c"), 0)
		p.same("shard", p.snapshot(), before)
		p.same("one of them again", try("a"), 1)
		p.resume("b")
		p.same("once there is room", try("c"), 1)
	})
}

// Who must stop delivery must not need memory for it first.
func TestAFullStorePausesAndResumes(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	p := newPart(t, c)
	p.produce(p.fresh(4)...)
	do(t, c, "config", "set", "maxmemory", "1")
	for _, name := range []string{p.name, "*"} {
		p.same("pause", p.pause(name)[0], 1)
		p.makeDueByHand(t)
		p.same("resume", p.resume(name)[0], 1)
	}
	p.pause(p.name)
	p.same("claim", p.claim("t1")[0], 5)
}

// makeDueByHand: a full store rejects ZADD outside of a script that frees first.
func (p *part) makeDueByHand(t *testing.T) {
	t.Helper()
	do(t, p.c, "config", "set", "maxmemory", "0")
	p.makeDue()
	do(t, p.c, "config", "set", "maxmemory", "1")
}

func TestRedisCallsOfPausedPartitions(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	for _, n := range []int{1, 2, 16} {
		g := wide(t, c, n)
		g.fill(500)
		g[0].pause("other") // one read for all partitions of the call
		keys, argv := g.claimCall("t1")
		costs(t, c, lua.Claim, keys, argv, 6+4*n)
		g.makeDue()
		for _, p := range g {
			p.pause(p.name)
		}
		keys, argv = g.claimCall("t2")
		costs(t, c, lua.Claim, keys, argv, 6+5*n) // each ends a lapsed lease
		g.makeDue()
		costs(t, c, lua.Claim, keys, argv, 6+4*n)
		g[0].pause("*")
		costs(t, c, lua.Claim, keys, argv, 3)
	}
	p := wide(t, c, 1)[0]
	costs(t, c, lua.Pause, []string{p.ledger}, p.pauseArgs(p.name, 1), 5)
	costs(t, c, lua.Resume, p.resumeKeys(p.name), []any{p.name}, 6)
}

func TestPauseAndResumeRejectBadArguments(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.rejectsBadArgs(lua.Pause, []string{p.ledger}, p.pauseArgs(p.name, 10), []int{2, 4})
		p.rejects("ERR pause: bad arguments", lua.Pause, []string{p.ledger}, p.pauseArgs("", 10)...)
		p.pause(p.name)
		for _, row := range []struct {
			keys int
			name string
		}{{2, p.name}, {3, "*"}, {3, ""}} {
			p.rejects("ERR resume: bad arguments", lua.Resume, p.resumeKeys(p.name)[:row.keys], row.name)
		}
	})
}

func TestPauseAndResumeRejectForeignValuesWhole(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(4)...)
		p.pause(p.name)
		for script, argv := range map[*lua.Script][]any{lua.Pause: p.pauseArgs(p.name, 10), lua.Resume: {p.name}} {
			keys := []string{p.ledger}
			if script == lua.Resume {
				keys = p.resumeKeys(p.name)
			}
			for i, key := range keys {
				p.do("rename", key, key+":aside")
				p.do("rpush", key, "foreign")
				before := p.snapshot()
				if _, err := p.try(script, keys, argv...); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
					t.Errorf("%s, KEYS[%d]: got %v", script.Name, i+1, err)
				}
				p.same("shard", p.snapshot(), before)
				p.do("del", key)
				p.do("rename", key+":aside", key)
			}
		}
		for _, text := range []string{"foreign", ""} { // it pauses all the same
			p.do("hset", p.ledger, "pause:kart", text, "paused", text)
			p.makeDue()
			p.same(fmt.Sprintf("claim of %q", text), p.claim("t1")[0], 5)
			p.same("resume", p.resume(p.name)[0], 1)
			p.same("nothing is left", p.pauseField("pause:kart")+p.pauseField("paused"), "")
		}
		p.lawful()
	})
}
