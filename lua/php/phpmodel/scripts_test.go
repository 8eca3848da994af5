package phpmodel

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/lua/scripttest"
)

var ctx = context.Background()

// testTexts are the scripts with a clock that the test moves. change may be nil.
func testTexts(tb testing.TB, change func(name, text string) string) map[string]*redis.Script {
	tb.Helper()
	clock := scripttest.Includes(tb, "../..")["time"]
	texts := map[string]*redis.Script{}
	for _, script := range luaphp.All() {
		text := strings.ReplaceAll(script.Source, clock, `
local function time()
  local us = tonumber(redis.call('GET', 'clock'))
  return math.floor(us / 1000), us
end
`)
		if strings.Contains(text, "'TIME'") && script != luaphp.PermissionProbe {
			tb.Fatalf("%s: the clock has another text now", script.Name)
		}
		if change != nil {
			text = change(script.Name, text)
		}
		texts[script.Name] = redis.NewScript(text)
	}
	return texts
}

// scripts are the Lua scripts on one queue of a server.
type scripts struct {
	c      *redis.Client
	texts  map[string]*redis.Script
	flavor flavor
	lanes  map[string]bool // that claimed
}

const base, ours = "queues:{q}", "sw:php:queues:{q}:"

var keys = []string{base, base + ":delayed", base + ":reserved", base + ":notify", ours + "account", ours + "leases", ours + "held",
	ours + "dead", ours + "letters"}

func pick(places ...int) []string {
	var some []string
	for _, i := range places {
		some = append(some, keys[i])
	}
	return some
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func num(v any) int64 {
	switch x := v.(type) {
	case int64:
		return x
	case string:
		if n, err := strconv.ParseInt(x, 10, 64); err == nil {
			return n
		}
	}
	panic(fmt.Sprintf("%#v is not a number", v))
}

func ints(list []any) []int {
	out := make([]int, len(list))
	for i, v := range list {
		out[i] = int(num(v))
	}
	return out
}

// call gives the reply without the time.
func (s *scripts) call(script *lua.Script, keys []string, argv ...any) []any {
	v, err := s.texts[script.Name].Run(ctx, s.c, keys, argv...).Slice()
	if err != nil {
		broken("%s: %v", script.Name, err)
	}
	return v[1:]
}

func (s *scripts) do(args ...any) any {
	v, err := s.c.Do(ctx, args...).Result()
	if err != nil && err != redis.Nil {
		panic(err)
	}
	return v
}

func (s *scripts) setNow(us int64) { s.do("set", "clock", us) }

func (s *scripts) publish(delay int64, key string, payloads []string) (state, count int) {
	argv := []any{delay, bit(s.flavor.notify), 600_000, 1_000_000}
	for _, p := range payloads {
		argv = append(argv, p)
	}
	r := ints(s.call(luaphp.Publish, append(pick(0, 1, 3, 4), ours+"known:"+key), argv...))
	return r[0], r[1]
}

func (s *scripts) claim(lane, token string, ttr int64, count int, steal bool) claimed {
	s.lanes[lane] = true
	r := s.call(luaphp.Claim, append(pick(0, 1, 2, 3, 4, 5, 6, 7, 8), ours+"out:"+lane), token, 600_000, ttr, count, 1<<20,
		bit(s.flavor.onRelease), bit(s.flavor.notify), bit(steal))
	n := ints(r[:4])
	c := claimed{moved: n[0], lapsed: n[1], unreadable: n[2], left: n[3]}
	for i := 4; i < len(r); i += 4 {
		c.jobs = append(c.jobs, handed{num(r[i]), num(r[i+1]), num(r[i+2]), r[i+3].(string)})
	}
	return c
}

func (s *scripts) settle(jobs ...settling) []int {
	argv := []any{bit(s.flavor.onRelease), bit(s.flavor.notify)}
	for _, job := range jobs {
		argv = append(argv, job.seq, job.verb, job.ms)
	}
	return ints(s.call(luaphp.Settle, keys, argv...))
}

func (s *scripts) revert(lane, token string) int {
	return int(num(s.call(luaphp.Revert, append(pick(0, 2, 3, 4, 5, 6), ours+"out:"+lane), token, bit(s.flavor.notify))[0]))
}

func (s *scripts) respawn(remove bool, skip, count int) (done, kept, left int) {
	verb := map[bool]string{true: "delete", false: "respawn"}[remove]
	r := ints(s.call(luaphp.Respawn, pick(0, 3, 4, 7, 8), verb, skip, count, s.flavor.first, bit(s.flavor.notify)))
	return r[0], r[1], r[2]
}

func (s *scripts) purge(all bool, count int) (looked, removed int) {
	state := map[bool]string{true: "all", false: "ready"}[all]
	r := ints(s.call(luaphp.Purge, keys, state, count, bit(s.flavor.notify)))
	return r[0], r[1]
}

func (s *scripts) look() []int { return ints(s.call(luaphp.Look, pick(0, 1, 2, 5, 7))[:5]) }

func (s *scripts) peek() string {
	if r := s.call(luaphp.Peek, pick(0)); num(r[0]) == 1 {
		return r[1].(string)
	}
	return ""
}

func (s *scripts) get(seq int64) string {
	r := s.call(luaphp.Get, pick(2, 5, 6, 7, 8), seq)
	if num(r[0]) == 0 {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintln(r[1:]...), "\n")
}

func (s *scripts) deadPage(skip, count int) (total int, letters []string) {
	r := s.call(luaphp.DeadPage, pick(7, 8), skip, count, 1<<20)
	for i := 1; i < len(r); i += 4 {
		letters = append(letters, fmt.Sprintf("%v %v %v %v", r[i], r[i+1], r[i+2], r[i+3]))
	}
	return int(num(r[0])), letters
}

func (s *scripts) picture() []string {
	p := s.c.Pipeline()
	ready, notify := p.LRange(ctx, base, 0, -1), p.LLen(ctx, base+":notify")
	sets, hashes := map[string]*redis.ZSliceCmd{}, map[string]*redis.MapStringStringCmd{}
	for name, i := range map[string]int{"delayed": 1, "reserved": 2, "leases": 5, "dead": 7} {
		sets[name] = p.ZRangeWithScores(ctx, keys[i], 0, -1)
	}
	for name, i := range map[string]int{"account": 4, "held": 6, "letters": 8} {
		hashes[name] = p.HGetAll(ctx, keys[i])
	}
	outs := map[string]*redis.StringCmd{}
	for lane := range s.lanes {
		outs[lane] = p.Get(ctx, ours+"out:"+lane)
	}
	if _, err := p.Exec(ctx); err != nil && err != redis.Nil {
		panic(err)
	}
	var lines []string
	line := func(parts ...any) { lines = append(lines, fmt.Sprintln(parts...)) }
	for i, p := range ready.Val() {
		line("ready", i, p)
	}
	for name, set := range sets {
		for _, z := range set.Val() {
			unit := 1.0
			if name == "delayed" || name == "reserved" {
				unit = 1000
			}
			line(name, int64(math.Round(z.Score*unit)), z.Member)
		}
	}
	for name, hash := range hashes {
		for field, value := range hash.Val() {
			if field != "keys" { // the clock of their lifetime is the server's
				line(name, field, value)
			}
		}
	}
	for lane, text := range outs {
		if text.Val() != "" {
			line("out", lane, text.Val())
		}
	}
	line("notify", notify.Val())
	slices.Sort(lines)
	return lines
}

// What PHP does.

func (s *scripts) phpMigrate(set string, clock int64) {
	due, err := s.c.ZRangeArgs(ctx, redis.ZRangeArgs{Key: base + ":" + set, ByScore: true, Start: "-inf", Stop: fmt.Sprint(clock)}).Result()
	if err != nil {
		panic(err)
	}
	for _, m := range due {
		s.do("zrem", base+":"+set, m)
		if set == "reserved" && s.flavor.onRelease {
			m = counted(m, s.flavor.first)
		}
		s.phpPush(m)
	}
}

func (s *scripts) phpPop() (string, bool) {
	p, ok := s.do("lpop", base).(string)
	if ok && s.flavor.notify {
		s.do("lpop", base+":notify")
	}
	return p, ok
}

func (s *scripts) phpAdd(set, member string, at int64) bool {
	return num(s.do("zadd", base+":"+set, at, member)) == 1
}

func (s *scripts) phpRemove(member string) bool {
	return num(s.do("zrem", base+":reserved", member)) == 1
}

func (s *scripts) phpPush(p string) {
	s.do("rpush", base, p)
	if s.flavor.notify {
		s.do("rpush", base+":notify", 1)
	}
}
