package control_test

import (
	"testing"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/control"
	"github.com/spillway-io/spillway/lua/scripttest"
)

func TestEveryScriptDoesWhatItsHeaderDeclares(t *testing.T) {
	t.Parallel()
	scripttest.EveryScript(t, len(control.All()), scripttest.Includes(t, ".."))
}

// The store tries the rights of its user with that probe before anything else, so these
// scripts must need no others.
func TestNoScriptNeedsMoreRightsThanThePermissionProbeTries(t *testing.T) {
	t.Parallel()
	scripttest.ProbeTries(t, lua.PermissionProbe, control.All(), 5)
}
