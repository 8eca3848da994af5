package lua_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

// on runs one directed test on a real server and on miniredis, in parallel,
// each time on a partition of its own. With -short only the walks beside the model,
// which compare all that the scripts keep, run on miniredis.
func on(t *testing.T, f func(t *testing.T, p *part)) {
	t.Helper()
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		f(t, newPart(t, redistest.SharedClient(t)))
	})
	if testing.Short() {
		return
	}
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), DisableIdentity: true})
		t.Cleanup(func() { _ = c.Close() })
		f(t, newPart(t, c))
	})
}

// part is one partition in a shard of its own, as the scripts see it, and the
// policy that the calls of a test pass.
type part struct {
	t    *testing.T
	c    *redis.Client
	name string

	q, ready, m, ledger, dead, seen string

	capacity, full, linger, maxActive int64
	maxKeys                           int64
	batch, batches, bytes             int64
	maxAge, lease                     int64
	maxDead, deadBytes                int64

	made int    // entries made so far
	done string // of the last lease
	from int64  // where it began, for tests that spoil the hash
}

var shards atomic.Int64

func newPart(t *testing.T, c *redis.Client) *part {
	return partIn(t, c, fmt.Sprintf("sw:{test.%d}:", shards.Add(1)), "kart")
}

func partIn(t *testing.T, c *redis.Client, prefix, name string) *part {
	return &part{
		t: t, c: c, name: name,
		q: prefix + "q:" + name, ready: prefix + "ready", m: prefix + "m:" + name,
		ledger: prefix + "ledger", dead: prefix + "dead", seen: prefix + "dd:" + name + ":0f",
		capacity: 10, full: 4, linger: 50_000, maxActive: 3, maxKeys: 3,
		batch: 4, batches: 1, bytes: 1 << 20,
		maxAge: 180_000, lease: 15_000,
		maxDead: 3, deadBytes: 1 << 20,
	}
}

func (p *part) try(s *lua.Script, keys []string, argv ...any) ([]any, error) {
	// By its digest: Redis would hash and read the text with each call.
	v, err := redis.NewScript(s.Source).Run(context.Background(), p.c, keys, argv...).Result()
	reply, _ := v.([]any)
	return reply, err
}

func (p *part) must(s *lua.Script, keys []string, argv ...any) []any {
	p.t.Helper()
	reply, err := p.try(s, keys, argv...)
	if err != nil {
		p.t.Fatalf("%s: %v", s.Name, err)
	}
	return reply
}

// now is the store's time in ms.
func (p *part) now() int64 {
	p.t.Helper()
	v, err := p.c.Time(context.Background()).Result()
	if err != nil {
		p.t.Fatal(err)
	}
	return v.UnixMilli()
}

// fresh makes n entries of this moment; aged n of the given age in ms. No two
// entries of a test are the same.
func (p *part) fresh(n int) []string { return p.aged(n, 0) }

func (p *part) aged(n int, age int64) []string {
	p.t.Helper()
	now := p.now()
	entries := make([]string, n)
	for i := range entries {
		p.made++
		entries[i] = fmt.Sprintf("%013d entry %d", now-age, p.made)
	}
	return entries
}

// makeDue is time passing: what the partition waits for has come.
func (p *part) makeDue() {
	p.t.Helper()
	p.do("zadd", p.ready, 0, p.name)
}

func (p *part) do(args ...any) {
	p.t.Helper()
	if err := p.c.Do(context.Background(), args...).Err(); err != nil {
		p.t.Fatalf("%v: %v", args, err)
	}
}

func (p *part) field(name string) string { return p.c.HGet(context.Background(), p.m, name).Val() }

func (p *part) seq(name string) int64 {
	n, _ := strconv.ParseInt(p.field(name), 10, 64)
	return n
}

func (p *part) list() []string { return p.c.LRange(context.Background(), p.q, 0, -1).Val() }

// due is the partition's score, -1 when it is not active.
func (p *part) due() int64 {
	score, err := p.c.ZScore(context.Background(), p.ready, p.name).Result()
	if err != nil {
		return -1
	}
	return int64(score)
}

func (p *part) count(class string) int64 {
	n, _ := p.c.HGet(context.Background(), p.ledger, class).Int64()
	return n
}

// same compares replies, and anything else, by their text.
func (p *part) same(what string, got, want any) {
	p.t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		p.t.Fatalf("%s: got %s, want %s", what, g, w)
	}
}

// ledgerIs compares the counts that are not zero.
func (p *part) ledgerIs(want map[string]int64) {
	p.t.Helper()
	got := map[string]int64{}
	for class, text := range p.c.HGetAll(context.Background(), p.ledger).Val() {
		if n, _ := strconv.ParseInt(text, 10, 64); n != 0 && class != "high_water" && class != "dead_bytes" && class != "dead_count" && class != "paused" {
			got[class] = n
		}
	}
	if !maps.Equal(got, want) {
		p.t.Fatalf("ledger: got %v, want %v", got, want)
	}
}

// lawful checks both invariants; the partition must be the only one of its shard.
func (p *part) lawful() {
	p.t.Helper()
	length := int64(len(p.list()))
	if known := p.field("tail") != ""; known != (length > 0) {
		p.t.Fatalf("%d entries, hash known: %v", length, known)
	}
	if span := p.seq("tail") - p.seq("head"); span != length {
		p.t.Fatalf("I1: tail-head is %d, the list holds %d", span, length)
	}
	if (p.due() != -1) != (length > 0) {
		p.t.Fatalf("%d entries, active: %v", length, p.due() != -1)
	}
	out := p.count("delivered") + p.count("evicted") - p.count("reclaimed") + p.count("expired") + p.count("dead") + p.count("lost")
	if in := p.count("accepted"); in != out+length {
		p.t.Fatalf("the law: accepted %d, out %d, buffered %d", in, out, length)
	}
}

// snapshot is everything the shard holds, as text.
func (p *part) snapshot() string {
	p.t.Helper()
	prefix, _, _ := strings.Cut(p.ready, "ready")
	return scripttest.Snapshot(p.t, p.c, prefix+"*", true)
}

// rejects runs a call that must fail and must change nothing.
func (p *part) rejects(text string, s *lua.Script, keys []string, argv ...any) {
	p.t.Helper()
	before := p.snapshot()
	reply, err := p.try(s, keys, argv...)
	got, rejected := answerText(reply)
	if err != nil {
		got, rejected = err.Error(), true
	}
	if !rejected {
		p.t.Errorf("%s%q: got %v, want a rejection", s.Name, argv, reply)
	} else if !strings.Contains(got, text) {
		p.t.Errorf("%s%q: got %q, want %q", s.Name, argv, got, text)
	}
	if after := p.snapshot(); after != before {
		p.t.Errorf("%s%q failed and wrote:\nbefore\n%safter\n%s", s.Name, argv, before, after)
	}
}

// rejectsBadArgs spoils each argument in each way that its declared type
// forbids, and leaves each out. zero lists those where 0 is bad, from 1; numbers
// the whole numbers among those that repeat, from 1.
func (p *part) rejectsBadArgs(s *lua.Script, keys []string, argv []any, numbers []int, zero ...int) {
	p.t.Helper()
	var passed []string
	before := p.snapshot()
	try := func(what string, argv []any) {
		_, err := p.try(s, keys, argv...)
		if err == nil || !strings.Contains(err.Error(), "ERR "+s.Name+": bad arguments") || p.snapshot() != before {
			passed = append(passed, what)
			before = p.snapshot()
		}
	}
	for i := range argv {
		slot := s.Header.Args[min(i, len(s.Header.Args)-1)]
		repeats := s.Header.Rest && i >= len(s.Header.Args)-1
		if repeats && !slices.Contains(numbers, i+1) || !repeats && slot.Type == "string" {
			continue
		}
		bad := []any{"", "x", "-1", "1.5", "nan", "inf"}
		if slices.Contains(zero, i+1) {
			bad = append(bad, 0)
		}
		for _, value := range bad {
			if value == "-1" && (s == lua.Release && i%5 == 3 || s == lua.Produce && i >= 8) {
				continue // the header gives it a meaning
			}
			spoilt := slices.Clone(argv)
			spoilt[i] = value
			try(fmt.Sprintf("ARGV[%d]=%q", i+1, fmt.Sprint(value)), spoilt)
		}
	}
	for n := range len(argv) {
		try(fmt.Sprintf("only %d arguments", n), argv[:n])
	}
	if len(passed) > 0 {
		p.t.Errorf("not rejected cleanly: %s", strings.Join(passed, ", "))
	}
}

// rejectsForeign puts a foreign value under each of a call's keys, in each
// state. The call must fail and change nothing; or, where the state keeps it
// from looking at that key, succeed. Where the key is one partition's, the answer of
// that partition says so.
func rejectsForeign(t *testing.T, states map[string]func(p *part), s *lua.Script, call func(p *part) (keys []string, argv []any)) {
	t.Helper()
	for state, prepare := range states {
		t.Run(state, func(t *testing.T) {
			on(t, func(t *testing.T, p *part) {
				probe, _ := call(newPart(t, p.c))
				for i := range probe {
					p := newPart(t, p.c)
					prepare(p)
					keys, argv := call(p)
					p.do("del", keys[i])
					p.do("xadd", keys[i], "*", "a", "foreign")
					before := p.snapshot()
					reply, err := p.try(s, keys, argv...)
					after := p.snapshot()
					rejected := err != nil
					if rejected && !strings.Contains(err.Error(), "WRONGTYPE") {
						t.Errorf("KEYS[%d]: got %v, want WRONGTYPE", i+1, err)
					}
					if text, ok := answerText(reply); ok {
						rejected = true
						if !strings.Contains(text, "WRONGTYPE") {
							t.Errorf("KEYS[%d]: got the answer %q, want WRONGTYPE", i+1, text)
						}
					}
					if rejected && after != before {
						t.Errorf("KEYS[%d] is foreign: rejected, but\nbefore\n%safter\n%s", i+1, before, after)
					}
				}
			})
		})
	}
}

// answerText is the rejection of the only partition of a call.
func answerText(reply []any) (string, bool) {
	if len(reply) < 2 {
		return "", false
	}
	text, ok := reply[1].(string)
	return text, ok
}

// states are the states of a partition that a script may meet, healthy or not.
var states = map[string]func(p *part){
	"nothing there":           func(*part) {},
	"a partition":             func(p *part) { p.produce(p.fresh(1)...) },
	"one below a full batch":  func(p *part) { p.produce(p.fresh(3)...) },
	"a full partition":        func(p *part) { p.produce(p.fresh(10)...) },
	"a leased partition":      func(p *part) { p.produce(p.fresh(10)...); p.claim("t1") },
	"a lapsed lease":          func(p *part) { p.produce(p.fresh(10)...); p.claim("t1"); p.makeDue() },
	"a range that waits":      func(p *part) { p.produce(p.fresh(10)...); p.claim("t1"); p.release("t1", 0, 1) },
	"stale entries":           func(p *part) { p.produce(p.aged(2, 200_000)...); p.produce(p.fresh(4)...) },
	"a list without its hash": func(p *part) { p.do("rpush", p.q, "1", "2"); p.makeDue() },
	"a list without a member": func(p *part) { p.do("rpush", p.q, "1", "2") },
	"a vanished list":         func(p *part) { p.produce(p.fresh(4)...); p.do("del", p.q) },
	"a vanished leased list":  func(p *part) { p.produce(p.fresh(4)...); p.claim("t1"); p.do("del", p.q) },
	"a list cut short":        func(p *part) { p.produce(p.fresh(6)...); p.claim("t1"); p.do("ltrim", p.q, 2, -1) },
}

// Where the embedded store differs from Redis. Each is tried on both, so that the list
// ends when the difference does. What no script can show: TTLs stand still on miniredis
// unless its clock is told to move, and it knows no maxmemory, MISCONF, READONLY,
// NOREPLICAS, DUMP, command statistics or cluster.
func TestWhereMiniredisDiffers(t *testing.T) {
	t.Parallel()
	real := redistest.SharedClient(t)
	mini := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = mini.Close() })
	run := func(c *redis.Client, script string) string {
		v, err := c.Eval(context.Background(), script, []string{"sw:{differs}:q"}).Result()
		if err != nil && err != redis.Nil { //nolint:errorlint // nil is an answer
			return "error " + err.Error()
		}
		return fmt.Sprint(v)
	}
	for name, row := range map[string]struct{ script, redis, mini string }{
		"tonumber of no number":      {`return tostring(tonumber('nan'))`, "nan", "nil"},
		"an and that is nil":         {`local ok = true ok = tonumber('x') and true return tostring(ok)`, "nil", "true"},
		"string.match without one":   {`return select('#', string.match('x', 'y'))`, "1", "0"},
		"unpack of 7,000":            {`local t = {} for i = 1, 7000 do t[i] = i end return select('#', unpack(t))`, "7000", "error "},
		"a redis.call that is wrong": {`redis.call('SET', KEYS[1], 'x') return redis.call('LLEN', KEYS[1])`, "error WRONGTYPE", "error ERR Error compiling script"},
		"CONFIG":                     {`return redis.call('CONFIG', 'GET', 'maxmemory') and 'known'`, "error ERR This Redis command is not allowed from script", "error "},
	} {
		onRedis, onMini := run(real, row.script), run(mini, row.script)
		if !strings.HasPrefix(onRedis, row.redis) || !strings.HasPrefix(onMini, row.mini) || onRedis == onMini {
			t.Errorf("%s: redis %q (want %q), miniredis %q (want %q): bring this list up to date", name, onRedis, row.redis, onMini, row.mini)
		}
	}
}

// With -short rapid takes a fifth of the walks, and halves their steps, by which the walk of a seed
// would be another one. So they stay as long.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		_ = flag.Set("rapid.steps", "60")
	}
	os.Exit(m.Run())
}
