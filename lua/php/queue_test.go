package php_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

var ctx = context.Background()

// flavor is what differs between PHP's libraries.
type flavor struct {
	name      string
	first     int // attempts of a payload that was never delivered
	onRelease int // 1: attempts are counted when a payload goes back
	notify    int // 1: one notification a payload
}

var (
	think3  = flavor{"think3", 0, 0, 0}
	think2  = flavor{"think2", 1, 1, 0}
	laravel = flavor{"laravel", 0, 0, 1}
	flavors = []flavor{think3, think2, laravel}
)

// queue is the keys of one queue, as the scripts see them, and what the calls of a test pass.
type queue struct {
	t          testing.TB
	c          *redis.Client
	base, ours string
	flavor     flavor

	bytes, ttr, steal, maxKeys int
	tokens                     int
	clock                      int64 // ms since 1970; 0: the server's
	called                     func(script *lua.Script, keys []string, argv []any)
}

var queues atomic.Int64

func newQueue(t testing.TB, c *redis.Client, f flavor) *queue {
	base := fmt.Sprintf("app_queues:{q%d}", queues.Add(1))
	return &queue{t: t, c: c, base: base, ours: "sw:php:" + base, flavor: f, bytes: 1 << 20, ttr: 60_000, steal: 1, maxKeys: 100}
}

// on runs one directed test on a real server and on miniredis, for each flavor, in
// parallel, each time on a queue of its own. With -short only the walks of phpmodel, which
// compare all that the scripts keep, run on miniredis.
func on(t *testing.T, f func(t *testing.T, q *queue)) {
	t.Helper()
	onEach(t, flavors, f)
}

func onEach(t *testing.T, flavors []flavor, f func(t *testing.T, q *queue)) {
	t.Helper()
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) string{
		"redis":     func(t *testing.T) string { return redistest.Shared(t) },
		"miniredis": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
	} {
		if name == "miniredis" && testing.Short() {
			continue
		}
		for _, of := range flavors {
			t.Run(name+" "+of.name, func(t *testing.T) {
				t.Parallel()
				c := redis.NewClient(&redis.Options{Addr: start(t), DisableIdentity: true, MaxRetries: -1, ReadTimeout: time.Minute})
				t.Cleanup(func() { _ = c.Close() })
				f(t, newQueue(t, c, of))
			})
		}
	}
}

func (q *queue) keys() []string {
	return []string{q.base, q.base + ":delayed", q.base + ":reserved", q.base + ":notify", q.ours + ":account",
		q.ours + ":leases", q.ours + ":held", q.ours + ":dead", q.ours + ":letters"}
}

func (q *queue) probeKeys() []string { return append(q.keys(), q.ours+":out:l", q.ours+":known:k") }

// pick are some of the keys, by their places.
func (q *queue) pick(places ...int) []string {
	all, some := q.keys(), []string(nil)
	for _, i := range places {
		some = append(some, all[i])
	}
	return some
}

func (q *queue) try(script *lua.Script, keys []string, argv ...any) ([]any, error) {
	if q.called != nil {
		q.called(script, keys, argv)
	}
	source := script.Source
	if q.clock != 0 {
		source = strings.Replace(source, "redis.call('TIME')", fmt.Sprintf("{ '%d', '%d' }", q.clock/1000, q.clock%1000*1000), 1)
	}
	// By its digest: Redis would hash and read the text with each call.
	v, err := redis.NewScript(source).Run(ctx, q.c, keys, argv...).Result()
	reply, _ := v.([]any)
	return reply, err
}

func (q *queue) must(script *lua.Script, keys []string, argv ...any) []any {
	q.t.Helper()
	reply, err := q.try(script, keys, argv...)
	if err != nil {
		q.t.Fatalf("%s: %v", script.Name, err)
	}
	return reply
}

func (q *queue) do(args ...any) any {
	q.t.Helper()
	v, err := q.c.Do(ctx, args...).Result()
	if err != nil && err != redis.Nil {
		q.t.Fatalf("%v: %v", args, err)
	}
	return v
}

func (q *queue) same(what string, got, want any) {
	q.t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		q.t.Errorf("%s: got %.900s, want %.900s", what, g, w)
	}
}

func num(v any) int64 {
	switch x := v.(type) {
	case int64:
		return x
	case string:
		n, err := strconv.ParseInt(x, 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	panic(fmt.Sprintf("%T is not a number", v))
}

func nums(list []any) []int64 {
	out := make([]int64, len(list))
	for i, v := range list {
		out[i] = num(v)
	}
	return out
}

func (q *queue) publishCall(delay int, key string, payloads ...string) (keys []string, argv []any) {
	keep := 0
	if key != "" {
		keep = 60_000
	}
	argv = []any{delay, q.flavor.notify, keep, q.maxKeys}
	for _, p := range payloads {
		argv = append(argv, p)
	}
	return append(q.pick(0, 1, 3, 4), q.ours+":known:"+key), argv
}

// publish gives {status, count}.
func (q *queue) publish(delay int, key string, payloads ...string) []int64 {
	q.t.Helper()
	keys, argv := q.publishCall(delay, key, payloads...)
	return nums(q.must(luaphp.Publish, keys, argv...)[1:])
}

// push publishes payloads that must be stored.
func (q *queue) push(delay int, payloads ...string) {
	q.t.Helper()
	q.same("publish", q.publish(delay, "", payloads...), []int{1, len(payloads)})
}

// phpPush is what a PHP program does.
func (q *queue) phpPush(payloads ...string) {
	q.t.Helper()
	for _, p := range payloads {
		q.do("rpush", q.base, p)
		if q.flavor.notify == 1 {
			q.do("rpush", q.base+":notify", 1)
		}
	}
}

type handed struct {
	seq, before, deadline int64
	payload               string
}

type claims struct {
	moved, lapsed, unreadable, left int64
	jobs                            []handed
}

func (q *queue) claimCall(lane, token string, count int) (keys []string, argv []any) {
	return append(q.keys(), q.ours+":out:"+lane),
		[]any{token, 600_000, q.ttr, count, q.bytes, q.flavor.onRelease, q.flavor.notify, q.steal}
}

func (q *queue) claimAll(count int) claims {
	q.t.Helper()
	q.tokens++
	keys, argv := q.claimCall("l", fmt.Sprint("t", q.tokens), count)
	reply := q.must(luaphp.Claim, keys, argv...)
	n := nums(reply[1:5])
	out := claims{moved: n[0], lapsed: n[1], unreadable: n[2], left: n[3]}
	for i := 5; i < len(reply); i += 4 {
		out.jobs = append(out.jobs, handed{num(reply[i]), num(reply[i+1]), num(reply[i+2]), reply[i+3].(string)})
	}
	return out
}

func (q *queue) claim(count int) []handed {
	q.t.Helper()
	return q.claimAll(count).jobs
}

// settleCall takes sequence, verb, number of each job.
func (q *queue) settleCall(jobs ...any) (keys []string, argv []any) {
	return q.keys(), append([]any{q.flavor.onRelease, q.flavor.notify}, jobs...)
}

func (q *queue) settle(jobs ...any) []int64 {
	q.t.Helper()
	keys, argv := q.settleCall(jobs...)
	return nums(q.must(luaphp.Settle, keys, argv...)[1:])
}

func (q *queue) revertCall(lane, token string) (keys []string, argv []any) {
	return append(q.pick(0, 2, 3, 4, 5, 6), q.ours+":out:"+lane), []any{token, q.flavor.notify}
}

func (q *queue) respawnCall(verb string, skip, count int) (keys []string, argv []any) {
	return q.pick(0, 3, 4, 7, 8), []any{verb, skip, count, q.flavor.first, q.flavor.notify}
}

// respawn gives {count, kept, left}.
func (q *queue) respawn(verb string, skip, count int) []int64 {
	q.t.Helper()
	keys, argv := q.respawnCall(verb, skip, count)
	return nums(q.must(luaphp.Respawn, keys, argv...)[1:])
}

func (q *queue) get(seq int64) []any {
	q.t.Helper()
	return q.must(luaphp.Get, q.pick(2, 5, 6, 7, 8), seq)[1:]
}

func (q *queue) deadPage(skip, count, bytes int) []any {
	q.t.Helper()
	return q.must(luaphp.DeadPage, q.pick(7, 8), skip, count, bytes)[1:]
}

func (q *queue) ready() []string { return q.c.LRange(ctx, q.base, 0, -1).Val() }

// set is the members of delayed or reserved by their scores.
func (q *queue) set(name string) map[string]float64 {
	out := map[string]float64{}
	for _, z := range q.c.ZRangeWithScores(ctx, q.base+":"+name, 0, -1).Val() {
		out[z.Member.(string)] = z.Score
	}
	return out
}

func (q *queue) total(field string) int64 {
	n, _ := q.c.HGet(ctx, q.ours+":account", field).Int64()
	return n
}

// past ends leases, as time would.
func (q *queue) past(jobs ...handed) {
	q.t.Helper()
	for _, job := range jobs {
		for member, score := range q.set("reserved") {
			if int64(score*1000+0.5) == job.deadline {
				q.do("zadd", q.base+":reserved", "1.001", member)
			}
		}
		q.do("zadd", q.ours+":leases", 1001, job.seq)
	}
}

// exact checks the laws of the account, and that each payload has one notification.
func (q *queue) exact() {
	q.t.Helper()
	pipe := q.c.Pipeline()
	leased, held := pipe.ZCard(ctx, q.ours+":leases"), pipe.HLen(ctx, q.ours+":held")
	dead, letters := pipe.ZCard(ctx, q.ours+":dead"), pipe.HLen(ctx, q.ours+":letters")
	account, notify, ready := pipe.HGetAll(ctx, q.ours+":account"), pipe.LLen(ctx, q.base+":notify"), pipe.LLen(ctx, q.base)
	_, _ = pipe.Exec(ctx) // a foreign key has no length
	total := func(name string) int64 {
		n, _ := strconv.ParseInt(account.Val()[name], 10, 64)
		return n
	}
	ended := leased.Val()
	for _, name := range []string{"acked", "nacked", "requeued", "buried", "unfit", "lapsed"} {
		ended += total(name)
	}
	if total("claimed") != ended || leased.Val() != held.Val() || dead.Val() != letters.Val() ||
		total("died") != dead.Val()+total("respawned")+total("deleted") {
		q.t.Errorf("the account is not exact:\n%s", q.snapshot())
	}
	if q.flavor.notify == 1 {
		q.same("notifications", notify.Val(), ready.Val())
	}
}

// snapshot is every key of the queue with its value, but for the times to live.
func (q *queue) snapshot() string {
	q.t.Helper()
	return scripttest.Snapshot(q.t, q.c, "*"+strings.NewReplacer("{", `\{`, "}", `\}`).Replace(q.base)+"*", false)
}
