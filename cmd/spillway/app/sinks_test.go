package app

import (
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink/null"
)

func TestSinksOfAnotherModuleAreCheckedBeforeTheyAreAdded(t *testing.T) {
	t.Parallel()
	before := len(sinkTypes)
	for want, more := range map[string]SinkType{
		"scheme null: already":  {"null:", []string{"null"}, null.New},
		"lacks its form":        {"", []string{"mine"}, null.New},
		`"mine:" lacks`:         {"mine:", nil, null.New},
		"schemes or its opener": {"mine:", []string{"mine"}, nil},
		"scheme two: already":   {"two:", []string{"two", "two"}, null.New},
	} {
		if err := addSinks([]SinkType{more}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if len(sinkTypes) != before {
		t.Error("a sink with an error was added")
	}
}
