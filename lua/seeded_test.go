package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

// seeded is a mistake in a script, made on purpose.
type seeded struct{ script, old, new string }

// Each of these bugs, put into the scripts, must make the comparison with the model
// fail. Otherwise the model does not test what it seems to test.
var seededBugs = map[string]seeded{
	"evicts one too few":                {"produce", "evicted = depth - capacity\n    depth = capacity\n", "evicted = depth - capacity - 1\n    depth = capacity + 1\n"},
	"evicts the newest":                 {"produce", "redis.call('LTRIM', q, evicted, -1)", "redis.call('LTRIM', q, 0, -evicted - 1)"},
	"forgets to count evictions":        {"produce", "add.evicted = add.evicted + evicted", ""},
	"names what a sink may have":        {"produce", "if not to or (whole(to, 0) or head) < head then", "if true then"},
	"names an entry that stays":         {"produce", "redis.call('LRANGE', q, evicted - 1, evicted - 1)", "redis.call('LRANGE', q, evicted, evicted)"},
	"names entries at any time":         {"produce", "local sampling = now % 64 == 0", "local sampling = true"},
	"moves the due time of a lease":     {"produce", "complete = held == 0", "complete = true"},
	"accepts one partition too many":    {"produce", "if active >= max_active and", "if active > max_active and"},
	"one idempotency key too many":      {"produce", "kept_keys >= max_keys", "kept_keys > max_keys"},
	"keys end to count too soon":        {"produce", "math.ceil(at / 1000 / step)", "math.floor(at / 1000 / step)"},
	"keys count for ever":               {"produce", "if at * 1000 > now then", "if true then"},
	"sequences start again":             {"produce", "math.max(shard.now_us, shard.high_water)", "shard.now_us"},
	"gives a leased partition away":     {"claim", "if not due or due > now then", "if not due or due > now + 100 then"},
	"gives stale entries out":           {"claim", "now - max_age", "now - max_age - 50"},
	"expires fresh entries":             {"claim", "now - max_age", "now - max_age + 50"},
	"replays along other cuts":          {"claim", "string.gmatch(p.cuts or '', '%d+')", "string.gmatch(int(p.to), '%d+')"},
	"a replay is no new attempt":        {"claim", "attempt = p.attempt + 1", "attempt = p.attempt"},
	"lease in seconds, not ms":          {"claim", "int(now + lease)", "int(now + lease / 1000)"},
	"anyone may commit":                 {"commit", "token == '' or v[1] ~= token", "false"},
	"a commit counts twice":             {"commit", "hi <= p.from or lo ~= p.from or hi > p.to", "lo > p.from or hi > p.to"},
	"a commit skips entries":            {"commit", "lo ~= p.from or hi > p.to", "hi > p.to"},
	"expired counted as delivered":      {"commit", "add.expired = add.expired + expired", "add.delivered = add.delivered + expired"},
	"evicted while leased counts twice": {"commit", "add.reclaimed = add.reclaimed + math.max(0, math.min(p.head - lo, hi - lo))", ""},
	"dead letters without bound":        {"commit", "for _ = 1, n + 100 do", "for _ = 1, 0 do"},
	"ends without a high-water mark":    {"commit", "shard.high_water = math.max(shard.high_water, tail)", ""},
	"anyone may release":                {"release", "held[1] ~= token", "false"},
	"a release keeps the token":         {"release", "redis.call('HDEL', m, 'token', 'from')", ""},
	"repair expires what is leased":     {"repair", "if not (p.token and due > now) then", "if true then"},
	"repair leaves an orphan":           {"repair", "if rescore then", "if false then"},
	"lost entries are not counted":      {"repair", "add.lost = add.lost + missing", ""},

	"a purge counts nothing":           {"purge", "shard.add.evicted = shard.add.evicted + n", ""},
	"a purge drops what is too young":  {"purge", "is_stale(some[i], cutoff)", "is_stale(some[i], cutoff + 50)"},
	"a purge drops what is leased":     {"purge", "elseif p.token and due > shard.now then", "elseif false then"},
	"a purge of one drops for another": {"purge", "n, limit, room = n + 1, limit - 1,", "n, limit, room = n + 1, limit,"},
	"a dry purge drops":                {"purge", "n == 0 or drop == 0", "n == 0"},
	"a purge keeps the lapsed lease":   {"purge", "  end_lease(m)\n  redis", "  redis"},
	"a count begins at the oldest":     {"purge", "math.min(counted, length)", "0"},
	"a purge of all has no limit":      {"purge", "limit = limit - all", ""},

	"a discarded letter still counts": {"discard", "shard.was.dead_count - count", "shard.was.dead_count"},
	"a discard removes others":        {"discard", "and 1 or -1, ARGV[i + 1])", "and 1 or -1, ARGV[2])"},

	// A call of several partitions.
	"a rejection has no answer":                    {"produce", "if foreign then", "if false then"},
	"a rejection is the answer of the first":       {"produce", "result[#result + 1] = foreign", "table.insert(result, 2, foreign)"},
	"answers move up after a rejection":            {"repair", "result[#result + 1] = repaired or other", "result[#result + 1] = repaired"},
	"answers end at a rejection":                   {"release", "return held.err", "return nil"},
	"a rejection fails the whole call":             {"claim", "redis.pcall('LRANGE', q", "redis.call('LRANGE', q"},
	"dead letters are taken for a partition":       {"commit", "at = at + 6 + tonumber(ARGV[at + 5])", "at = at + 6"},
	"a rejected partition is counted as accepted":  {"produce", "if foreign then", "if foreign then add.accepted = add.accepted + k"},
	"a partition too many is counted as accepted":  {"produce", "return answer(0)", "add.accepted = add.accepted + k return answer(0)"},
	"one that comes twice is counted once":         {"produce", "add.accepted = add.accepted + k", "add.accepted = add.accepted + (due[name] and 0 or k) due[name] = true"},
	"partitions of the call itself are not active": {"produce", "active = active + 1", ""},
	"a call forgets what was counted before":       {"commit", "shard.was[class] + n", "n"},
	"a rejected produce moves the tail":            {"produce", "return before.err", "redis.pcall('HINCRBY', m, 'tail', k) return before.err"},
	"a rejected claim leases":                      {"claim", "return chunk.err", "redis.call('HSET', m, 'token', token) return chunk.err"},
	"a rejected commit ends the lease":             {"commit", "return length.err", "redis.call('HDEL', m, 'token') return length.err"},
	"a rejected repair ends the lease":             {"repair", "return nil, length.err", "redis.call('HDEL', m, 'token') return nil, length.err"},
	"the lease of one is written for another":      {"claim", "shard.due[#shard.due + 1] = name\n  leased(", "shard.due[#shard.due + 1] = ARGV[7]\n  leased("},
	"only one finished partition is forgotten":     {"commit", "redis.call('DEL', unpack(shard.ended_keys))", "redis.call('DEL', shard.ended_keys[1], shard.ended_keys[2])"},
	"the rest waits for another linger":            {"commit", "return math.min(now, tonumber(string.sub(oldest, 1, 13))) + linger", "return now + linger"},

	// Pauses.
	"a claim ignores the pause of a partition":      {"claim", "if is_paused then", "if false then"},
	"a claim ignores the pause of the namespace":    {"claim", "if all_paused then", "if false then"},
	"the pause of one is taken for another":         {"claim", "paused[i - 1] = v[i] and true", "paused[i] = v[i] and true"},
	"a claim of a paused partition leases it":       {"claim", "return answer(5, expired)", "answer(5, expired) redis.call('HSET', m, 'token', token) return"},
	"a paused partition stays in front":             {"claim", "shard.due[#shard.due + 1] = put_off(chunk[1])", "shard.due[#shard.due + 1] = now"},
	"it is put off beyond its expiry":               {"claim", "local stale = tonumber(string.sub(oldest, 1, 13)) + max_age + 1", "local stale = now + max_age"},
	"it is put off for ever":                        {"claim", "min(now + max_age, max(", "(10 * max_age + max("},
	"nothing expires while a partition is paused":   {"claim", "is_stale(chunk[n + 1], cutoff)", "not (shard.paused and true) and is_stale(chunk[n + 1], cutoff)"},
	"nothing expires while the namespace is paused": {"repair", "if not (p.token and due > now) then", "if not (p.token and due > now) and not shard.paused then"},
	"repair undoes what put a partition off":        {"repair", "elseif p.to or is_paused then", "elseif p.to then"},
	"a lapsed lease of a paused partition goes on":  {"claim", "if p.token then\n      end_lease(m) -- it lapsed\n    end", ""},
	"resume leaves the partition put off":           {"resume", "if due and due > now and not leased then", "if false then"},
	"resume takes a lease away":                     {"resume", "due > now and not leased then", "due > now then"},
	"resume ends all pauses":                        {"resume", "if left > 0 then", "if false then"},
	"a pause counts twice":                          {"pause", "if not old then", "if true then"},
	"a second pause begins anew":                    {"pause", "old and string.match(old, '^(%d+) ') or", ""},
	"one pause too many":                            {"pause", "(v[2] and 1 or 0) >= max_paused", "(v[2] and 1 or 0) > max_paused"},
	"a paused namespace counts as a partition":      {"pause", "count - (v[2] and 1 or 0) >= max_paused", "count >= max_paused"},

	// What the sink accepted of a batch.
	"done is ignored at expiry":              {"claim", "local done = count_done(p.done, p.to, p.head, p.head + n)", "local done = 0"},
	"done is ignored where it was evicted":   {"claim", "local evicted = count_done(p.done, p.to, p.to - #p.done, p.head)", "local evicted = 0"},
	"done is ignored where it vanished":      {"claim", "local lost = count_done(p.done, p.to, p.head, p.head + math.max(missing, 0))", "local lost = 0"},
	"a commit counts what was done again":    {"commit", "if p.done and p.to and (missing > 0 or not leased) then", "if p.done and p.to then"},
	"a commit keeps done of what it settled": {"commit", "write_done(m, keep_done(p.done, p.to, hi))", ""},
	"a release says done of other entries":   {"release", "write_done(m, keep_done(done, to, from))", "write_done(m, string.reverse(keep_done(done, to, from) or ''))"},
	"done is ignored where it was purged":    {"purge", "reconcile(shard, p, length - n, false)", ""},
}

// firstWalks are the first walks that find a bug, where that is not the first of all.
var firstWalks = map[string]int{
	"a claim ignores the pause of the namespace": 1, "a commit counts twice": 1, "a commit skips entries": 1,
	"a discarded letter still counts": 1, "a partition too many is counted as accepted": 1,
	"a purge drops what is too young": 1, "a purge of one drops for another": 1,
	"a rejected partition is counted as accepted": 1, "a rejected produce moves the tail": 1,
	"a rejection has no answer": 1, "a rejection is the answer of the first": 1, "accepts one partition too many": 1,
	"dead letters without bound": 1, "done is ignored where it was purged": 1, "ends without a high-water mark": 1,
	"moves the due time of a lease": 1, "partitions of the call itself are not active": 1,
	"replays along other cuts": 1, "resume takes a lease away": 1, "sequences start again": 1,
	"a commit counts what was done again": 2, "answers move up after a rejection": 2,
	"dead letters are taken for a partition": 2, "lost entries are not counted": 2, "names what a sink may have": 2,
	"it is put off beyond its expiry": 3, "a count begins at the oldest": 6, "done is ignored at expiry": 6,
	"nothing expires while a partition is paused": 6, "one pause too many": 6, "resume leaves the partition put off": 6,
	"a paused namespace counts as a partition": 9, "a purge drops what is leased": 9, "a purge of all has no limit": 9,
	"a rejected repair ends the lease": 9, "expires fresh entries": 9, "gives stale entries out": 9,
	"a discard removes others": 10, "a rejected claim leases": 10, "a rejected commit ends the lease": 10,
	"a rejection fails the whole call": 10, "a commit keeps done of what it settled": 11,
	"repair expires what is leased": 11, "done is ignored where it vanished": 13,
	"a lapsed lease of a paused partition goes on": 19, "only one finished partition is forgotten": 19,
	"the rest waits for another linger": 19, "keys end to count too soon": 34, "keys count for ever": 85,
	"a purge keeps the lapsed lease": 125,
}

func TestTheModelFindsEverySeededBug(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	for name, bug := range scripttest.Bugs(seededBugs, func(b seeded) string { return b.script }) {
		t.Run(name, func(t *testing.T) {
			found := false
			sources := modelScripts(t, func(name, text string) string {
				if name != bug.script {
					return text
				}
				found = strings.Contains(text, bug.old)
				return strings.ReplaceAll(text, bug.old, bug.new)
			})
			if !found {
				t.Fatalf("%s.lua no longer holds %q", bug.script, bug.old)
			}
			if err := sources[bug.script].Load(t.Context(), client).Err(); err != nil {
				t.Fatal(err) // it proves nothing
			}
			for seed := firstWalks[name]; seed < firstWalks[name]+10_000; seed++ {
				if red := numberedWalk(client, sources, seed); red != "" {
					t.Logf("walk %d: %.150s", seed, red)
					return
				}
			}
			t.Fatal("the model saw nothing")
		})
	}
}

// numberedWalk takes the walk of a seed on an empty server, and says what differs.
func numberedWalk(client *redis.Client, sources map[string]*redis.Script, seed int) string {
	client.FlushAll(context.Background())
	return rapid.Custom(func(t *rapid.T) (red string) {
		defer func() {
			if v := recover(); v != nil && red == "" {
				panic(v)
			}
		}()
		fail := func(format string, args ...any) {
			red = fmt.Sprintf(format, args...)
			panic(red)
		}
		walk(t, client, fmt.Sprint("w", seed), fail, sources)
		return ""
	}).Example(seed)
}
