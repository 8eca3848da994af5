package scripttest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Snapshot is every key that matches the pattern with its value, a line each, and whether it
// expires where that is asked for. It takes three exchanges: a key at a time took most of the time
// of the tests that compare what a call left.
func Snapshot(tb testing.TB, c *redis.Client, pattern string, expires bool) string {
	tb.Helper()
	ctx := context.Background()
	keys, err := c.Keys(ctx, pattern).Result()
	if err != nil {
		tb.Fatal(err)
	}
	slices.Sort(keys)
	pipe, types, values, left := c.Pipeline(), map[string]*redis.StatusCmd{}, map[string]redis.Cmder{}, map[string]*redis.DurationCmd{}
	for _, key := range keys {
		types[key], left[key] = pipe.Type(ctx, key), pipe.PTTL(ctx, key)
	}
	_, _ = pipe.Exec(ctx) // the values have it
	for _, key := range keys {
		switch types[key].Val() {
		case "hash":
			values[key] = pipe.HGetAll(ctx, key)
		case "list":
			values[key] = pipe.LRange(ctx, key, 0, -1)
		case "zset":
			values[key] = pipe.ZRangeWithScores(ctx, key, 0, -1)
		default:
			values[key] = pipe.Get(ctx, key)
		}
	}
	_, _ = pipe.Exec(ctx) // one that ended meanwhile has no value
	var b strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&b, "%s %s", key, types[key].Val())
		switch v := values[key].(type) {
		case *redis.MapStringStringCmd:
			fmt.Fprintf(&b, " %q", v.Val())
		case *redis.StringSliceCmd:
			fmt.Fprintf(&b, " %q", v.Val())
		case *redis.ZSliceCmd:
			fmt.Fprintf(&b, " %v", v.Val())
		case *redis.StringCmd:
			fmt.Fprintf(&b, " %q", v.Val())
		}
		if expires {
			fmt.Fprintf(&b, " expires=%v", left[key].Val() > 0)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Bugs are the bugs of a table that are put into scripts to see whether a model finds them: with
// -short three of each script, otherwise all.
func Bugs[B any](all map[string]B, script func(B) string) map[string]B {
	if !testing.Short() {
		return all
	}
	some, count := map[string]B{}, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if of := script(all[name]); count[of] < 3 {
			some[name] = all[name]
			count[of]++
		}
	}
	return some
}
