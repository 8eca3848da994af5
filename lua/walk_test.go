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
	sources map[string]string                // of the scripts, on the clock

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
			client, sources, run := client(t), modelSources(t), 0
			rapid.Check(t, func(rt *rapid.T) {
				run++
				walk(rt, client, fmt.Sprintf("r%d", run), rt.Fatalf, sources)
			})
		})
	}
}

func modelSources(t *testing.T) map[string]string {
	sources := map[string]string{}
	for _, s := range lua.All() {
		sources[s.Name] = onClock(t, s)
	}
	return sources
}

// walk takes one random walk on keys of its own, and calls fail at the first difference.
func walk(t *rapid.T, c *redis.Client, name string, fail func(format string, args ...any), sources map[string]string) {
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
		"": func(*rapid.T) {
			w.c.Set(context.Background(), w.clock, w.m.now, 0)
			w.compare()
		},
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

// compare compares everything in Redis with the model.
func (w *walker) compare() {
	ctx := context.Background()
	for _, name := range walkNames {
		p := w.m.parts[name]
		if got := w.c.LRange(ctx, w.key("q:", name), 0, -1).Val(); !slices.Equal(got, p.entries) {
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
		got := w.c.HGetAll(ctx, w.key("m:", name)).Val()
		maps.DeleteFunc(got, func(k, v string) bool { return (k == "settled" || k == "expired") && v == "0" })
		if !maps.Equal(got, want) {
			w.fail("hash %s: got %v, want %v", name, got, want)
		}
		score, err := w.c.ZScore(ctx, w.prefix+"ready", name).Result()
		if active := err == nil; active != p.active || active && int64(score) != p.due {
			w.fail("active set, %s: got %v %v, want %v %v", name, active, int64(score), p.active, p.due)
		}
	}
	got := w.c.HGetAll(ctx, w.prefix+"ledger").Val()
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
			have = w.c.LLen(ctx, w.prefix+"dead").Val()
			if count, _ := strconv.ParseInt(got["dead_count"], 10, 64); count != have {
				w.fail("dead_count: got %d, want %d", count, have)
			}
		}
		if have != want {
			w.fail("ledger %s: got %d, want %d (%v)", class, have, want, w.m.ledger)
		}
	}
}
