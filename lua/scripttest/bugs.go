package scripttest

import (
	"maps"
	"slices"
	"testing"
)

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
