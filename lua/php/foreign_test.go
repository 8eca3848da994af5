package php_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/lua/redistest"
)

// recorded is a call of a script.
type recorded struct {
	script *lua.Script
	keys   []string
	argv   []any
}

// scene fills a queue with payloads in every state, and gives a call of each verb that
// finds something to do.
func scene(q *queue) []recorded {
	q.push(0, append(q.jobs(12), q.job(1))...)
	dead := q.claim(2)
	q.settle(dead[0].seq, "bury", 0, dead[1].seq, "unfit", 0)
	q.past(q.claim(2)...)
	held := q.c.ZRange(ctx, q.ours+":leases", 0, -1).Val()
	if len(held) != 2 {
		q.t.Fatalf("%v are leased", held)
	}
	q.steal = 0
	q.do("rpush", q.base, "no json")
	if q.flavor.notify == 1 {
		q.do("rpush", q.base+":notify", 1)
	}
	jobs := make([]handed, 0, 9)
	keys, argv := q.claimCall("lost", "t", 6)
	reply := q.must(luaphp.Claim, keys, argv...)
	for i := 5; i < len(reply); i += 4 {
		jobs = append(jobs, handed{seq: num(reply[i])})
	}
	q.push(60_000, q.job(20), q.job(21))
	q.do("zadd", q.base+":delayed", 1, q.job(22))
	q.do("zadd", q.base+":reserved", 1, q.job(23))
	q.steal = 1
	var calls []recorded
	add := func(script *lua.Script, keys []string, argv []any) {
		calls = append(calls, recorded{script, slices.Clone(keys), slices.Clone(argv)})
	}
	for _, delay := range []int{0, 60_000} {
		keys, argv = q.publishCall(delay, fmt.Sprint("k", delay), q.job(30), q.job(20))
		add(luaphp.Publish, keys, argv)
	}
	keys, argv = q.claimCall("l", "t9", 9)
	add(luaphp.Claim, keys, argv)
	keys, argv = q.settleCall(jobs[0].seq, "touch", 9000, jobs[1].seq, "nack", 0, jobs[2].seq, "nack", 5000, jobs[3].seq, "bury", 0,
		jobs[4].seq, "requeue", 0)
	add(luaphp.Settle, keys, argv)
	keys, argv = q.revertCall("lost", "t")
	add(luaphp.Revert, keys, argv)
	for _, verb := range []string{"respawn", "delete"} {
		keys, argv = q.respawnCall(verb, 0, 1)
		add(luaphp.Respawn, keys, argv)
	}
	add(luaphp.Look, q.pick(0, 1, 2, 5, 7), nil)
	add(luaphp.Peek, q.pick(0), nil)
	add(luaphp.Get, q.pick(2, 5, 6, 7, 8), []any{jobs[5].seq})
	add(luaphp.DeadPage, q.pick(7, 8), []any{0, 9, 1 << 20})
	for _, state := range []string{"ready", "all"} {
		add(luaphp.Purge, q.keys(), []any{state, 1000, q.flavor.notify})
	}
	return calls
}

// A key of another type is met before the first write, whatever key it is.
func TestAForeignTypeRejectsTheCallBeforeItWrites(t *testing.T) {
	onEach(t, []flavor{laravel}, func(t *testing.T, q *queue) {
		for i := range scene(q) {
			whole := *q
			for k := range q.probeKeys() {
				q := newQueue(t, whole.c, whole.flavor)
				call := scene(q)[i]
				if k >= len(call.keys) {
					break
				}
				key := call.keys[k]
				q.do("del", key)
				q.do("setrange", key, 0, "foreign")
				if strings.Contains(key, ":out:") || strings.Contains(key, ":known:") {
					q.do("del", key)
					q.do("rpush", key, "foreign")
				}
				before := q.snapshot()
				_, err := q.try(call.script, call.keys, call.argv...)
				what := fmt.Sprintf("%s with another type under %s", call.script.Name, key)
				switch {
				case err != nil && strings.Contains(err.Error(), "WRONGTYPE"):
					q.same(what, q.snapshot(), before)
				case err != nil:
					t.Errorf("%s: %v", what, err)
				case strings.HasSuffix(key, ":notify") && q.flavor.notify == 0, strings.Contains(key, ":out:"): // not read; ours to write
				case call.script == luaphp.Get: // found before it comes there
				default:
					t.Errorf("%s: runs", what)
				}
			}
		}
	})
}

func TestAForeignValueInTheAccountRejectsTheCallBeforeItWrites(t *testing.T) {
	onEach(t, []flavor{laravel}, func(t *testing.T, q *queue) {
		for _, call := range scene(q) {
			if !slices.Contains(call.keys, q.ours+":account") {
				continue
			}
			for _, field := range []string{"seq", "claimed", "purged"} {
				was := q.do("hget", q.ours+":account", field)
				q.do("hset", q.ours+":account", field, "1.5")
				before := q.snapshot()
				if _, err := q.try(call.script, call.keys, call.argv...); err == nil || !strings.Contains(err.Error(), "foreign value") {
					t.Errorf("%s, %s: got %v", call.script.Name, field, err)
				}
				q.same(call.script.Name, q.snapshot(), before)
				q.do("hdel", q.ours+":account", field)
				if was != nil {
					q.do("hset", q.ours+":account", field, was)
				}
			}
		}
		q.exact()
	})
}

// Whatever an argument is, the call is rejected as a whole with a word for it, or it runs
// and the account is exact: no script ends half done.
func TestWrongArgumentsNeverLeaveACallHalfDone(t *testing.T) {
	onEach(t, []flavor{laravel}, func(t *testing.T, q *queue) {
		for _, call := range scene(q) {
			try := func(what string, keys []string, argv []any) {
				t.Helper()
				before := q.snapshot()
				_, err := q.try(call.script, keys, argv...)
				if err == nil {
					return
				}
				if !strings.Contains(err.Error(), "bad arguments") {
					t.Errorf("%s, %s: %v", call.script.Name, what, err)
				}
				q.same(call.script.Name+" changed the queue: "+what, q.snapshot(), before)
			}
			for i := range call.argv {
				try(fmt.Sprint("only ", i, " arguments"), call.keys, call.argv[:i])
				for _, value := range []string{"", "1.5", "-1", "9007199254740992"} {
					argv := slices.Clone(call.argv)
					argv[i] = value
					try(fmt.Sprintf("argument %d is %q", i+1, value), call.keys, argv)
				}
			}
			try("a key too few", call.keys[:len(call.keys)-1], call.argv)
			q.exact()
		}
	})
}

// A full store rejects a publish and runs all others, which end jobs or are needed to.
func TestAFullStoreRejectsPublishOnly(t *testing.T) {
	t.Parallel()
	for _, of := range flavors {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			q := newQueue(t, s.Client(), of)
			for i, call := range scene(q) {
				q := newQueue(t, q.c, of)
				call = scene(q)[i]
				before := q.snapshot()
				redistest.Full.Begin(t, s)
				_, err := q.try(call.script, call.keys, call.argv...)
				if call.script == luaphp.Publish {
					if err == nil || !strings.HasPrefix(err.Error(), "OOM") {
						t.Errorf("publish: got %v", err)
					}
					q.same("the queue", q.snapshot(), before)
				} else if err != nil {
					t.Errorf("%s: %v", call.script.Name, err)
				}
				q.exact()
				redistest.Full.End(t, s)
			}
			for _, what := range []string{"only a touch", "only what is ready", "only what is due", "only what lapsed", "nothing"} {
				q := newQueue(t, q.c, of)
				jobs := []handed(nil)
				if what == "only a touch" || what == "only what lapsed" {
					q.push(0, q.jobs(1)...)
					jobs = q.claim(1)
				}
				switch what {
				case "only what is ready":
					q.push(0, q.jobs(1)...)
				case "only what is due":
					q.do("zadd", q.base+":delayed", 1, q.job(1))
				case "only what lapsed":
					q.past(jobs...)
				}
				redistest.Full.Begin(t, s)
				if what == "only a touch" {
					q.same(what, q.settle(jobs[0].seq, "touch", 9000), []int{6})
				} else {
					q.same(what, len(q.claim(1)) == 1, what != "nothing")
				}
				redistest.Full.End(t, s)
				q.exact()
			}
		})
	}
}

// A server that rejects writes rejects every script whole, and runs it once it accepts writes again.
func TestScriptsAreRejectedWholeByAServerThatRejectsWrites(t *testing.T) {
	t.Parallel()
	for _, fault := range redistest.Rejections {
		t.Run(fault.Word, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			q := newQueue(t, s.Client(), laravel)
			calls := scene(q)
			for _, call := range calls {
				before := q.snapshot()
				fault.Begin(t, s)
				_, err := q.try(call.script, call.keys, call.argv...)
				reads := slices.Contains([]*lua.Script{luaphp.Look, luaphp.Peek, luaphp.Get, luaphp.DeadPage}, call.script)
				if reads != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), fault.Word+" ") {
					t.Errorf("%s: got %v", call.script.Name, err)
				}
				q.same(call.script.Name+" changed the queue", q.snapshot(), before)
				fault.End(t, s)
			}
			for _, call := range calls {
				if err := q.c.Eval(context.Background(), call.script.Source, call.keys, call.argv...).Err(); err != nil {
					t.Errorf("%s: %v", call.script.Name, err)
				}
				q.exact()
			}
		})
	}
}
