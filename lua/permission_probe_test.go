package lua_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/scripttest"
)

func probeKeys(p *part) []string { return []string{p.q, p.ready, p.m, p.ledger, p.dead, p.seen} }

func TestPermissionProbeRunsAndLeavesNothing(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(3)...)
		before := p.snapshot()
		keys := probeKeys(partIn(t, p.c, strings.TrimSuffix(p.ready, "ready"), "!permission-probe"))
		reply := p.must(lua.PermissionProbe, keys, "!permission-probe")
		if len(reply) != 2 || reply[1] != int64(0) {
			t.Errorf("got %v, want {now, 0}", reply)
		}
		p.same("the shard", p.snapshot(), before)
	})
}

func TestPermissionProbeTriesEveryCommandOfTheScripts(t *testing.T) {
	t.Parallel()
	scripttest.ProbeTries(t, lua.PermissionProbe, lua.All(), 50)
}

func TestPermissionProbeNamesAForeignValue(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		for i, key := range probeKeys(p) {
			if i == 0 || i == 2 || i == 5 {
				continue // the probe's own
			}
			p := newPart(t, p.c)
			key = probeKeys(p)[i]
			p.do("set", key, "foreign")
			reply := p.must(lua.PermissionProbe, probeKeys(p), "!permission-probe")
			if n, _ := reply[1].(int64); n < 1 || !strings.Contains(fmt.Sprint(reply[3]), "WRONGTYPE") {
				t.Errorf("KEYS[%d]: got %v", i+1, reply)
			}
		}
	})
}
