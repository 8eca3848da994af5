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
	costs(t, c, lua.Pause, []string{p.ledger}, p.pauseArgs(p.name, 1), 4)
	costs(t, c, lua.Resume, p.resumeKeys(p.name), []any{p.name}, 5)
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
