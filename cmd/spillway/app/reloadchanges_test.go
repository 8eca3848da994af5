package app

import (
	"fmt"
	"testing"
)

func TestChangesOfAMapAreInTheOrderOfItsKeys(t *testing.T) {
	t.Parallel()
	before := map[string]int{"b": 1, "c": 2, "d": 3, "e": 5}
	after := map[string]int{"a": 1, "c": 2, "d": 4, "e": 6}
	compare := func(at, key string, old, now int) []change {
		return fieldChanges(at+".", field{"size", old, now}, field{key, old, now})
	}
	for _, c := range []struct {
		before, after map[string]int
		want          string
	}{
		{before, after, "[at.a: added at.b: removed at.d.size at.d.d at.e.size at.e.e]"},
		{nil, before, "[at.b: added at.c: added at.d: added at.e: added]"},
		{before, nil, "[at.b: removed at.c: removed at.d: removed at.e: removed]"},
		{nil, nil, "[]"},
	} {
		var texts []string
		for _, change := range mapChanges("at.", c.before, c.after, compare) {
			texts = append(texts, change.text)
		}
		if got := fmt.Sprint(texts); got != c.want {
			t.Errorf("%v to %v: got %s, want %s", c.before, c.after, got, c.want)
		}
	}
}
