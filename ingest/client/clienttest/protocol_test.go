package clienttest

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestTheProtocolListsEveryCase(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for heading, names := range map[string][]string{
		"## Cases of events\n": slices.Sorted(maps.Keys(cases)),
		"## Cases of jobs\n":   slices.Sorted(maps.Keys(jobCases)),
	} {
		_, list, _ := strings.Cut(string(text), heading)
		list, _, _ = strings.Cut(list, "\n##")
		var listed []string
		for line := range strings.Lines(list) {
			if name, found := strings.CutPrefix(strings.TrimRight(line, "\n"), "    "); found {
				listed = append(listed, name)
			}
		}
		if slices.Sort(listed); !slices.Equal(listed, names) {
			t.Errorf("%slists %q, want %q", heading, listed, names)
		}
	}
	if n := len(strings.Fields(string(text))); n > 900 {
		t.Errorf("%d words, want 900 at most", n)
	}
}
