package php_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
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

var callsLine = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`)

// calls counts the Redis commands that a call sends.
func (q *queue) calls(script *lua.Script, keys []string, argv []any) int {
	q.t.Helper()
	q.do("script", "load", script.Source)
	if err := q.c.ConfigResetStat(ctx).Err(); err != nil {
		q.t.Fatal(err)
	}
	if err := q.c.EvalSha(ctx, script.SHA, keys, argv...).Err(); err != nil {
		q.t.Fatalf("%s: %v", script.Name, err)
	}
	total := 0
	for _, m := range callsLine.FindAllStringSubmatch(q.c.Info(ctx, "commandstats").Val(), -1) {
		if m[1] != "evalsha" && m[1] != "config|resetstat" {
			n, _ := strconv.Atoi(m[2])
			total += n
		}
	}
	return total
}

// A call costs a fixed number of commands, and each payload some more; Laravel two more for its notifications.
func TestRedisCallsOfEachVerb(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	for _, of := range flavors {
		for _, n := range []int{1, 16, 500} {
			q := newQueue(t, c, of)
			q.bytes = 4 << 20
			keys, argv := q.publishCall(0, "", q.jobs(n)...)
			q.same("publish", q.calls(luaphp.Publish, keys, argv), 6+2*of.notify)
			keys, argv = q.publishCall(60_000, "", q.jobs(n)...)
			q.same("a delayed publish", q.calls(luaphp.Publish, keys, argv), 5+of.notify+n)
			keys, argv = q.claimCall("l", "t", n)
			q.same("claim", q.calls(luaphp.Claim, keys, argv), 17+2*of.notify+2*n)
			var jobs []any
			for _, seq := range strings.Fields(q.do("get", q.ours+":out:l").(string))[1:] {
				jobs = append(jobs, seq, "ack", 0)
			}
			keys, argv = q.settleCall(jobs...)
			q.same(fmt.Sprint("ack of ", n), q.calls(luaphp.Settle, keys, argv), 10+of.notify+6*n)
			keys, argv = q.claimCall("l", "t", n)
			q.same("a claim of nothing", q.calls(luaphp.Claim, keys, argv), 14+of.notify)
		}
	}
}
