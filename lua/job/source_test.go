package job_test

import (
	"regexp"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
)

// The embedded store's Lua keeps the old value of x in `x = not f() and y`.
func TestNoScriptHasWhatTheEmbeddedStoreMiscompiles(t *testing.T) {
	t.Parallel()
	wrong := regexp.MustCompile(`(?m)^ *(\w+) = (?:not )?\w+\(.*\) and .*$|^ *(\w+) = (\w+) and not .*$|^ *\w+ = not .* and .*$`)
	for _, s := range luajob.All() {
		for _, line := range wrong.FindAllString(s.Source, -1) {
			t.Errorf("%s: %s", s.Name, line)
		}
	}
	if !wrong.MatchString("  named = not foreign(named) and named > 0\n") || !wrong.MatchString("x = x and not a and not b") {
		t.Error("the pattern finds nothing: this proves nothing")
	}
}
