package control_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/control"
	"github.com/spillway-io/spillway/lua/scripttest"
)

func TestEveryScriptDoesWhatItsHeaderDeclares(t *testing.T) {
	t.Parallel()
	scripttest.EveryScript(t, len(control.All()), scripttest.Includes(t, "../include"))
}

// The store tries the rights of its user with that probe before anything else, so these
// scripts must need no others.
func TestNoScriptNeedsMoreRightsThanThePermissionProbeTries(t *testing.T) {
	t.Parallel()
	for _, s := range control.All() {
		for _, m := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllStringSubmatch(s.Source, -1) {
			if m[1] != "TIME" && !strings.Contains(lua.PermissionProbe.Source, "try('"+m[1]+"'") {
				t.Errorf("%s calls %s, which permission_probe does not try", s.Name, m[1])
			}
		}
	}
}
