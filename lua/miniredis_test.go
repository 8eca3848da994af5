package lua_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
)

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
