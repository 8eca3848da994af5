package scripttest

import (
	"regexp"
	"slices"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

// ProbeTries checks that a permission probe tries every command that the scripts call: a
// missing right to another one would be found too late. They have at least min calls.
func ProbeTries(t *testing.T, probe *lua.Script, scripts []*lua.Script, min int) {
	t.Helper()
	var tried []string
	for _, m := range regexp.MustCompile(`try\('([A-Z]+)'`).FindAllStringSubmatch(probe.Source, -1) {
		tried = append(tried, m[1])
	}
	called := regexp.MustCompile(`(?:redis\.p?call\(|redis\.p?call, |read_all\()'([A-Z]+)'`)
	found := 0
	for _, s := range scripts {
		for _, m := range called.FindAllStringSubmatch(s.Source, -1) {
			found++
			if m[1] != "TIME" && !slices.Contains(tried, m[1]) { // every script runs TIME first
				t.Errorf("%s calls %s, which permission_probe does not try", s.Name, m[1])
			}
		}
	}
	if found < min {
		t.Errorf("only %d calls found: this proves nothing", found)
	}
}
