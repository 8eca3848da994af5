package lua_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

// A walker takes random steps on the scripts in a real Redis, with a clock that the
// test moves, and on the model beside them.
type walker struct {
	t       *rapid.T
	c       *redis.Client
	prefix  string
	clock   string                           // the key of the clock
	fail    func(format string, args ...any) // does not return
	sources map[string]*redis.Script         // of the scripts, on the clock

	m       *model
	batch   int64
	inRound bool     // a fixed sequence of calls is under way
	made    int      // entries so far
	used    []string // tokens so far

	bySequence map[string]string   // partition/sequence → entry: never two
	settled    map[string][2]int64 // what the last commit of each partition settled
	ambiguous  map[string]bool     // partitions whose sequences may repeat, after another program removed what tells them apart
}

var walkNames = []string{"a", "b", "c"}

func (w *walker) key(kind, p string) string { return w.prefix + kind + p }
func (w *walker) ready() string             { return w.prefix + "ready" }
func (w *walker) ledger() string            { return w.prefix + "ledger" }
func (w *walker) dead() string              { return w.prefix + "dead" }

// onClock is a script whose time comes from a key.
func onClock(t *testing.T, s *lua.Script) string {
	t.Helper()
	real := scripttest.Includes(t, ".")["time"]
	if !strings.Contains(s.Source, real) {
		t.Fatalf("%s does not take its time from the include", s.Name)
	}
	return strings.Replace(s.Source, real, `
local function time()
  local us = tonumber(redis.call('GET', 'clock:' .. string.match(KEYS[1], '^(.-):')))
  return math.floor(us / 1000), us
end
`, 1)
}

// Redis decides what is right; miniredis must give the same replies and keys.
func TestScriptsFollowTheModel(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(*testing.T) *redis.Client{
		"redis": func(t *testing.T) *redis.Client { return redistest.Start(t).Client() },
		"miniredis": func(t *testing.T) *redis.Client {
			c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), DisableIdentity: true})
			t.Cleanup(func() { _ = c.Close() })
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, sources, run := client(t), modelScripts(t, nil), 0
			rapid.Check(t, func(rt *rapid.T) {
				run++
				walk(rt, client, fmt.Sprintf("r%d", run), rt.Fatalf, sources)
			})
		})
	}
}

// modelScripts are the scripts on the clock of the walk. change may be nil.
func modelScripts(t *testing.T, change func(name, text string) string) map[string]*redis.Script {
	scripts := map[string]*redis.Script{}
	for _, s := range lua.All() {
		text := onClock(t, s)
		if change != nil {
			text = change(s.Name, text)
		}
		scripts[s.Name] = redis.NewScript(text)
	}
	return scripts
}

// walk takes one random walk on keys of its own, and calls fail at the first difference.
func walk(t *rapid.T, c *redis.Client, name string, fail func(format string, args ...any), sources map[string]*redis.Script) {
	w := &walker{
		t: t, c: c, prefix: name + ":", clock: "clock:" + name, fail: fail, sources: sources,
		batch: rapid.Int64Range(1, 6).Draw(t, "batch"), used: []string{"never"},
		bySequence: map[string]string{}, settled: map[string][2]int64{}, ambiguous: map[string]bool{},
	}
	w.m = &model{
		now: 1_700_000_000_000_000, capacity: rapid.Int64Range(1, 20).Draw(t, "capacity"),
		maxActive: rapid.IntRange(1, 3).Draw(t, "max active"), parts: map[string]*modelPart{}, ledger: map[string]int64{},
		pauses: map[string]string{}, maxKeys: rapid.Int64Range(0, 4).Draw(t, "max keys"), keys: map[int64]int64{}, results: map[string][]any{},
	}
	w.m.full = min(w.batch, w.m.capacity)
	for _, name := range walkNames {
		w.m.parts[name] = &modelPart{}
	}
	t.Repeat(w.actions())
	w.checkLedger()
}

// actions are the steps of a walk. The one without a name runs after each of the others.
func (w *walker) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){
		"produce": w.produce, "claim": w.claim, "commit": w.commit, "release": w.release, "repair": w.repair,
		"pause": w.pause, "resume": w.resume, "purge": w.purge, "discard": w.discard,
		"time passes":            func(t *rapid.T) { w.m.now += rapid.Int64Range(1, 300_000).Draw(t, "µs") },
		"a ms of samples":        func(*rapid.T) { w.m.now = (w.m.now/64_000 + 1) * 64_000 },
		"keys end to count":      func(t *rapid.T) { w.m.now += rapid.Int64Range(90, 140).Draw(t, "s") * 1_000_000 },
		"clock back":             func(t *rapid.T) { w.m.now -= rapid.Int64Range(1, 100_000).Draw(t, "µs") },
		"entries vanish":         w.entriesVanish,
		"list vanishes":          w.listVanishes,
		"hash vanishes":          w.hashVanishes,
		"the hash loses a field": w.hashLosesAField,
		"member vanishes":        w.memberVanishes,
		"another program pushes": w.anotherProgramPushes,
		"":                       func(*rapid.T) { w.compare() },
	}
	// Some states are rare: a lease of a range that the sink accepted in part, and what happens to it then.
	round := func(calls ...string) func(*rapid.T) {
		return func(t *rapid.T) {
			w.inRound = true
			defer func() { w.inRound = false }()
			for _, name := range calls[rapid.IntRange(0, 3).Draw(t, "first"):] {
				actions[name](t)
				actions[""](t)
			}
		}
	}
	actions["a round"] = round("produce", "time passes", "claim", "release", "claim", "commit", "commit")
	actions["a round with a lease that lapses"] = round("produce", "time passes", "claim", "pause", "time passes", "time passes", "claim", "resume")
	actions["a round with a pause"] = round("produce", "pause", "time passes", "claim", "resume", "claim", "repair")
	actions["a round that evicts"] = round("produce", "time passes", "claim", "release", "claim", "produce", "commit", "commit")
	actions["a round that purges"] = round("produce", "time passes", "claim", "release", "purge", "claim", "commit")
	return actions
}

// checkLedger repairs every partition and checks the law of the ledger to the entry.
func (w *walker) checkLedger() {
	for _, name := range walkNames {
		got := w.eval(w.sources["repair"], w.keys(name), modelMaxAge, 250, name)
		w.answers("repair at the end", got, [][]any{w.m.repair(name, 250)})
	}
	w.compare()
	ledger := w.c.HGetAll(context.Background(), w.ledger()).Val()
	n := func(class string) int64 { v, _ := strconv.ParseInt(ledger[class], 10, 64); return v }
	buffered := int64(0)
	for _, name := range walkNames {
		buffered += w.c.LLen(context.Background(), w.key("q:", name)).Val()
	}
	if sum := n("delivered") + n("evicted") - n("reclaimed") + n("expired") + n("dead") + n("lost") + buffered; n("accepted") != sum {
		w.fail("accepted %d, accounted for %d: %v buffered %d", n("accepted"), sum, ledger, buffered)
	}
}

// compare compares everything in Redis with the model, and sets the clock for what follows.
func (w *walker) compare() {
	ctx := context.Background()
	type stored struct {
		list  *redis.StringSliceCmd
		meta  *redis.MapStringStringCmd
		score *redis.FloatCmd
	}
	found := map[string]stored{}
	pipe := w.c.Pipeline() // walks spend most of their time here
	pipe.Set(ctx, w.clock, w.m.now, 0)
	for _, name := range walkNames {
		found[name] = stored{pipe.LRange(ctx, w.key("q:", name), 0, -1), pipe.HGetAll(ctx, w.key("m:", name)),
			pipe.ZScore(ctx, w.prefix+"ready", name)}
	}
	ledger, dead := pipe.HGetAll(ctx, w.prefix+"ledger"), pipe.LLen(ctx, w.prefix+"dead")
	_, _ = pipe.Exec(ctx) // what is not there is an error
	for _, name := range walkNames {
		p := w.m.parts[name]
		if got := found[name].list.Val(); !slices.Equal(got, p.entries) {
			w.fail("list %s: got %q, want %q", name, got, p.entries)
		}
		if int64(len(p.entries)) > w.m.capacity+2*9 { // other programs may push past it until the next produce
			w.fail("list %s is over its capacity", name)
		}
		want := map[string]string{}
		put := func(field string, v int64, when bool) {
			if when {
				want[field] = strconv.FormatInt(v, 10)
			}
		}
		put("head", p.head, p.known && p.lacks != "head")
		put("tail", p.tail, p.known && p.lacks != "tail")
		put("birth", p.birth, p.known)
		put("settled", p.settled, p.settled != 0)
		put("expired", p.expired, p.expired != 0)
		put("from", p.from, p.from != 0)
		put("to", p.to, p.to != 0)
		put("attempt", p.attempt, p.to != 0 && p.attempt != absentAttempt)
		put("big", 65536, p.big)
		if p.done != "" {
			want["done"] = p.done
		}
		if p.cutsField != "" {
			want["cuts"] = p.cutsField
		}
		if p.token != "" {
			want["token"] = p.token
		}
		got := found[name].meta.Val()
		maps.DeleteFunc(got, func(k, v string) bool { return (k == "settled" || k == "expired") && v == "0" })
		if !maps.Equal(got, want) {
			w.fail("hash %s: got %v, want %v", name, got, want)
		}
		score, err := found[name].score.Result()
		if active := err == nil; active != p.active || active && int64(score) != p.due {
			w.fail("active set, %s: got %v %v, want %v %v", name, active, int64(score), p.active, p.due)
		}
	}
	got := ledger.Val()
	pauses := map[string]string{}
	for field, text := range got {
		if name, ok := strings.CutPrefix(field, "pause:"); ok {
			pauses[name] = text
		}
	}
	if !maps.Equal(pauses, w.m.pauses) {
		w.fail("pauses: got %q, want %q", pauses, w.m.pauses)
	}
	if n, _ := strconv.Atoi(got["paused"]); n != len(w.m.pauses) || n == 0 && got["paused"] != "" {
		w.fail("paused: got %q, want %d", got["paused"], len(w.m.pauses))
	}
	kept := int64(0)
	for pair := range slices.Chunk(strings.Fields(got["keys"]), 2) {
		at, _ := strconv.ParseInt(pair[0], 10, 64)
		if n, _ := strconv.ParseInt(pair[1], 10, 64); at*1000 > w.m.ms() {
			kept += n
		}
	}
	if want := w.m.keptKeys(); kept != want {
		w.fail("keys: %d count in %q, want %d", kept, got["keys"], want)
	}
	for class, want := range w.m.ledger {
		have, _ := strconv.ParseInt(got[class], 10, 64)
		if class == "dead_kept" {
			have = dead.Val()
			if count, _ := strconv.ParseInt(got["dead_count"], 10, 64); count != have {
				w.fail("dead_count: got %d, want %d", count, have)
			}
		}
		if have != want {
			w.fail("ledger %s: got %d, want %d (%v)", class, have, want, w.m.ledger)
		}
	}
}

// These steps do what something other than Spillway may do to the keys.

func (w *walker) pick() (string, *modelPart) {
	name := rapid.SampledFrom(walkNames).Draw(w.t, "partition")
	return name, w.m.parts[name]
}

func (w *walker) tamper(name string, p *modelPart) {
	if p.known && p.tail-p.head != int64(len(p.entries)) {
		w.ambiguous[name] = true
	}
}

func (w *walker) entriesVanish(t *rapid.T) {
	name, p := w.pick()
	n := min(rapid.IntRange(1, 4).Draw(t, "n"), len(p.entries))
	if !p.known || p.lacks != "" {
		return // nothing knows how many there were
	}
	w.tamper(name, p)
	w.c.LTrim(context.Background(), w.key("q:", name), int64(n), -1)
	p.entries = p.entries[n:]
}

func (w *walker) listVanishes(*rapid.T) {
	name, p := w.pick()
	if !p.known || p.lacks != "" {
		return
	}
	w.c.Del(context.Background(), w.key("q:", name))
	p.entries = nil
}

func (w *walker) hashVanishes(*rapid.T) {
	name, p := w.pick()
	if len(p.entries) == 0 || !p.active || p.tail-p.head != int64(len(p.entries)) {
		return // two losses at once cannot be told apart
	}
	w.ambiguous[name] = true // the clock may step back before it is adopted
	w.c.Del(context.Background(), w.key("m:", name))
	*p = modelPart{entries: p.entries, active: p.active, due: p.due}
}

func (w *walker) hashLosesAField(t *rapid.T) {
	name, p := w.pick()
	if len(p.entries) == 0 || !p.known || p.lacks != "" || !p.active || p.tail-p.head != int64(len(p.entries)) {
		return
	}
	w.ambiguous[name] = true
	p.lacks = rapid.SampledFrom([]string{"head", "tail"}).Draw(t, "field")
	w.c.HDel(context.Background(), w.key("m:", name), p.lacks)
}

func (w *walker) memberVanishes(*rapid.T) {
	name, p := w.pick()
	if !p.known || p.lacks != "" {
		return // adopting without hash or member would count twice
	}
	w.c.ZRem(context.Background(), w.ready(), name)
	p.active, p.due = false, 0
}

func (w *walker) anotherProgramPushes(*rapid.T) {
	name, p := w.pick()
	if (!p.known || p.lacks != "") && p.active {
		return // the hash is lost: pushed entries cannot be told from the others
	}
	w.tamper(name, p)
	w.c.RPush(context.Background(), w.key("q:", name), "0 pushed")
	p.entries = append(slices.Clone(p.entries), "0 pushed")
}

// pausable is a partition of the walk, one that never has entries, or all of them. Of
// these the last is the rarest: it hides what the others do.
func (w *walker) pausable(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c", "a", "b", "c", "none", "*"}).Draw(t, "what is paused")
}

func (w *walker) pause(t *rapid.T) {
	name, since := w.pausable(t), int64(0)
	if rapid.Bool().Draw(t, "said since when") {
		since = w.m.ms() - rapid.Int64Range(-5, 5).Draw(t, "since")
	}
	w.made++
	text := fmt.Sprint("why ", w.made)
	maxPaused := rapid.IntRange(1, 4).Draw(t, "most")
	got := w.eval(w.sources["pause"], []string{w.ledger()}, name, since, text, maxPaused)
	w.answers("pause", got, [][]any{w.m.pause(name, text, since, maxPaused)})
}

func (w *walker) resume(t *rapid.T) {
	name := w.pausable(t)
	keys := []string{w.ready(), w.ledger()}
	if name != "*" {
		keys = append(keys, w.key("m:", name))
	}
	w.answers("resume", w.eval(w.sources["resume"], keys, name), [][]any{w.m.resume(name)})
}

func (w *walker) claim(t *rapid.T) {
	token := fmt.Sprintf("%d.t%d", modelLease, len(w.used))
	w.used = append(w.used, token)
	batches := rapid.Int64Range(1, 3).Draw(t, "batches")
	bytes := rapid.SampledFrom([]int64{1 << 20, 8 << 10, 6 << 10, 4 << 10}).Draw(t, "bytes")
	argv := []any{token, w.batch, batches, bytes, modelMaxAge, w.m.full}
	call := w.someNames()
	for _, name := range call {
		argv = append(argv, name)
	}
	victim, _, done := w.foreign(call, "q:", "m:")
	got := w.eval(w.sources["claim"], w.keys(call...), argv...)
	done()
	answered := claimAnswers(got)
	w.same("answers of claim", len(answered), len(call))
	// Only Redis knows what fits into little room, so the model asks it how much that was:
	// it may be less than a w.batch for the first partition that is read, and beside stale entries.
	var want [][]any
	read := false
	for i, name := range call {
		p := w.m.parts[name]
		due := p.active && p.due <= w.m.ms() && w.m.pauses["*"] == ""
		answer := answered[i]
		tight := bytes < 1<<20 && len(answer) > 0
		switch {
		case tight && answer[0] == int64(3) && due && read:
			want = append(want, answer)
			continue
		case due && name == victim:
			want = append(want, rejection)
			continue
		}
		fits := int64(1 << 20)
		if tight && answer[0] == int64(2) {
			fits = 0
			for _, list := range answer[5:] {
				fits += int64(len(list.([]any)))
			}
			if read && answer[1] == int64(0) {
				fits = max(fits, w.batch)
			}
		}
		want = append(want, w.m.claim(name, token, w.batch, batches, fits))
		read = read || due
	}
	w.same("time", got[0], w.m.ms())
	w.same("claim", answered, want)
	w.checkSequences(call, answered)
}

// checkSequences checks that a sequence is never used for two entries.
func (w *walker) checkSequences(call []string, answered [][]any) {
	for i, name := range call {
		answer := answered[i]
		if answer[0] != int64(2) {
			continue
		}
		seq := answer[2].(int64)
		for _, b := range answer[5:] {
			for _, e := range b.([]any) {
				ref := fmt.Sprintf("%s/%d", name, seq)
				if old, ok := w.bySequence[ref]; ok && old != e.(string) && !w.ambiguous[name] {
					w.fail("sequence %s was %q and is %q", ref, old, e)
				}
				w.bySequence[ref] = e.(string)
				seq++
			}
		}
	}
}

func (w *walker) commit(t *rapid.T) {
	argv := []any{w.m.full, modelLinger, modelDead, 1 << 20}
	var call []string
	var want [][]any
	letters := false
	some := w.someNames()
	victim, kind, done := w.foreign(some, "q:", "m:")
	defer done()
	for _, name := range some {
		p := w.m.parts[name]
		token, lo, hi := p.token, p.from, p.to
		switch rapid.IntRange(0, 8).Draw(t, "what") {
		case 0:
			token = rapid.SampledFrom(w.used).Draw(t, "token")
		case 5:
			if last, ok := w.settled[name]; ok {
				lo, hi = last[0], last[1]
			}
		case 1:
			lo += rapid.Int64Range(-2, 2).Draw(t, "lo")
		case 2, 3, 4:
			if len(p.cuts) > 0 {
				hi = rapid.SampledFrom(p.cuts).Draw(t, "hi")
			}
		}
		if lo < 0 || lo >= hi || hi-lo > 100 {
			continue
		}
		expired := rapid.Int64Range(0, hi-lo).Draw(t, "expired")
		gone := rapid.Int64Range(0, hi-lo-expired).Draw(t, "dead")
		// What the sink accepted before is delivered: the holder says so.
		expired = min(expired, hi-lo-p.accepted(lo, hi))
		gone = min(gone, hi-lo-expired-p.accepted(lo, hi))
		argv = append(argv, name, token, lo, hi, expired, gone)
		for i := range gone {
			argv = append(argv, fmt.Sprintf("dead %d", lo+i))
			letters = true
		}
		call = append(call, name)
		w.settled[name] = [2]int64{lo, hi}
		switch {
		case name == victim && kind == "m:", name == victim && p.token != "" && p.token == token:
			want = append(want, rejection)
		default:
			want = append(want, w.m.commit(p, token, lo, hi, hi-lo-expired-gone, expired, gone))
		}
	}
	if len(call) == 0 {
		return
	}
	all := w.keys(call...)
	if letters {
		all = append(all, w.dead())
	}
	w.answers("commit", w.eval(w.sources["commit"], all, argv...), want)
}
