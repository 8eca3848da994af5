package lua_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
)

// hands are the scripts as Redis runs them, with a clock the test moves.
type hands struct {
	t      *rapid.T
	c      *redis.Client
	prefix string
	clock  string
	fail   func(format string, args ...any) // does not return
}

func (h *hands) key(kind, p string) string { return h.prefix + kind + p }

// onClock is a script whose time comes from a key.
func onClock(t *testing.T, s *lua.Script) string {
	t.Helper()
	real, err := os.ReadFile("include/time.lua")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.Source, string(real)) {
		t.Fatalf("%s does not take its time from the include", s.Name)
	}
	return strings.Replace(s.Source, string(real), `
local function time()
  local us = tonumber(redis.call('GET', 'clock:' .. string.match(KEYS[1], '^(.-):')))
  return math.floor(us / 1000), us
end
`, 1)
}

// Redis is the truth; the embedded store is held to the same replies and keys.
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
				h := &hands{rt, client, fmt.Sprintf("r%d:", run), fmt.Sprintf("clock:r%d", run), rt.Fatalf}
				h.walk(sources)
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

func (h *hands) eval(source string, keys []string, argv ...any) []any {
	v, err := h.c.Eval(context.Background(), source, keys, argv...).Result()
	if err != nil {
		h.fail("%v", err)
	}
	return v.([]any)
}

func (h *hands) walk(sources map[string]string) {
	ctx, t := context.Background(), h.t
	batch := rapid.Int64Range(1, 6).Draw(t, "batch")
	m := &model{
		now: 1_700_000_000_000_000, capacity: rapid.Int64Range(1, 20).Draw(t, "capacity"),
		most: rapid.IntRange(1, 3).Draw(t, "most"), parts: map[string]*modelPart{}, ledger: map[string]int64{},
	}
	m.full = min(batch, m.capacity)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		m.parts[name] = &modelPart{}
	}
	var (
		made    int
		used    = []string{"never"}
		byRef   = map[string]string{}   // partition/sequence → entry: never two
		settled = map[string][2]int64{} // what the last commit of each partition said
		blurs   = map[string]bool{}     // where something else removed what tells sequences apart
	)
	tamper := func(name string, p *modelPart) {
		if p.known && p.tail-p.head != int64(len(p.entries)) {
			blurs[name] = true
		}
	}
	ready, ledger, dead := h.prefix+"ready", h.prefix+"ledger", h.prefix+"dead"
	// keys are those that all partitions of a call share, then those of each.
	keys := func(names ...string) []string {
		all := []string{ready, ledger}
		for _, name := range names {
			all = append(all, h.key("q:", name), h.key("m:", name))
		}
		return all
	}
	pick := func() (string, *modelPart) {
		name := rapid.SampledFrom(names).Draw(t, "partition")
		return name, m.parts[name]
	}
	// several are the partitions of a call.
	inRound := false
	several := func() []string {
		if inRound {
			return names
		}
		return rapid.Permutation(names).Draw(t, "partitions")[:rapid.IntRange(1, len(names)).Draw(t, "how many")]
	}
	same := func(what string, got, want any) {
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			h.fail("%s: got %s, want %s", what, g, w)
		}
	}
	// answers compares the values in a reply.
	answers := func(what string, got []any, want [][]any) {
		same(what, got, append([]any{m.ms()}, slices.Concat(want...)...))
	}
	// foreign puts a value of another type under one key of one partition, now and then,
	// for one call. done takes it away again.
	foreign := func(call []string, kinds ...string) (victim, kind string, done func()) {
		if rapid.IntRange(0, 7).Draw(t, "a foreign value") != 0 {
			return "", "", func() {}
		}
		victim, kind = rapid.SampledFrom(call).Draw(t, "foreign of"), rapid.SampledFrom(kinds).Draw(t, "foreign kind")
		key, aside := h.key(kind, victim), h.prefix+"aside"
		h.c.Rename(ctx, key, aside) // fails where nothing is there
		h.c.SAdd(ctx, key, "foreign")
		return victim, kind, func() {
			same("the foreign value", h.c.SMembers(ctx, key).Val(), []string{"foreign"})
			h.c.Del(ctx, key)
			h.c.Rename(ctx, aside, key)
		}
	}
	refusal := []any{"WRONGTYPE Operation against a key holding the wrong kind of value"}
	entries := func(k int) (list []string, argv []any) {
		for range k {
			made++
			age := rapid.Int64Range(-10, modelMaxAge+100).Draw(t, "age")
			e := fmt.Sprintf("%013d e%d", m.ms()-age, made)
			if rapid.IntRange(0, 30).Draw(t, "form") == 0 {
				e = fmt.Sprintf("garbage%d", made)
			}
			list, argv = append(list, e), append(argv, e)
		}
		return list, argv
	}
	actions := map[string]func(*rapid.T){
		"produce": func(t *rapid.T) {
			call := several()
			if rapid.Bool().Draw(t, "one of them twice") {
				call = append(call, call[0])
			}
			argv := []any{m.capacity, m.full, modelLinger, m.most, 120_000, 100, len(h.key("q:", "")) + 1}
			var want [][]any
			m.beginProduce()
			victim, _, done := foreign(call, "q:", "m:")
			for _, name := range call {
				list, args := entries(rapid.IntRange(1, 9).Draw(t, "k"))
				argv = append(append(argv, len(list)), args...)
				if name == victim {
					want = append(want, refusal)
				} else {
					want = append(want, m.produce(m.parts[name], list))
				}
			}
			got := h.eval(sources["produce"], keys(call...), argv...)
			done()
			answers("produce", got, want)
		},
		"claim": func(t *rapid.T) {
			token := fmt.Sprintf("%d.t%d", modelLease, len(used))
			used = append(used, token)
			batches := rapid.Int64Range(1, 3).Draw(t, "batches")
			bytes := rapid.SampledFrom([]int64{1 << 20, 8 << 10, 6 << 10, 4 << 10}).Draw(t, "bytes")
			argv := []any{token, batch, batches, bytes, modelMaxAge, m.full}
			call := several()
			for _, name := range call {
				argv = append(argv, name)
			}
			victim, _, done := foreign(call, "q:", "m:")
			got := h.eval(sources["claim"], keys(call...), argv...)
			done()
			answered := claimAnswers(got)
			same("answers of claim", len(answered), len(call))
			// Only Redis knows what fits into little room, so the model asks it how much that was:
			// it may be less than a batch for the first partition that is read, and beside stale entries.
			var want [][]any
			read := false
			for i, name := range call {
				p := m.parts[name]
				due := p.active && p.due <= m.ms()
				answer := answered[i]
				tight := bytes < 1<<20 && len(answer) > 0
				switch {
				case tight && answer[0] == int64(3) && due && read:
					want = append(want, answer)
					continue
				case due && name == victim:
					want = append(want, refusal)
					continue
				}
				fits := int64(1 << 20)
				if tight && answer[0] == int64(2) {
					fits = 0
					for _, list := range answer[5:] {
						fits += int64(len(list.([]any)))
					}
					if read && answer[1] == int64(0) {
						fits = max(fits, batch)
					}
				}
				want = append(want, m.claim(p, token, batch, batches, fits))
				read = read || due
			}
			same("time", got[0], m.ms())
			same("claim", answered, want)
			for i, name := range call {
				answer := answered[i]
				if answer[0] != int64(2) {
					continue
				}
				seq := answer[2].(int64)
				for _, b := range answer[5:] {
					for _, e := range b.([]any) {
						ref := fmt.Sprintf("%s/%d", name, seq)
						if old, ok := byRef[ref]; ok && old != e.(string) && !blurs[name] {
							h.fail("sequence %s was %q and is %q", ref, old, e)
						}
						byRef[ref] = e.(string)
						seq++
					}
				}
			}
		},
		"commit": func(t *rapid.T) {
			argv := []any{m.full, modelLinger, modelDead, 1 << 20}
			var call []string
			var want [][]any
			letters := false
			some := several()
			victim, kind, done := foreign(some, "q:", "m:")
			defer done()
			for _, name := range some {
				p := m.parts[name]
				token, lo, hi := p.token, p.from, p.to
				switch rapid.IntRange(0, 8).Draw(t, "what") {
				case 0:
					token = rapid.SampledFrom(used).Draw(t, "token")
				case 5:
					if last, ok := settled[name]; ok {
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
				settled[name] = [2]int64{lo, hi}
				switch {
				case name == victim && kind == "m:", name == victim && p.token != "" && p.token == token:
					want = append(want, refusal)
				default:
					want = append(want, m.commit(p, token, lo, hi, hi-lo-expired-gone, expired, gone))
				}
			}
			if len(call) == 0 {
				return
			}
			all := keys(call...)
			if letters {
				all = append(all, dead)
			}
			answers("commit", h.eval(sources["commit"], all, argv...), want)
		},
		"release": func(t *rapid.T) {
			var argv []any
			var want [][]any
			all := []string{ready}
			call := several()
			victim, _, done := foreign(call, "m:")
			defer done()
			for _, name := range call {
				p := m.parts[name]
				token := p.token
				if rapid.IntRange(0, 4).Draw(t, "what") == 0 {
					token = rapid.SampledFrom(used).Draw(t, "token")
				}
				delay := rapid.Int64Range(0, 300).Draw(t, "delay")
				if inRound {
					delay = 0 // the claim that follows gets it
				}
				attempt := rapid.Int64Range(-1, 3).Draw(t, "attempt")
				mask := ""
				if p.token != "" && (inRound || rapid.Bool().Draw(t, "some done")) {
					for seq := p.from; seq < p.to; seq++ {
						mask += rapid.SampledFrom([]string{"0", "1"}).Draw(t, "done")
					}
				}
				all = append(all, h.key("m:", name))
				argv = append(argv, name, token, delay, attempt, mask)
				if name == victim {
					want = append(want, refusal)
				} else {
					want = append(want, m.release(p, token, delay, attempt, mask))
				}
			}
			answers("release", h.eval(sources["release"], all, argv...), want)
		},
		"repair": func(t *rapid.T) {
			ahead := rapid.Int64Range(0, 250).Draw(t, "ahead")
			argv := []any{modelMaxAge, ahead}
			var want [][]any
			call := several()
			victim, _, done := foreign(call, "q:", "m:")
			defer done()
			for _, name := range call {
				argv = append(argv, name)
				if name == victim {
					want = append(want, refusal)
				} else {
					want = append(want, m.repair(m.parts[name], ahead))
				}
			}
			answers("repair", h.eval(sources["repair"], keys(call...), argv...), want)
		},
		"time passes": func(t *rapid.T) { m.now += rapid.Int64Range(1, 300_000).Draw(t, "µs") },
		"clock back":  func(t *rapid.T) { m.now -= rapid.Int64Range(1, 100_000).Draw(t, "µs") },
		"entries vanish": func(t *rapid.T) {
			name, p := pick()
			n := min(rapid.IntRange(1, 4).Draw(t, "n"), len(p.entries))
			if !p.known || p.lacks != "" {
				return // nothing is left that knew how many there were
			}
			tamper(name, p)
			h.c.LTrim(ctx, h.key("q:", name), int64(n), -1)
			p.entries = p.entries[n:]
		},
		"list vanishes": func(t *rapid.T) {
			name, p := pick()
			if !p.known || p.lacks != "" {
				return
			}
			h.c.Del(ctx, h.key("q:", name))
			p.entries = nil
		},
		"hash vanishes": func(t *rapid.T) {
			name, p := pick()
			if len(p.entries) == 0 || !p.active || p.tail-p.head != int64(len(p.entries)) {
				return // two losses at once cannot be told apart
			}
			blurs[name] = true // the clock may step back before it is adopted
			h.c.Del(ctx, h.key("m:", name))
			*p = modelPart{entries: p.entries, active: p.active, due: p.due}
		},
		"the hash loses a field": func(t *rapid.T) {
			name, p := pick()
			if len(p.entries) == 0 || !p.known || p.lacks != "" || !p.active || p.tail-p.head != int64(len(p.entries)) {
				return
			}
			blurs[name] = true
			p.lacks = rapid.SampledFrom([]string{"head", "tail"}).Draw(t, "field")
			h.c.HDel(ctx, h.key("m:", name), p.lacks)
		},
		"member vanishes": func(t *rapid.T) {
			name, p := pick()
			if !p.known || p.lacks != "" {
				return // adopting without hash or member would count twice
			}
			h.c.ZRem(ctx, ready, name)
			p.active, p.due = false, 0
		},
		"a stranger pushes": func(t *rapid.T) {
			name, p := pick()
			if (!p.known || p.lacks != "") && p.active {
				return // the hash is lost: a push cannot be told from what was there
			}
			tamper(name, p)
			h.c.RPush(ctx, h.key("q:", name), "0 stranger")
			p.entries = append(slices.Clone(p.entries), "0 stranger")
		},
		"": func(t *rapid.T) {
			h.c.Set(ctx, h.clock, m.now, 0)
			h.compare(m, names)
		},
	}
	// Some states are rare: a lease of a range that the sink took in part, and what then happens to it.
	round := func(calls ...string) func(*rapid.T) {
		return func(t *rapid.T) {
			inRound = true
			defer func() { inRound = false }()
			for _, name := range calls[rapid.IntRange(0, 3).Draw(t, "first"):] {
				actions[name](t)
				actions[""](t)
			}
		}
	}
	actions["a round"] = round("produce", "time passes", "claim", "release", "claim", "commit", "commit")
	actions["a round that evicts"] = round("produce", "time passes", "claim", "release", "claim", "produce", "commit", "commit")
	t.Repeat(actions)
	// Every partition mended: now the law holds to the entry.
	for _, name := range names {
		got := h.eval(sources["repair"], keys(name), modelMaxAge, 250, name)
		answers("repair at the end", got, [][]any{m.repair(m.parts[name], 250)})
	}
	h.compare(m, names)
	l := h.c.HGetAll(ctx, ledger).Val()
	n := func(class string) int64 { v, _ := strconv.ParseInt(l[class], 10, 64); return v }
	buffered := int64(0)
	for _, name := range names {
		buffered += h.c.LLen(ctx, h.key("q:", name)).Val()
	}
	if sum := n("delivered") + n("evicted") - n("reclaimed") + n("expired") + n("dead") + n("lost") + buffered; n("accepted") != sum {
		h.fail("accepted %d, accounted for %d: %v buffered %d", n("accepted"), sum, l, buffered)
	}
}

// compare holds everything in Redis against the model.
func (h *hands) compare(m *model, names []string) {
	ctx := context.Background()
	for _, name := range names {
		p := m.parts[name]
		if got := h.c.LRange(ctx, h.key("q:", name), 0, -1).Val(); !slices.Equal(got, p.entries) {
			h.fail("list %s: got %q, want %q", name, got, p.entries)
		}
		if int64(len(p.entries)) > m.capacity+2*9 { // strangers may push past it until the next produce
			h.fail("list %s is over its capacity", name)
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
		got := h.c.HGetAll(ctx, h.key("m:", name)).Val()
		maps.DeleteFunc(got, func(k, v string) bool { return (k == "settled" || k == "expired") && v == "0" })
		if !maps.Equal(got, want) {
			h.fail("hash %s: got %v, want %v", name, got, want)
		}
		score, err := h.c.ZScore(ctx, h.prefix+"ready", name).Result()
		if active := err == nil; active != p.active || active && int64(score) != p.due {
			h.fail("active set, %s: got %v %v, want %v %v", name, active, int64(score), p.active, p.due)
		}
	}
	got := h.c.HGetAll(ctx, h.prefix+"ledger").Val()
	for class, want := range m.ledger {
		have, _ := strconv.ParseInt(got[class], 10, 64)
		if class == "dead_kept" {
			have = h.c.LLen(ctx, h.prefix+"dead").Val()
		}
		if have != want {
			h.fail("ledger %s: got %d, want %d (%v)", class, have, want, m.ledger)
		}
	}
}
