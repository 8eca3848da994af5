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
)

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
