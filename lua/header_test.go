package lua_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/scripttest"
)

func TestEveryScriptDoesWhatItsHeaderDeclares(t *testing.T) {
	t.Parallel()
	scripttest.EveryScript(t, len(lua.All()), scripttest.Includes(t, "."))
}

func TestHeaderCheckSeesDrift(t *testing.T) {
	t.Parallel()
	includes := scripttest.Includes(t, ".")
	source, err := os.ReadFile("claim.lua")
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string][2]string{
		"another name":          {"-- claim:", "-- lease:"},
		"an argument too many":  {"-- ARGV[6] int ", "-- ARGV[6] int       x\n-- ARGV[7] int "},
		"an argument too few":   {"whole(ARGV[6], 1)", "whole(ARGV[7], 1)"},
		"a key not declared":    {"KEYS[1], KEYS[2]", "KEYS[1], KEYS[3]"},
		"repeats, unread":       {"#KEYS", "count"},
		"a reply not declared":  {"return result", "return { 7 }"},
		"an include not used":   {"USES whole, int, time", "USES whole, int, time, keep_lease"},
		"an include not listed": {"USES whole, int, time", "USES whole, time"},
		"a key made up":         {"redis.call('LLEN', q)", "redis.call('LLEN', 'sw:q')"},
	} {
		changed := strings.Replace(string(source), edit[0], edit[1], 1)
		if changed == string(source) {
			t.Errorf("%s: the edit changes nothing", name)
		}
		if len(scripttest.Check(changed, "claim.lua", includes)) == 0 {
			t.Errorf("%s: not seen", name)
		}
	}
}

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
