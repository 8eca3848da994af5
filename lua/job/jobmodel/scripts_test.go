package jobmodel_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/job/jobmodel"
	"github.com/spillway-io/spillway/lua/scripttest"
)

// scripts are the Lua scripts on one shard of a server, with a clock that the test
// moves, and with wakes in a list instead of on channels.
type scripts struct {
	client  *redis.Client
	prefix  string
	source  map[string]*redis.Script
	now     int64            // µs
	moved   bool             // the clock, since the last call
	sent    []string         // wakes since the last look at them
	uniques map[string]int64 // keys in Redis by when they end, ms
	stored  []string         // names of keyed publishes
	lanes   map[string]bool  // that claimed
	limits  map[string]int
	keeping map[string]jobmodel.Keep
	spare   bool // leases are counted, so calls bring more keys
}

func (s *scripts) key(name string) string { return s.prefix + name }

// testTexts are the scripts with another clock and another wake. change may be nil.
func testTexts(t testing.TB, change func(name, text string) string) map[string]*redis.Script {
	t.Helper()
	clock := scripttest.Includes(t, "../..")["time"]
	const send = "redis.pcall(command, channel .. queue, int(pushed))"
	texts := map[string]*redis.Script{}
	for _, script := range luajob.All() {
		text := strings.ReplaceAll(script.Source, clock, `
local function time()
  local us = tonumber(redis.call('GET', 'clock'))
  return math.floor(us / 1000), us
end
`)
		text = strings.ReplaceAll(text, "'PX', g.window", "'PX', 3600000 + g.window") // SetNow ends it
		text = strings.ReplaceAll(text, "copied >= 1048576", fmt.Sprint("copied >= ", jobmodel.CopiedBytes))
		text = strings.ReplaceAll(text, send, "redis.call('RPUSH', 'wakes', command .. ' ' .. queue .. ' ' .. int(pushed))")
		other := strings.Contains(text, "'TIME'") || strings.Contains(text, "redis.pcall(command, channel ..")
		if other && script != luajob.PermissionProbe {
			t.Fatalf("%s: clock or wake have another text now", script.Name)
		}
		if change != nil {
			text = change(script.Name, text)
		}
		texts[script.Name] = redis.NewScript(text)
	}
	return texts
}

func (s *scripts) call(script *lua.Script, keys []string, argv ...any) []any {
	v, err := s.run(s.source[script.Name], keys, argv)
	if err != nil && strings.HasPrefix(err.Error(), "SPARE ") {
		s.spare = true
		v, err = s.run(s.source[script.Name], append(keys, s.spareKeys()...), argv)
	}
	if err != nil {
		panic(jobmodel.Broken("%s: %v", script.Name, err))
	}
	return v.([]any)
}

// run sets the clock, runs a script and takes its wakes, in one exchange: walks spend most of their time here.
func (s *scripts) run(script *redis.Script, keys []string, argv []any) (any, error) {
	ctx, pipe := context.Background(), s.client.Pipeline()
	if s.moved {
		pipe.Set(ctx, "clock", s.now, 0)
	}
	reply := script.EvalSha(ctx, pipe, keys, argv...)
	wakes := pipe.LRange(ctx, "wakes", 0, -1)
	pipe.Del(ctx, "wakes")
	if _, err := pipe.Exec(ctx); err != nil && reply.Err() == nil && reply.Val() == nil {
		return nil, err // nothing was sent
	}
	if redis.HasErrorPrefix(reply.Err(), "NOSCRIPT") {
		if err := script.Load(ctx, s.client).Err(); err != nil {
			return nil, err
		}
		return s.run(script, keys, argv)
	}
	s.moved, s.sent = false, append(s.sent, wakes.Val()...)
	return reply.Result()
}

func (s *scripts) spareKeys() []string {
	if !s.spare {
		return nil
	}
	return s.keys(nil, "on_end state r:_out j:_out slots", "")
}

func (s *scripts) SetNow(us int64) {
	s.now, s.moved = us, true
	for key, until := range s.uniques { // which Redis would do by a clock of its own
		if until <= us/1000 {
			s.client.Del(context.Background(), key)
			delete(s.uniques, key)
		}
	}
}

func (s *scripts) Vanish(ref jobmodel.Ref) {
	s.client.HDel(context.Background(), s.key("j:"+ref.Queue), fmt.Sprint(ref.Seq))
}

func (s *scripts) Unlist(ref jobmodel.Ref) {
	ctx, member := context.Background(), fmt.Sprintf("%d %s", ref.Seq, ref.Queue)
	s.client.LRem(ctx, s.key("r:"+ref.Queue), 0, ref.Seq)
	s.client.ZRem(ctx, s.key("delay"), member)
	s.client.ZRem(ctx, s.key("lease"), member)
}

// numbered gives each queue a number, from 1, in the order of appearance.
type numbered struct {
	names  []string
	number map[string]int
}

func (n *numbered) add(queue string) int {
	if n.number == nil {
		n.number = map[string]int{}
	}
	if n.number[queue] == 0 {
		n.names = append(n.names, queue)
		n.number[queue] = len(n.names)
	}
	return n.number[queue]
}

// argv are the names, and for each 1 or 0 where flag is given.
func (n *numbered) argv(flag func(queue string) bool) []any {
	argv := []any{len(n.names)}
	for _, name := range n.names {
		argv = append(argv, name)
	}
	if flag == nil {
		return argv
	}
	for _, name := range n.names {
		one := 0
		if flag(name) {
			one = 1
		}
		argv = append(argv, one)
	}
	return argv
}

func (s *scripts) keys(names []string, shard string, kinds string) []string {
	var keys []string
	for _, name := range strings.Fields(shard) {
		keys = append(keys, s.key(name))
	}
	for _, name := range names {
		for _, kind := range kinds {
			keys = append(keys, s.key(string(kind)+":"+name))
		}
	}
	return keys
}

const shardKeys = "ledger lease attempts queues delay tombstones"

func number(v any) int64 {
	switch x := v.(type) {
	case int64:
		return x
	case string:
		n, err := strconv.ParseInt(x, 10, 64)
		if err != nil {
			panic(jobmodel.Broken("%v", err))
		}
		return n
	}
	panic(jobmodel.Broken("%T is no number", v))
}

func (s *scripts) Peek(queue string) *jobmodel.Claimed {
	v := s.call(luajob.Peek, []string{s.key("r:" + queue), s.key("j:" + queue), s.key("attempts")}, queue)
	if number(v[1]) == 0 {
		return nil
	}
	c := claimed(queue, number(v[2]), number(v[3]), v[4].(string))
	return &c
}

func (s *scripts) Dead(queue string, limit int) []jobmodel.Claimed {
	v := s.call(luajob.DeadPage, s.keys([]string{queue}, "", "jdu"), 0, limit, 1<<20)
	list := []jobmodel.Claimed{}
	for job := range slices.Chunk(v[2:], 5) {
		c := claimed(queue, number(job[0]), 0, job[3].(string))
		c.Errors = job[4].(string)
		c.Reason = jobmodel.Reason(number(job[2]))
		list = append(list, c)
	}
	return list
}

func (s *scripts) Get(ref jobmodel.Ref) (*jobmodel.Claimed, jobmodel.State) {
	v := s.call(luajob.Get, []string{s.key("lease"), s.key("delay"), s.key("attempts"), s.key("j:" + ref.Queue), s.key("d:" + ref.Queue), s.key("u:" + ref.Queue)}, ref.Queue, ref.Seq, 1)
	if number(v[1]) == 0 {
		return nil, jobmodel.Gone
	}
	state := map[any]jobmodel.State{"ready": jobmodel.Ready, "delayed": jobmodel.Delayed, "leased": jobmodel.Leased, "dead": jobmodel.Dead}[v[2]]
	c := claimed(ref.Queue, ref.Seq, number(v[5]), v[6].(string))
	c.Reason, c.Errors = jobmodel.Reason(number(v[4])), v[7].(string)
	c.Progress = v[8].(string)
	return &c, state
}

func (s *scripts) GetKept(ref jobmodel.Ref) (k jobmodel.Kept) {
	v := s.call(luajob.Get, s.keys([]string{ref.Queue}, "lease delay attempts", "kak"), ref.Queue, ref.Seq, 1)
	if number(v[1]) != 0 {
		k = jobmodel.Kept{Until: number(v[3]), Record: v[6].(string), Said: v[7].(string)}
	}
	return k
}

func (s *scripts) DropKept(queue string, all bool) int {
	also := 0
	if all {
		also = 1
	}
	return int(number(s.call(luajob.DropKept, s.keys([]string{queue}, "ledger kept", "ak"), queue, also)[1]))
}

func (s *scripts) Counts(queue string) jobmodel.Counts {
	keys := append([]string{s.key("lease"), s.key("delay"), s.key("tombstones")}, s.keys([]string{queue}, "", "rjd")...)
	v := s.call(luajob.Counts, keys, 1000, queue)
	c := jobmodel.Counts{Ready: int(number(v[1])), Delayed: int(number(v[2])), Leased: int(number(v[3])), Dead: int(number(v[4]))}
	if v[5] != "" {
		c.Oldest = number(v[5])
	}
	return c
}

func (s *scripts) Pause(queue, by string) {
	s.call(luajob.Pause, []string{s.key("paused"), s.key("r:" + queue)}, queue, "pause", by, 10, "w:", "publish")
}

func (s *scripts) Resume(queue string) {
	s.call(luajob.Pause, []string{s.key("paused"), s.key("r:" + queue)}, queue, "resume", "", 10, "w:", "publish")
}

func (s *scripts) List(queue string, state jobmodel.State, limit int, at, last string) jobmodel.Page {
	name := map[jobmodel.State]string{jobmodel.Ready: "ready", jobmodel.Delayed: "delayed", jobmodel.Leased: "leased", jobmodel.Dead: "dead"}[state]
	kinds := "rjdu"
	if state == jobmodel.AckedState {
		name, kinds = "dead", "rkak"
	}
	v := s.call(luajob.List, s.keys([]string{queue}, "lease delay attempts taken", kinds), queue, name, limit, 0, 3600_000, at, last)
	p := jobmodel.Page{At: v[1].(string), Last: v[2].(string)}
	for job := range slices.Chunk(v[3:], 8) {
		p.Seqs = append(p.Seqs, number(job[0]))
	}
	return p
}

func (s *scripts) Account() []int64 {
	var account []int64
	for _, v := range s.call(luajob.Ledger, []string{s.key("ledger"), s.key("lease"), s.key("delay")})[1:] {
		account = append(account, number(v))
	}
	return account
}

// wakes are those that were sent since the last call.
func (s *scripts) wakes() []string {
	sent := s.sent
	s.sent = nil
	return sent
}

// picture is the shard in the form of jobmodel.Shard.Picture.
func (s *scripts) picture() (lines []string) {
	ctx := context.Background()
	pipe := s.client.Pipeline()
	var makers []func() // of lines, once the answers are there
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	hash := func(key string, line func(field, value string)) {
		cmd := pipe.HGetAll(ctx, s.key(key))
		makers = append(makers, func() {
			for field, value := range cmd.Val() {
				line(field, value)
			}
		})
	}
	zset := func(key, prefix string) {
		cmd := pipe.ZRangeWithScores(ctx, s.key(key), 0, -1)
		makers = append(makers, func() {
			for _, z := range cmd.Val() {
				add("%s %s %s", prefix, z.Member, jobmodel.Score(z.Score))
			}
		})
	}
	ledger := pipe.HGetAll(ctx, s.key("ledger"))
	makers = append(makers, func() {
		for _, total := range jobmodel.Totals {
			add("ledger %s %s", total, cmp.Or(ledger.Val()[total], "0"))
		}
	})
	zset("delay", "delay")
	zset("lease", "lease")
	hash("slots", func(field, value string) { add("slots %s %s", field, value) })
	zset("queues", "queues")
	zset("kept", "kept")
	hash("attempts", func(member, n string) { add("attempts %s %s", member, n) })
	hash("paused", func(queue, text string) { add("paused %s %s", queue, text) })
	hash("taken", func(queue, n string) { add("taken %s %s", queue, n) })
	hash("tombstones", func(queue, n string) {
		if n != "0" {
			add("tombstones %s %s", queue, n)
		}
	})
	for _, queue := range jobmodel.Queues {
		hash("j:"+queue, func(seq, record string) { add("job %s %s %s", queue, seq, record) })
		hash("u:"+queue, func(id, seq string) { add("id %s %s %s", queue, id, seq) })
		zset("d:"+queue, "dead "+queue)
		zset("a:"+queue, "until "+queue)
		hash("k:"+queue, func(seq, text string) { add("acked %s %s %s", queue, seq, text) })
		ready := pipe.LRange(ctx, s.key("r:"+queue), 0, -1)
		makers = append(makers, func() {
			if len(ready.Val()) > 0 {
				add("ready %s %v", queue, ready.Val())
			}
		})
	}
	for _, name := range s.stored {
		queue, key, _ := strings.Cut(name, "/")
		cmd := pipe.Get(ctx, s.key("dd:"+queue+":"+key))
		makers = append(makers, func() {
			if cmd.Err() == nil {
				add("stored %s %s", name, cmd.Val())
			}
		})
	}
	for key := range s.uniques {
		cmd, name := pipe.Get(ctx, key), strings.TrimPrefix(key, s.key("du:"))
		makers = append(makers, func() { add("unique %s %s", strings.Replace(name, ":", "/", 1), cmd.Val()) })
	}
	for lane := range s.lanes {
		cmd := pipe.Get(ctx, s.key("out:"+lane))
		makers = append(makers, func() {
			if token, _, handed := strings.Cut(cmd.Val(), "\n"); handed {
				add("handed %s %s", lane, token)
			}
		})
	}
	_, _ = pipe.Exec(ctx) // the error may be that of a GET of no key
	for _, m := range makers {
		m()
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func (s *scripts) Publish(quota jobmodel.Quota, groups []jobmodel.Publish) []jobmodel.Stored {
	var queues numbered
	for _, g := range groups {
		queues.add(g.Queue)
	}
	keys := s.keys(queues.names, "ledger delay queues lease attempts tombstones", "rjdu")
	argv := append([]any{quota.Jobs, quota.Queues, quota.Keys, "w:", "publish"}, queues.argv(nil)...)
	for _, g := range groups {
		key, keep := 0, 0
		if g.Key != "" {
			keys = append(keys, s.key("dd:"+g.Queue+":"+g.Key))
			key, keep = len(keys), jobmodel.KeyKept
			s.stored = append(s.stored, g.Queue+"/"+g.Key)
		}
		id := g.CallerID
		if g.Unique != "" {
			keys = append(keys, s.key("du:"+g.Queue+":"+g.Unique))
			id += fmt.Sprintf("\nu%d %d\n", len(keys), g.Window)
		}
		argv = append(argv, queues.add(g.Queue), g.Delay, key, keep, id, len(g.Payloads))
		for _, payload := range g.Payloads {
			j := jobmodel.Job{Ends: g.Ends, Tries: g.Tries, CallerID: g.CallerID, Attributes: g.Attributes, Payload: payload}
			argv = append(argv, j.Record())
		}
	}
	var replies []jobmodel.Stored
	for reply := range slices.Chunk(s.call(luajob.Publish, keys, argv...)[1:], 3) {
		g, r := groups[len(replies)], jobmodel.Stored{Status: int(number(reply[0])), First: number(reply[1]), Count: int(number(reply[2]))}
		if replies = append(replies, r); g.Unique != "" && r.Status == jobmodel.StoredNow {
			s.uniques[s.key("du:"+g.Queue+":"+g.Unique)] = s.now/1000 + g.Window
		}
	}
	return replies
}

func (s *scripts) Claim(lane, token string, maxBytes int, claims []jobmodel.Claim, reportLeft map[string]bool) jobmodel.ClaimReply {
	var queues numbered
	var requests []any
	for _, c := range claims {
		requests = append(requests, c.TTR, c.Count, len(c.Queues))
		for _, q := range c.Queues {
			requests = append(requests, queues.add(q))
		}
	}
	argv := append([]any{token, 3600_000, maxBytes}, queues.argv(func(q string) bool { return reportLeft[q] })...)
	for i, name := range queues.names {
		if most, limited := s.limits[name]; limited {
			s.spare = true
			flag := &argv[4+len(queues.names)+i]
			*flag = fmt.Sprint(*flag, " 0 0 ", most, " publish w:")
		}
	}
	keys := append(s.keys(queues.names, "ledger lease attempts queues out:"+lane+" tombstones paused taken", "rju"), s.spareKeys()...)
	s.lanes[lane] = true
	v := s.call(luajob.Claim, keys, append(argv, requests...)...)
	r := jobmodel.ClaimReply{Now: number(v[0]), Expired: number(v[1]), Lost: number(v[2]), Left: map[string]int{}}
	for i, name := range queues.names {
		r.Left[name] = int(number(v[3+i]))
	}
	for _, request := range v[3+len(queues.names):] {
		jobs := []jobmodel.Claimed{}
		for job := range slices.Chunk(request.([]any), 4) {
			jobs = append(jobs, claimed(queues.names[number(job[0])-1], number(job[1]), number(job[2]), job[3].(string)))
		}
		r.Jobs = append(r.Jobs, jobs)
	}
	return r
}

// claimed reads a record.
func claimed(queue string, seq, attempt int64, record string) jobmodel.Claimed {
	j := jobmodel.Job{Seq: seq}
	head, rest, _ := strings.Cut(record, " ")
	j.Ends = number(head)
	end := strings.IndexAny(rest, " #@")
	j.Tries, rest = int(number(rest[:end])), rest[end:]
	if rest[0] == '@' {
		end = strings.IndexAny(rest, " #")
		j.CallerID, rest = rest[1:end], rest[end:]
	}
	j.Payload = rest[1:]
	if rest[0] == '#' {
		size, rest, _ := strings.Cut(rest[1:], ",")
		j.Attributes, j.Payload = rest[:number(size)], rest[number(size):]
	}
	return jobmodel.Claimed{Queue: queue, Attempt: int(attempt), Job: j}
}

func (s *scripts) Ack(groups []jobmodel.AckGroup) []int {
	var queues numbered
	var argv []any
	for _, g := range groups {
		argv = append(argv, queues.add(g.Queue), len(g.Jobs))
		for _, x := range g.Jobs {
			reference := fmt.Sprint(x.Seq)
			result := ""
			if s.keeping[g.Queue].MS > 0 {
				result = jobmodel.ResultOf(x.Seq)
			}
			if x.CallerID != "" || result != "" {
				reference += ":" + x.CallerID
			}
			if result != "" {
				reference += " " + result
			}
			argv = append(argv, reference)
		}
	}
	var replies []int
	keys, names := s.keys(queues.names, shardKeys, "rjdu"), queues.argv(nil)
	for i, name := range queues.names {
		if keep := s.keeping[name]; keep.MS > 0 {
			if len(keys) == 6+4*len(queues.names) {
				keys = append(keys, s.key("kept"))
			}
			keys = append(keys, s.key("a:"+name), s.key("k:"+name))
			names[1+i] = fmt.Sprint(name, " ", keep.MS, " ", keep.All)
		}
	}
	for _, v := range s.call(luajob.Ack, keys, append(names, argv...)...)[1:] {
		replies = append(replies, int(number(v)))
	}
	return replies
}

func (s *scripts) Settle(jobs []jobmodel.Settle) []jobmodel.State {
	var queues numbered
	var rest []any
	for _, x := range jobs {
		verb := x.Verb
		if x.Said != "" {
			verb += " " + x.Said
		}
		rest = append(rest, queues.add(x.Queue), x.Seq, x.Attempt, verb, x.MS)
	}
	argv := append([]any{"w:", "publish"}, queues.argv(jobmodel.Keeps)...)
	var replies []jobmodel.State
	for _, v := range s.call(luajob.Settle, s.keys(queues.names, shardKeys, "rjdu"), append(argv, rest...)...)[1:] {
		replies = append(replies, jobmodel.State(number(v)))
	}
	return replies
}

func (s *scripts) Revert(lane, token string, queues []string) int {
	argv := []any{token, "w:", "publish"}
	for _, q := range queues {
		argv = append(argv, q)
	}
	return int(number(s.call(luajob.Revert, append(s.keys(queues, "attempts lease out:"+lane, "r"), s.spareKeys()...), argv...)[1]))
}

func (s *scripts) Due() []jobmodel.Due {
	ctx := context.Background()
	read := func(key string) []string {
		return s.client.ZRangeArgs(ctx, redis.ZRangeArgs{Key: s.key(key), Start: "-inf", Stop: fmt.Sprint(s.now / 1000), ByScore: true}).Val()
	}
	var due []jobmodel.Due
	for _, kind := range []string{"delay", "lease"} {
		by := map[string][]int64{}
		for _, member := range read(kind) {
			seq, queue, _ := strings.Cut(member, " ")
			by[queue] = append(by[queue], number(seq))
		}
		for _, queue := range slices.Sorted(maps.Keys(by)) {
			due = append(due, jobmodel.Due{Queue: queue, Kind: kind, Seqs: by[queue]})
		}
	}
	for _, queue := range slices.Sorted(slices.Values(read("queues"))) {
		due = append(due, jobmodel.Due{Queue: queue, Kind: "head"})
	}
	return due
}

func (s *scripts) Promote(due []jobmodel.Due) jobmodel.Promoted {
	var queues numbered
	var rest []any
	for _, d := range due {
		rest = append(rest, queues.add(d.Queue), d.Kind, len(d.Seqs))
		for _, seq := range d.Seqs {
			rest = append(rest, seq)
		}
	}
	argv := append([]any{"w:", "publish", jobmodel.HeadCheck}, queues.argv(jobmodel.Keeps)...)
	v := s.call(luajob.Promote, s.keys(queues.names, shardKeys, "rjdu"), append(argv, rest...)...)
	return jobmodel.Promoted{Ready: number(v[1]), Dead: number(v[2]), Expired: number(v[3]), Lost: number(v[4])}
}

func (s *scripts) Respawn(queue, verb string, d jobmodel.DeadSelection, ttl int64) (count int, found string) {
	argv := []any{queue, verb, max(1, d.Limit), ttl, "w:", "publish", int(d.Reason), d.Age, d.Error, "", ""}
	for _, ref := range d.Named {
		argv = append(argv, fmt.Sprintf("%d:%s", ref.Seq, ref.CallerID))
	}
	v := s.call(luajob.Respawn, s.keys([]string{queue}, shardKeys, "rjdu"), argv...)
	for _, state := range v[4:] {
		found += fmt.Sprint(state)
	}
	return int(number(v[1])), found
}

func (s *scripts) Purge(queue string, all bool, limit int) (looked, deleted int) {
	state := "ready"
	if all {
		state = "all"
	}
	v := s.call(luajob.Purge, s.keys([]string{queue}, shardKeys, "rjdu"), queue, state, limit)
	return int(number(v[1])), int(number(v[2]))
}

func (s *scripts) Expire(queue string) jobmodel.Swept {
	v := s.call(luajob.Expire, s.keys([]string{queue}, shardKeys, "rjdu"), queue, "0", 1000, 1, "w:", "publish")
	return jobmodel.Swept{Expired: int(number(v[2])), Found: int(number(v[3]))}
}
