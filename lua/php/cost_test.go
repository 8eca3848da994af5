package php_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/lua/redistest"
)

// counting wraps a script: it answers how many bytes went to and came from Redis's commands and
// out of string.sub, then the answer itself.
const counting = `
local bytes, real, text = 0, redis, string
local function count(v)
  if type(v) == 'table' then
    for _, x in ipairs(v) do
      count(x)
    end
  elseif type(v) == 'string' then
    bytes = bytes + #v
  end
  return v
end
local function through(call)
  return function(...)
    count({ ... })
    return count(call(...))
  end
end
local redis = { call = through(real.call), pcall = through(real.pcall), error_reply = real.error_reply }
local string = setmetatable({ sub = function(...) return count(text.sub(...)) end }, { __index = text })
local reply = (function()
%s
end)()
return { bytes, reply }`

// moved runs a script, and gives the bytes that it moved, and its answer.
func (q *queue) moved(script *lua.Script, keys []string, argv ...any) (bytes int64, reply []any) {
	q.t.Helper()
	wrapped := q.must(&lua.Script{Name: script.Name, Source: fmt.Sprintf(counting, script.Source)}, keys, argv...)
	return num(wrapped[0]), wrapped[1].([]any)
}

// onRedis is a queue of one flavor on a real server.
func onRedis(t *testing.T, f flavor) *queue {
	c := redis.NewClient(&redis.Options{Addr: redistest.Shared(t), DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return newQueue(t, c, f)
}

// While a script copies a payload Redis serves nobody. So each verb says how often it does.
func TestAPayloadIsCopiedAFewTimesACall(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	half := strings.Repeat("x", size/2)
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			q := onRedis(t, f)
			copies := func(verb string, want int64, script *lua.Script, keys []string, argv ...any) []any {
				t.Helper()
				bytes, reply := q.moved(script, keys, argv...)
				if got := bytes / size; got != want {
					t.Errorf("%s copies a payload %d times, want %d", verb, got, want)
				}
				return reply
			}
			for _, row := range []struct {
				verb   string
				number int
				want   int64
			}{{"ack", 0, 4}, {"touch", 60_000, 4}, {"nack", 0, 5}, {"requeue", 0, 6}, {"bury", 0, 5}, {"nack", 5000, 5}} {
				p := fmt.Sprintf(`{"n":"%s %d","a":"%s","attempts":%d,"b":"%s"}`, row.verb, row.number, half, f.first, half)
				q.push(0, p)
				keys, argv := q.claimCall("l", "t", 1)
				seq := num(copies("claim", 3, luaphp.Claim, keys, argv...)[5])
				keys, argv = q.settleCall(seq, "digits", strings.Index(p, `"attempts":`)+len(`"attempts":`)+1)
				want := int64(7)
				if f.onRelease == 1 {
					want = 6
				}
				copies("digits", want, luaphp.Settle, keys, argv...)
				keys, argv = q.settleCall(seq, row.verb, row.number)
				want = row.want
				if f.onRelease == 1 && row.verb == "nack" {
					want++ // it is counted now
				}
				copies(row.verb, want, luaphp.Settle, keys, argv...)
				q.do("del", q.base, q.base+":notify")
			}
		})
	}
}

// A call moves 64 KiB of payloads and one more from each place, in whichever order small and large ones come.
func TestACallMovesABoundedNumberOfBytes(t *testing.T) {
	t.Parallel()
	const size, budget = 60_000, 64 << 10
	large := strings.Repeat("x", size)
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			q := onRedis(t, f)
			bounded := func(what string, places int64, bytes int64) {
				t.Helper()
				if most := places * (budget + size + 4096); bytes > most {
					t.Errorf("%s: a call moves %d bytes, want %d at most", what, bytes, most)
				}
			}
			member := func(i int) string {
				if i%16 == 0 {
					return fmt.Sprintf(`{"n":%d,"attempts":%d}`, i, f.first)
				}
				return fmt.Sprintf(`{"n":%d,"a":"%s","attempts":%d,"b":1}`, i, large, f.first)
			}
			for i := range 64 {
				q.do("zadd", q.base+":delayed", i+1, member(i))
				q.do("zadd", q.base+":reserved", i+1, member(64+i))
			}
			q.bytes = budget
			var seqs []any
			for range 200 {
				keys, argv := q.claimCall("l", "t", 100)
				bytes, reply := q.moved(luaphp.Claim, keys, argv...)
				bounded("claim", 14, bytes)
				if len(reply) == 5 {
					break
				}
				for i := 5; i < len(reply); i += 4 {
					seqs = append(seqs, reply[i])
				}
			}
			q.same("claimed", len(seqs), 128)
			for len(seqs) > 0 {
				var jobs []any
				for _, seq := range seqs {
					jobs = append(jobs, seq, "bury", 0)
				}
				keys, argv := q.settleCall(jobs...)
				bytes, reply := q.moved(luaphp.Settle, keys, argv...)
				bounded("settle", 6, bytes)
				for len(seqs) > 0 && num(reply[1]) == 3 {
					seqs, reply = seqs[1:], append(reply[:1:1], append(reply[2:], int64(5))...)
				}
			}
			for left := int64(128); left > 0; {
				keys, argv := q.respawnCall("respawn", 0, 100)
				bytes, reply := q.moved(luaphp.Respawn, keys, argv...)
				bounded("respawn", 6, bytes)
				left = num(reply[3])
			}
		})
	}
}
