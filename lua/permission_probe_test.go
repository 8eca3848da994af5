package lua_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
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

// A missing right to a command that the probe does not try would be found too late.
func TestPermissionProbeTriesEveryCommandOfTheScripts(t *testing.T) {
	t.Parallel()
	tried := regexp.MustCompile(`try\('([A-Z]+)'`).FindAllStringSubmatch(lua.PermissionProbe.Source, -1)
	var names []string
	for _, m := range tried {
		names = append(names, m[1])
	}
	for _, s := range lua.All() {
		for _, m := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllStringSubmatch(s.Source, -1) {
			if m[1] != "TIME" && !slices.Contains(names, m[1]) { // every script runs TIME first
				t.Errorf("%s calls %s, which permission_probe does not try", s.Name, m[1])
			}
		}
	}
	if len(names) < 25 {
		t.Errorf("only %d commands found: this proves nothing", len(names))
	}
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
