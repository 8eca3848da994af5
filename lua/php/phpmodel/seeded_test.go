package phpmodel

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

// Each of these mistakes in the rules must break an invariant; the word behind it is one
// that the break names. Otherwise the walks prove less than they seem to.
var wrongRules = map[string]string{
	"twins collapse":                    "I1",
	"a notification is forgotten":       "I7",
	"notifications stay":                "I7",
	"a key is not kept":                 "I1",
	"delayed ones come early":           "I5",
	"anybody holds a lease":             "I",
	"an ended lease stays reserved":     "I",
	"what PHP moved lapses again":       "I1",
	"a lapse does not count":            "I4",
	"nothing lapses":                    "left",
	"a running reservation is taken":    "I",
	"what PHP let lapse is not counted": "I4",
	"sequences start again":             "I",
	"a lease ends on a whole second":    "I9",
	"a claim does not count":            "I4",
	"what is no JSON is dropped":        "I1",
	"nothing is reserved":               "I",
	"a touch forgets the lease":         "I",
	"a requeue counts":                  "I4",
	"a nack does not count":             "I4",
	"any token reverts":                 "I",
	"a respawned one stays dead":        "I",
	"a respawn keeps its attempts":      "I4",
	"a purge forgets to count leases":   "I2",
	"a purge takes PHP's reservations":  "I",
	"an unknown claim is not reverted":  "unknown",
}

// firstInLockstep are the first walks that find a bug in lockstep, where that is not the first of all.
var firstInLockstep = map[string]int64{
	"a nack does not count": 1, "a purge forgets a payload too many": 1, "a purge takes a delayed one too many": 1,
	"a touched lease ends on one": 1, "look takes PHP's for ours": 1, "peek shows the last": 1,
	"the dead are not skipped": 1, "twins collapse": 1, "what lapsed is not counted": 1,
	"get shows the counted payload": 2, "notifications stay": 2, "one notification for all": 2,
	"what is no JSON is respawned":        3,
	"PHP's reservations are always taken": 4, "a purge keeps notifications": 5, "a purge keeps what is leased": 9,
	"a purged lease has not lapsed": 9, "anybody settles": 17, "get shows leases that are gone": 23,
	"a lapse takes what PHP has": 32,
}

func TestWalksFindEveryWrongRule(t *testing.T) {
	t.Parallel()
	for bug, word := range wrongRules {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			for seed := range int64(3000) {
				q := newQueue(flavorOf(seed), bug)
				if err := newWorld(seed, q, q, bug).walk(250); err != nil {
					t.Logf("walk %d: %.150v", seed, err)
					if !strings.Contains(err.Error(), word) {
						t.Errorf("it names another invariant than %s", word)
					}
					return
				}
			}
			t.Error("3,000 walks kept every invariant")
		})
	}
}

// seeded is a mistake in a script, made on purpose.
type seeded struct{ script, old, new string }

// Each of these, put into the text of a script, must make the walks in lockstep differ.
var seededBugs = map[string]seeded{
	"a key is not looked at":                 {"publish", "if stored then", "if false then"},
	"a key is not written":                   {"publish", "redis.call('SET', known", "redis.call('EXISTS', known"},
	"one notification for all":               {"publish", "for i = 1, #payloads do\n      ones", "for i = 1, 1 do\n      ones"},
	"a delay is in seconds":                  {"publish", "seconds(now + delay)", "seconds(now + delay * 1000)"},
	"twins collapse":                         {"publish", "redis.call('ZADD', set, 'NX', score, payload) == 1", "redis.call('ZADD', set, score, payload) >= 0"},
	"a publish is not counted":               {"publish", "account.published = #payloads", ""},
	"the newest is claimed first":            {"claim", "redis.call('LPOP', keys.ready)", "redis.call('RPOP', keys.ready)"},
	"sequences start again":                  {"claim", "math.max(now_us, account.seq + 1)", "now_us"},
	"a lease ends on a whole second":         {"claim", "return ms % 1000 == 0 and ms + 1 or ms", "return ms"},
	"a touched lease ends on one":            {"settle", "return ms % 1000 == 0 and ms + 1 or ms", "return ms"},
	"a delivery is not counted":              {"claim", "write_digits(p, from, to, value + 1) or p", "write_digits(p, from, to, value) or p"},
	"what is no JSON is dropped":             {"claim", "letters[#letters + 1], letters[#letters + 2] = ref, 'unreadable 0 ' .. p", ""},
	"notifications stay":                     {"claim", "redis.call('LTRIM', keys.notify, popped, -1)", ""},
	"the lane's last claim is forgotten":     {"claim", "#handed + 1] = ref", "#handed + 1] = 0"},
	"PHP's reservations are always taken":    {"claim", "if steal and not more then", "if true then"},
	"delayed ones wait for ever":             {"claim", "move_due(keys, keys.delayed, now)", "0"},
	"delayed ones come early":                {"claim", "'-inf', seconds(now)", "'-inf', seconds(now + 1000)"},
	"what lapsed is not counted":             {"claim", "elseif not on_release then", "elseif true then"},
	"a lapse takes what PHP has":             {"claim", "math.abs(score * 1000 - deadline) < 0.5", "true"},
	"a lapse forgets the payload":            {"claim", "push(keys, ready)\n  return lapsed", "return lapsed"},
	"the clock is a ms ahead":                {"claim", "local now, now_us = time()", "local now, now_us = time() now = now + 1"},
	"anybody settles":                        {"settle", "math.abs(score * 1000 - deadline) < 0.5", "true"},
	"a touch forgets the reservation":        {"settle", "redis.call('ZADD', keys.reserved, seconds(till), lease.member)", ""},
	"a touch forgets the lease":              {"settle", "redis.call('ZADD', keys.leases, int(till), seq)", "redis.call('ZADD', keys.leases, int(lease.deadline), seq)"},
	"a requeue goes to the tail":             {"settle", "push(keys, front, true)", "push(keys, front)"},
	"requeued jobs change places":            {"settle", "for i = #payloads, 1, -1 do", "for i = 1, #payloads do"},
	"a requeue counts":                       {"settle", "front[#front + 1] = original(lease)", "front[#front + 1] = lease.member"},
	"a nack does not count":                  {"settle", "elseif not on_release then", "elseif true then"},
	"a dead letter says the wrong reason":    {"settle", "exhaust = 'nacked'", "exhaust = 'buried'"},
	"a count is repeated":                    {"settle", "lease.digits > 0 and 6 or ", ""},
	"an appended delivery is not counted":    {"settle", "on_release and n or n + 1", "n"},
	"counted digits are not changed":         {"settle", "tonumber(number) + 1), #p", "tonumber(number)), #p"},
	"a count is forgotten":                   {"settle", "redis.call('HSET', keys.held, seq, record(p, member, at, from, twin == 0 and tail or 0))", ""},
	"what PHP let lapse is not counted":      {"claim", "p = write_digits(p, from, to, value + 1)", "p = write_digits(p, from, to, value)"},
	"what PHP let lapse is handed out":       {"claim", "hand_out(p, -2)", "hand_out(p, -1)"},
	"an uncounted lease counts as it lapses": {"claim", "if lease.digits == 0 then", "if false then"},
	"an ack is not counted":                  {"settle", "account[name] = account[name] + 1", ""},
	"an ended lease stays reserved":          {"settle", "redis.call('ZREM', keys.reserved, lease.member)", ""},
	"any token reverts":                      {"revert", "string.sub(text, 1, #prefix) ~= prefix", "false"},
	"a revert turns the jobs":                {"revert", "for i = #payloads, 1, -1 do", "for i = 1, #payloads do"},
	"a revert counts":                        {"revert", "lease.member and original(lease)", "lease.member"},
	"a revert can be repeated":               {"revert", "redis.call('DEL', out)", "redis.call('GET', out)"},
	"a revert keeps the lease":               {"revert", "redis.call('ZREM', keys.leases, seq)", ""},
	"a respawn keeps its attempts":           {"respawn", "number and write_digits(payload, from, from + #number - 1, first) or payload", "payload"},
	"what is no JSON is respawned":           {"respawn", "if reason == 'unreadable' then", "if false then"},
	"a respawn skips nothing":                {"respawn", "int(skip), int(skip + count - 1)", "0, int(count - 1)"},
	"a respawned one stays dead":             {"respawn", "in_pieces(redis.call, 'ZREM', keys.dead, gone)", ""},
	"a purge forgets a payload too many":     {"purge", "redis.call('LTRIM', keys.ready, looked, -1)", "redis.call('LTRIM', keys.ready, looked + 1, -1)"},
	"a purge keeps notifications":            {"purge", "redis.call('LTRIM', keys.notify, looked, -1)", ""},
	"a purge keeps what is leased":           {"purge", "redis.call('ZREM', keys.reserved, lease.member)", ""},
	"a purge takes a delayed one too many":   {"purge", "count - looked - 1)\n  account", "count - looked)\n  account"},
	"a purged lease has not lapsed":          {"purge", "account.lapsed, looked, bytes = account.lapsed + 1", "account.lapsed, looked, bytes = account.lapsed"},
	"look takes PHP's for ours":              {"look", "redis.call('ZCARD', KEYS[4])", "redis.call('ZCARD', KEYS[3])"},
	"peek shows the last":                    {"peek", "redis.call('LINDEX', KEYS[1], 0)", "redis.call('LINDEX', KEYS[1], -1)"},
	"get shows leases that are gone":         {"get", "if lease and lease.member then", "if lease then"},
	"get shows the counted payload":          {"get", "'', original(lease) }", "'', lease.member }"},
	"the dead are not skipped":               {"dead_page", "int(skip), int(skip + count - 1)", "0, int(count - 1)"},
}

func TestLockstepFindsEverySeededBug(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t, "--databases", "128").Addr
	var databases atomic.Int64
	for name, bug := range scripttest.Bugs(seededBugs, func(b seeded) string { return b.script }) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := false
			texts := testTexts(t, func(name, text string) string {
				if name != bug.script {
					return text
				}
				found = strings.Contains(text, bug.old)
				return strings.Replace(text, bug.old, bug.new, 1)
			})
			if !found {
				t.Fatalf("%s.lua no longer holds %q", bug.script, bug.old)
			}
			c := redis.NewClient(&redis.Options{Addr: addr, DB: int(databases.Add(1)), DisableIdentity: true})
			t.Cleanup(func() { _ = c.Close() })
			for n := range int64(300) {
				seed := firstInLockstep[name] + n
				if _, err := walkInLockstep(c, texts, seed); err != nil {
					if strings.Contains(err.Error(), "compiling script") {
						t.Fatal(err)
					}
					t.Logf("walk %d: %.150v", seed, err)
					return
				}
			}
			t.Error("300 walks saw nothing")
		})
	}
}
