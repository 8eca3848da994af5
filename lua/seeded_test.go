package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/lua/redistest"
)

// A promise that no test can break is not tested: each of these bugs, put into
// the scripts, must turn the model red.
var seededBugs = map[string]struct{ script, old, new string }{
	"evicts one too few":                {"produce", "before + k - capacity)", "before + k - capacity - 1)"},
	"evicts the newest":                 {"produce", "redis.call('LTRIM', q, evicted, -1)", "redis.call('LTRIM', q, 0, -evicted - 1)"},
	"forgets to count evictions":        {"produce", "redis.call('HINCRBY', ledger, 'evicted', evicted)", ""},
	"moves the due time of a lease":     {"produce", "arm = redis.call('HEXISTS', m, 'to') == 0", "arm = true"},
	"admits one partition too many":     {"produce", "if active >= most then", "if active > most then"},
	"sequences start again":             {"produce", "math.max(now_us, mark)", "now_us"},
	"gives a leased partition away":     {"claim", "elseif due > now then", "elseif due > now + 100 then"},
	"gives stale entries out":           {"claim", "now - max_age", "now - max_age - 50"},
	"expires fresh entries":             {"claim", "now - max_age", "now - max_age + 50"},
	"replays along other cuts":          {"claim", "for cut in string.gmatch(p.cuts, '%d+') do", "for cut in string.gmatch(int(p.to), '%d+') do"},
	"a replay is no new attempt":        {"claim", "result[5] = p.attempt + 1", "result[5] = p.attempt"},
	"lease in seconds, not ms":          {"claim", "int(now + lease), partition", "int(now + lease / 1000), partition"},
	"anyone may commit":                 {"commit", "redis.call('HGET', m, 'token') ~= token", "false"},
	"a commit counts twice":             {"commit", "elseif hi <= p.from then", "elseif false then"},
	"a commit skips entries":            {"commit", "elseif lo ~= p.from or hi > p.to then", "elseif hi > p.to then"},
	"expired counted as delivered":      {"commit", "HINCRBY', ledger, class,", "HINCRBY', ledger, class == 'expired' and 'delivered' or class,"},
	"evicted while leased counts twice": {"commit", "redis.call('HINCRBY', ledger, 'reclaimed', int(reclaimed))", ""},
	"dead letters without bound":        {"commit", "if over > 0 then", "if over > 1 then"},
	"dies without a high-water mark":    {"commit", "if tail > mark then", "if false then"},
	"anyone may release":                {"release", "held[1] ~= token", "false"},
	"a release keeps the token":         {"release", "redis.call('HDEL', m, 'token', 'lease', 'from')", ""},
	"repair expires what is leased":     {"repair", "if p.token and due > now then", "if false then"},
	"repair leaves an orphan":           {"repair", "redis.call('ZADD', ready, int(due), partition)", ""},
	"lost entries are not counted":      {"repair", "redis.call('HINCRBY', ledger, 'lost', int(missing))", ""},
}

func TestModelTurnsRedOnEverySeededBug(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	for name, bug := range seededBugs {
		t.Run(name, func(t *testing.T) {
			sources := modelSources(t)
			broken := strings.ReplaceAll(sources[bug.script], bug.old, bug.new)
			if broken == sources[bug.script] {
				t.Fatalf("%s.lua no longer holds %q", bug.script, bug.old)
			}
			sources[bug.script] = broken
			var red string
			for run := 0; red == "" && run < 100; run++ {
				rapid.Check(t, func(rt *rapid.T) {
					if red != "" {
						return
					}
					defer func() {
						if v := recover(); v != nil && red == "" {
							panic(v)
						}
					}()
					prefix := fmt.Sprintf("%s%d", strings.ReplaceAll(name, " ", "-"), rapid.Int().Draw(rt, "run"))
					h := &hands{rt, client, prefix + ":", "clock:" + prefix, func(format string, args ...any) {
						red = fmt.Sprintf(format, args...)
						panic(red)
					}}
					client.FlushAll(context.Background())
					h.walk(sources)
				})
			}
			if red == "" {
				t.Fatal("the model saw nothing")
			}
		})
	}
}
