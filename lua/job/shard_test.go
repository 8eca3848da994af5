package job_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

// on runs one directed test on a real server and on miniredis, in parallel, each time
// on a shard of its own. With -short only the walks of jobmodel, which compare all that the
// scripts keep, run on miniredis.
func on(t *testing.T, f func(t *testing.T, s *shard)) {
	t.Helper()
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) string{
		"redis":     func(t *testing.T) string { return redistest.Shared(t) },
		"miniredis": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
	} {
		if name == "miniredis" && testing.Short() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A call that is sent again would run twice.
			c := redis.NewClient(&redis.Options{Addr: start(t), DisableIdentity: true, MaxRetries: -1, ReadTimeout: time.Minute})
			t.Cleanup(func() { _ = c.Close() })
			f(t, newShard(t, c))
		})
	}
}

// shard is the keys of one shard, as the scripts see them, and the policy that the calls
// of a test pass.
type shard struct {
	t      testing.TB
	c      *redis.Client
	prefix string

	maxJobs, maxQueues int64
	maxKeys            int64
	keep, bytes        int64 // ms, bytes
	ttr                int64 // ms
	keeps              bool  // dead letters
	tokens             int
	spared             int   // calls that asked for their spare keys
	clock, timed       int64 // µs since 1970; 0: the server's; what the server knows of it
	called             func(script *lua.Script, keys []string, argv []any)
	bug                seeded
}

// seeded is a mistake in a script, made on purpose.
type seeded struct{ script, right, wrong string }

var shards atomic.Int64

func newShard(t testing.TB, c *redis.Client) *shard {
	return &shard{
		t: t, c: c, prefix: fmt.Sprintf("sw:{jobs.%d}:", shards.Add(1)),
		maxJobs: 100_000, maxQueues: 1000, maxKeys: 1000, keep: 600_000, bytes: 4 << 20, ttr: 60_000, keeps: true,
	}
}

var ctx = context.Background()

func (s *shard) key(name string) string { return s.prefix + name }
func (s *shard) ledger() string         { return s.key("ledger") }

// common are the keys that ack, settle, promote, respawn, purge and expire share.
func (s *shard) common(queues ...string) []string {
	keys := []string{s.ledger(), s.key("lease"), s.key("attempts"), s.key("queues"), s.key("delay"), s.key("tombstones")}
	for _, q := range queues {
		keys = append(keys, s.key("r:"+q), s.key("j:"+q), s.key("d:"+q), s.key("u:"+q))
	}
	return keys
}

// setClock tells the server the clock of the test. A full server does not take it.
func (s *shard) setClock() {
	s.t.Helper()
	if s.timed == s.clock {
		return
	}
	if err := s.c.HSet(ctx, "clock:"+s.prefix, "s", s.clock/1e6, "us", s.clock%1e6).Err(); err != nil {
		s.t.Fatal(err)
	}
	s.timed = s.clock
}

func (s *shard) try(script *lua.Script, keys []string, argv ...any) ([]any, error) {
	if s.called != nil {
		s.called(script, keys, argv)
	}
	source := script.Source
	if s.bug.script == script.Name {
		source = strings.Replace(source, s.bug.right, s.bug.wrong, 1)
	}
	if s.clock != 0 {
		// By a key: each text would be compiled anew.
		source = strings.Replace(source, "redis.call('TIME')", "redis.call('HMGET', 'clock:' .. string.match(KEYS[1], '^.-}:'), 's', 'us')", 1)
		s.setClock()
	}
	text := redis.NewScript(source)
	v, err := text.Run(ctx, s.c, keys, argv...).Result()
	if err != nil && strings.HasPrefix(err.Error(), "SPARE ") {
		s.spared++
		v, err = text.Run(ctx, s.c, append(keys[:len(keys):len(keys)], s.spare()...), argv...).Result()
	}
	reply, _ := v.([]any)
	return reply, err
}

func (s *shard) spare() []string {
	return []string{s.key("on_end"), s.key("state"), s.key("r:_out"), s.key("j:_out"), s.key("slots")}
}

func (s *shard) must(script *lua.Script, keys []string, argv ...any) []any {
	s.t.Helper()
	reply, err := s.try(script, keys, argv...)
	if err != nil {
		s.t.Fatalf("%s: %v", script.Name, err)
	}
	return reply
}

func (s *shard) do(args ...any) any {
	s.t.Helper()
	v, err := s.c.Do(ctx, args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return v
}

func (s *shard) same(what string, got, want any) {
	s.t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		s.t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

// now is the store's time in ms.
func (s *shard) now() int64 {
	s.t.Helper()
	if s.clock != 0 {
		return s.clock / 1000
	}
	v, err := s.c.Time(ctx).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return v.UnixMilli()
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func keepsOf(s *shard, n int) []any {
	argv := make([]any, n)
	for i := range argv {
		argv[i] = bit(s.keeps)
	}
	return argv
}

func anys(list []string) []any {
	argv := make([]any, len(list))
	for i, x := range list {
		argv[i] = x
	}
	return argv
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
	panic(fmt.Sprintf("%T is no number", v))
}

func nums(list []any) []int64 {
	out := make([]int64, len(list))
	for i, v := range list {
		out[i] = num(v)
	}
	return out
}

// request is what one long poll wants.
type request struct {
	queues []string
	count  int
	ttr    int64 // ms; 0: that of the shard
}

type claimed struct {
	queue   string
	seq     int64
	attempt int64
	record  string
}

type claims struct {
	expired, lost int64
	left          []int64
	jobs          [][]claimed
}

func (s *shard) claimCall(lane, token string, report bool, requests ...request) (keys []string, argv []any, each []string) {
	var list []string
	for _, r := range requests {
		list = append(list, r.queues...)
	}
	each, number := names(list)
	keys = []string{s.ledger(), s.key("lease"), s.key("attempts"), s.key("queues"), s.key("out:" + lane), s.key("tombstones"), s.key("paused"), s.key("taken")}
	for _, q := range each {
		keys = append(keys, s.key("r:"+q), s.key("j:"+q), s.key("u:"+q))
	}
	argv = append([]any{token, s.keep, s.bytes, len(each)}, anys(each)...)
	for range each {
		argv = append(argv, bit(report))
	}
	for _, r := range requests {
		ttr := r.ttr
		if ttr == 0 {
			ttr = s.ttr
		}
		argv = append(argv, ttr, r.count, len(r.queues))
		for _, q := range r.queues {
			argv = append(argv, number[q])
		}
	}
	return keys, argv, each
}

func parseClaims(reply []any, each []string) claims {
	out := claims{expired: num(reply[1]), lost: num(reply[2]), left: nums(reply[3 : 3+len(each)])}
	for _, list := range reply[3+len(each):] {
		var jobs []claimed
		values := list.([]any)
		for i := 0; i < len(values); i += 4 {
			jobs = append(jobs, claimed{each[num(values[i])-1], num(values[i+1]), num(values[i+2]), values[i+3].(string)})
		}
		out.jobs = append(out.jobs, jobs)
	}
	return out
}

func (s *shard) claimAll(lane, token string, requests ...request) claims {
	s.t.Helper()
	keys, argv, each := s.claimCall(lane, token, true, requests...)
	return parseClaims(s.must(luajob.Claim, keys, argv...), each)
}

// claim is one request of one queue.
func (s *shard) claim(queue string, count int) []claimed {
	s.t.Helper()
	s.tokens++
	return s.claimAll("lane", fmt.Sprintf("token%d", s.tokens), request{queues: []string{queue}, count: count}).jobs[0]
}

// group is one publish: jobs of one queue.
type group struct {
	queue  string
	delay  int64 // ms
	key    string
	keep   int64 // ms
	id     string
	watch  string // lines: what the ends of the jobs set off
	ends   int64  // ms since 1970, 0 never
	tries  int    // 0: 3
	bodies []string

	attributes string // a JSON object, or ""
}

func (g group) record(body string) string {
	id := ""
	if g.id != "" {
		id = "@" + g.id
	}
	tries := g.tries
	if tries == 0 {
		tries = 3
	}
	form := " "
	if g.attributes != "" {
		form = fmt.Sprintf("#%d,%s", len(g.attributes), g.attributes)
	}
	return fmt.Sprintf("%013d %d%s%s%s", g.ends, tries, id, form, body)
}

// names gives each queue of list its number, from 1, in the order of appearance.
func names(list []string) (each []string, number map[string]int) {
	number = map[string]int{}
	for _, q := range list {
		if number[q] == 0 {
			each = append(each, q)
			number[q] = len(each)
		}
	}
	return each, number
}

func (s *shard) channel() string { return s.key("w:") }

func (s *shard) publishCall(groups ...group) (keys []string, argv []any) {
	var list []string
	for _, g := range groups {
		list = append(list, g.queue)
	}
	each, number := names(list)
	keys = []string{s.ledger(), s.key("delay"), s.key("queues"), s.key("lease"), s.key("attempts"), s.key("tombstones")}
	for _, q := range each {
		keys = append(keys, s.key("r:"+q), s.key("j:"+q), s.key("d:"+q), s.key("u:"+q))
	}
	argv = append([]any{s.maxJobs, s.maxQueues, s.maxKeys, s.channel(), "publish", len(each)}, anys(each)...)
	for _, g := range groups {
		key := 0
		if g.key != "" {
			keys = append(keys, s.key("dd:"+g.queue+":"+g.key))
			key = len(keys)
			if g.keep == 0 {
				g.keep = 60_000
			}
		}
		id := g.id
		if g.watch != "" {
			id += "\n" + g.watch
		}
		argv = append(argv, number[g.queue], g.delay, key, g.keep, id, len(g.bodies))
		for _, b := range g.bodies {
			argv = append(argv, g.record(b))
		}
	}
	return keys, argv
}

func (s *shard) tryPublish(groups ...group) ([]any, error) {
	keys, argv := s.publishCall(groups...)
	return s.try(luajob.Publish, keys, argv...)
}

// publish gives {status, first, count} for each group.
func (s *shard) publish(groups ...group) [][3]int64 {
	s.t.Helper()
	keys, argv := s.publishCall(groups...)
	reply := s.must(luajob.Publish, keys, argv...)
	out := make([][3]int64, len(groups))
	if len(reply) != 1+3*len(groups) {
		s.t.Fatalf("publish: %d values for %d groups", len(reply), len(groups))
	}
	for i := range out {
		out[i] = [3]int64(nums(reply[1+3*i : 4+3*i]))
	}
	return out
}

// put publishes jobs of one queue that are ready, and gives their sequences.
func (s *shard) put(queue string, bodies ...string) []int64 {
	s.t.Helper()
	return s.stored(group{queue: queue, bodies: bodies})
}

// stored publishes one group and gives the sequences.
func (s *shard) stored(g group) []int64 {
	s.t.Helper()
	got := s.publish(g)[0]
	if got[0] != 1 || got[2] != int64(len(g.bodies)) {
		s.t.Fatalf("publish: got %v", got)
	}
	seqs := make([]int64, got[2])
	for i := range seqs {
		seqs[i] = got[1] + int64(i)
	}
	return seqs
}

func bodies(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("body %d", i)
	}
	return out
}

// total is a field of the ledger.
func (s *shard) total(field string) int64 {
	n, _ := s.c.HGet(ctx, s.ledger(), field).Int64()
	return n
}

// past moves the score of a job of a zset into the past, as time would.
func (s *shard) past(zset, queue string, seqs ...int64) {
	s.t.Helper()
	pipe, scores, members := s.c.Pipeline(), make([]*redis.FloatCmd, len(seqs)), make([]redis.Z, len(seqs))
	for i, seq := range seqs {
		members[i].Member = fmt.Sprintf("%d %s", seq, queue)
		scores[i] = pipe.ZScore(ctx, s.key(zset), fmt.Sprint(members[i].Member))
	}
	_, _ = pipe.Exec(ctx) // each score has it
	for i, score := range scores {
		if err := score.Err(); err != nil {
			s.t.Fatalf("%s of %s: %v", zset, members[i].Member, err)
		}
		members[i].Score = 1
		if v := score.Val(); v != float64(int64(v)) {
			members[i].Score = 1.5
		}
	}
	for some := range slices.Chunk(members, 5000) {
		if err := s.c.ZAdd(ctx, s.key(zset), some...).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// snapshot is every key of the shard with its value, but for the times to live.
func (s *shard) snapshot() string {
	s.t.Helper()
	return scripttest.Snapshot(s.t, s.c, strings.NewReplacer("{", `\{`, "}", `\}`).Replace(s.prefix)+"*", false)
}

// exact checks the law of the shard and that each job is in exactly one state.
func (s *shard) exact(queues ...string) {
	s.t.Helper()
	type stored struct {
		held, dead, ready *redis.IntCmd
		tombstones        *redis.StringCmd
		indexed           *redis.FloatCmd
	}
	pipe, each := s.c.Pipeline(), make([]stored, len(queues))
	ledger, delay, lease := pipe.HGetAll(ctx, s.ledger()), pipe.ZCard(ctx, s.key("delay")), pipe.ZCard(ctx, s.key("lease"))
	for i, q := range queues {
		each[i] = stored{pipe.HLen(ctx, s.key("j:"+q)), pipe.ZCard(ctx, s.key("d:"+q)), pipe.LLen(ctx, s.key("r:"+q)),
			pipe.HGet(ctx, s.key("tombstones"), q), pipe.ZScore(ctx, s.key("queues"), q)}
	}
	_, _ = pipe.Exec(ctx) // what is not there is an error
	total := func(field string) int64 {
		n, _ := strconv.ParseInt(ledger.Val()[field], 10, 64)
		return n
	}
	live := total("published") - total("acked") - total("expired") - total("deleted") - total("lost")
	delayed, leased := delay.Val(), lease.Val()
	var jobs, dead, ready int64
	for i, q := range queues {
		held := each[i].held.Val()
		jobs += held
		dead += each[i].dead.Val()
		tombstones, _ := each[i].tombstones.Int64()
		ready += each[i].ready.Val() - tombstones
		if indexed := each[i].indexed.Err() == nil; indexed != (held > 0) {
			s.t.Errorf("%s: has %d jobs, in the index: %v", q, held, indexed)
		}
	}
	if jobs != live || ready+delayed+leased+dead != live || dead != total("dead") {
		s.t.Errorf("the ledger has %d jobs, %d dead; there are %d: ready %d, delayed %d, leased %d, dead %d\n%s",
			live, total("dead"), jobs, ready, delayed, leased, dead, s.snapshot())
	}
}

// refs names jobs of one queue: sequences, or "sequence:caller's id".
func (s *shard) ackCall(queue string, refs ...any) (keys []string, argv []any) {
	return s.common(queue), append([]any{1, queue, 1, len(refs)}, refs...)
}

func (s *shard) ack(queue string, refs ...any) []int64 {
	s.t.Helper()
	keys, argv := s.ackCall(queue, refs...)
	return nums(s.must(luajob.Ack, keys, argv...)[1:])
}

type settle struct {
	queue   string
	seq     int64
	attempt int64 // 0: any
	verb    string
	ms      int64
}

func (s *shard) settleCall(jobs ...settle) (keys []string, argv []any) {
	var list []string
	for _, j := range jobs {
		list = append(list, j.queue)
	}
	each, number := names(list)
	argv = append(append([]any{s.channel(), "publish", len(each)}, anys(each)...), keepsOf(s, len(each))...)
	for _, j := range jobs {
		argv = append(argv, number[j.queue], j.seq, j.attempt, j.verb, j.ms)
	}
	return s.common(each...), argv
}

func (s *shard) settle(jobs ...settle) []int64 {
	s.t.Helper()
	keys, argv := s.settleCall(jobs...)
	return nums(s.must(luajob.Settle, keys, argv...)[1:])
}

func (s *shard) revert(lane, token string, queues ...string) int64 {
	s.t.Helper()
	keys := []string{s.key("attempts"), s.key("lease"), s.key("out:" + lane)}
	for _, q := range queues {
		keys = append(keys, s.key("r:"+q))
	}
	return num(s.must(luajob.Revert, keys, append([]any{token, s.channel(), "publish"}, anys(queues)...)...)[1])
}

type due struct {
	queue, kind string
	seqs        []int64
}

func (s *shard) promoteCall(groups ...due) (keys []string, argv []any) {
	var list []string
	for _, g := range groups {
		list = append(list, g.queue)
	}
	each, number := names(list)
	argv = append([]any{s.channel(), "publish", 3_600_000, len(each)}, anys(each)...)
	for range each {
		argv = append(argv, bit(s.keeps))
	}
	for _, g := range groups {
		argv = append(argv, number[g.queue], g.kind, len(g.seqs))
		for _, seq := range g.seqs {
			argv = append(argv, seq)
		}
	}
	return s.common(each...), argv
}

// promote gives {ready, dead, expired, lost}.
func (s *shard) promote(groups ...due) []int64 {
	s.t.Helper()
	keys, argv := s.promoteCall(groups...)
	return nums(s.must(luajob.Promote, keys, argv...)[1:5])
}

func (s *shard) respawnArgs(queue, verb string) []any {
	return []any{queue, verb, 10, 0, s.channel(), "publish", 0, 0, "", "", ""}
}

func (s *shard) respawn(queue, verb string, count int, ttl int64) int64 {
	s.t.Helper()
	return num(s.must(luajob.Respawn, s.common(queue), queue, verb, count, ttl, s.channel(), "publish", 0, 0, "", "", "")[1])
}

// purge gives {looked at, deleted}.
func (s *shard) purge(queue, state string, count int) []int64 {
	s.t.Helper()
	return nums(s.must(luajob.Purge, s.common(queue), queue, state, count)[1:])
}

// expire scans the whole queue and gives how many it dropped.
func (s *shard) expire(queue string) (expired int64) {
	s.t.Helper()
	for cursor := "0"; ; {
		reply := s.must(luajob.Expire, s.common(queue), queue, cursor, 200, 0, s.channel(), "publish")
		expired += num(reply[2])
		if cursor = reply[1].(string); cursor == "0" {
			return expired
		}
	}
}

func (s *shard) peek(queue string) []any {
	s.t.Helper()
	return s.must(luajob.Peek, []string{s.key("r:" + queue), s.key("j:" + queue), s.key("attempts")}, queue)
}

func (s *shard) get(queue string, seq int64) []any {
	s.t.Helper()
	return s.must(luajob.Get, []string{s.key("lease"), s.key("delay"), s.key("attempts"), s.key("j:" + queue), s.key("d:" + queue), s.key("u:" + queue)}, queue, seq, 1)
}

func (s *shard) counts(limit int, queues ...string) []any {
	s.t.Helper()
	keys := []string{s.key("lease"), s.key("delay"), s.key("tombstones")}
	for _, q := range queues {
		keys = append(keys, s.key("r:"+q), s.key("j:"+q), s.key("d:"+q))
	}
	return s.must(luajob.Counts, keys, append([]any{limit}, anys(queues)...)...)[1:]
}

// reschedule returns the status and when the job is due. wait is -1 for no other time; payload none, or one.
func (s *shard) reschedule(queue string, job any, wait int64, payload ...string) []any {
	s.t.Helper()
	keys, argv := s.rescheduleCall(queue, job, wait, payload...)
	return s.must(luajob.Reschedule, keys, argv...)[1:]
}

func (s *shard) rescheduleCall(queue string, job any, wait int64, payload ...string) (keys []string, argv []any) {
	keys = []string{s.key("delay"), s.key("attempts"), s.key("j:" + queue), s.key("lease"), s.key("d:" + queue)}
	argv = []any{queue, job, wait, 0}
	for _, p := range payload {
		argv = append(argv, p)
	}
	return keys, argv
}
