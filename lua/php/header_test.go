package php_test

import (
	"fmt"
	"strings"
	"testing"

	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

func TestEveryScriptDoesWhatItsHeaderDeclares(t *testing.T) {
	t.Parallel()
	scripttest.EveryScript(t, len(luaphp.All()), scripttest.Includes(t, "..", "."))
}

func TestNoScriptHasWhatTheEmbeddedStoreMiscompiles(t *testing.T) {
	t.Parallel()
	scripttest.NothingMiscompiled(t, luaphp.All())
}

func TestPermissionProbeRunsAndLeavesNothing(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.push(0, `{"n":1}`, `{"n":2}`)
		q.claim(1)
		before := q.snapshot()
		probe := *q
		probe.base, probe.ours = q.base+":!probe", q.ours+":!probe"
		if reply := probe.must(luaphp.PermissionProbe, probe.probeKeys()); len(reply) != 2 || reply[1] != int64(0) {
			t.Errorf("got %v, want {now, 0}", reply)
		}
		q.same("the queue", q.snapshot(), before)
	})
}

func TestPermissionProbeTriesEveryCommandOfTheScripts(t *testing.T) {
	t.Parallel()
	scripttest.ProbeTries(t, luaphp.PermissionProbe, luaphp.All(), 100)
}

// PHP's keys have another prefix than ours: an ACL may open one and forget the other.
func TestPermissionProbeNamesEachMissingRight(t *testing.T) {
	t.Parallel()
	q := newQueue(t, redistest.Start(t).Client(), laravel)
	keys := []any{"~" + q.base + "*", "~" + q.ours + "*"}
	user := func(keys []any, rights ...any) {
		args := append([]any{"acl", "setuser", "default", "reset", "on", "nopass"}, keys...)
		q.do(append(append(args, rights...), "+acl")...)
	}
	probe := func() []any { return q.must(luaphp.PermissionProbe, q.probeKeys()) }
	user(keys, "+@all", "-@dangerous")
	if reply := probe(); num(reply[1]) != 0 {
		t.Errorf("without @dangerous: got %v", reply[1:])
	}
	for _, right := range []string{"zrangebyscore", "ltrim", "del", "hincrby", "zremrangebyrank", "hmget"} {
		user(keys, "+@all", "-"+right)
		if reply := probe(); num(reply[1]) < 1 || !strings.EqualFold(fmt.Sprint(reply[2]), right) {
			t.Errorf("without %s: got %v", right, reply[1:])
		}
	}
	for i := range keys {
		user(keys[i:i+1], "+@all")
		if _, err := q.try(luaphp.PermissionProbe, q.probeKeys()); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("with no key but those of %v: got %v", keys[i], err)
		}
	}
}
