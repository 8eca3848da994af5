package jobmodel_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/job/jobmodel"
	"github.com/spillway-io/spillway/lua/scripttest"
)

// scripts are the Lua scripts on one shard of a server, with a clock that the test
// moves, and with wakes in a list instead of on channels.
type scripts struct {
	client *redis.Client
	prefix string
	source map[string]*redis.Script
	now    int64           // µs
	stored []string        // names of keyed publishes
	lanes  map[string]bool // that claimed
}

func (s *scripts) key(name string) string { return s.prefix + name }

// testTexts are the scripts with another clock and another wake. change may be nil.
func testTexts(t testing.TB, change func(name, text string) string) map[string]*redis.Script {
	t.Helper()
	clock := scripttest.Includes(t, "../..")["time"]
	const send = "redis.pcall(command, channel .. queue, int(pushed))"
	texts := map[string]*redis.Script{}
	for _, script := range luajob.All() {
		text := strings.ReplaceAll(script.Source, clock, `
local function time()
  local us = tonumber(redis.call('GET', 'clock'))
  return math.floor(us / 1000), us
end
`)
		text = strings.ReplaceAll(text, send, "redis.call('RPUSH', 'wakes', command .. ' ' .. queue .. ' ' .. int(pushed))")
		other := strings.Contains(text, "'TIME'") || strings.Contains(text, "redis.pcall(command")
		if other && script != luajob.PermissionProbe {
			t.Fatalf("%s: clock or wake have another text now", script.Name)
		}
		if change != nil {
			text = change(script.Name, text)
		}
		texts[script.Name] = redis.NewScript(text)
	}
	return texts
}

func (s *scripts) call(script *lua.Script, keys []string, argv ...any) []any {
	ctx := context.Background()
	v, err := s.source[script.Name].Run(ctx, s.client, keys, argv...).Result()
	if err != nil {
		panic(jobmodel.Broken("%s: %v", script.Name, err))
	}
	return v.([]any)
}

func (s *scripts) SetNow(us int64) {
	s.now = us
	s.client.Set(context.Background(), "clock", us, 0)
}

func (s *scripts) Vanish(ref jobmodel.Ref) {
	s.client.HDel(context.Background(), s.key("j:"+ref.Queue), fmt.Sprint(ref.Seq))
}

func (s *scripts) Unlist(ref jobmodel.Ref) {
	ctx, member := context.Background(), fmt.Sprintf("%d %s", ref.Seq, ref.Queue)
	s.client.LRem(ctx, s.key("r:"+ref.Queue), 0, ref.Seq)
	s.client.ZRem(ctx, s.key("delay"), member)
	s.client.ZRem(ctx, s.key("lease"), member)
}

// numbered gives each queue a number, from 1, in the order of appearance.
type numbered struct {
	names  []string
	number map[string]int
}

func (n *numbered) add(queue string) int {
	if n.number == nil {
		n.number = map[string]int{}
	}
	if n.number[queue] == 0 {
		n.names = append(n.names, queue)
		n.number[queue] = len(n.names)
	}
	return n.number[queue]
}

// argv are the names, and for each 1 or 0 where flag is given.
func (n *numbered) argv(flag func(queue string) bool) []any {
	argv := []any{len(n.names)}
	for _, name := range n.names {
		argv = append(argv, name)
	}
	if flag == nil {
		return argv
	}
	for _, name := range n.names {
		one := 0
		if flag(name) {
			one = 1
		}
		argv = append(argv, one)
	}
	return argv
}

func (s *scripts) keys(names []string, shard string, kinds string) []string {
	var keys []string
	for _, name := range strings.Fields(shard) {
		keys = append(keys, s.key(name))
	}
	for _, name := range names {
		for _, kind := range kinds {
			keys = append(keys, s.key(string(kind)+":"+name))
		}
	}
	return keys
}

const shardKeys = "ledger lease attempts queues delay tombstones"

func number(v any) int64 {
	switch x := v.(type) {
	case int64:
		return x
	case string:
		n, err := strconv.ParseInt(x, 10, 64)
		if err != nil {
			panic(jobmodel.Broken("%v", err))
		}
		return n
	}
	panic(jobmodel.Broken("%T is no number", v))
}
