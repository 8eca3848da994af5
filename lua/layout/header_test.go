package layout_test

import (
	"testing"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/layout"
	"github.com/spillway-io/spillway/lua/scripttest"
)

func TestEveryScriptDoesWhatItsHeaderDeclares(t *testing.T) {
	t.Parallel()
	scripttest.EveryScript(t, len(layout.All()), scripttest.Includes(t, ".."))
}

func TestNoScriptHasWhatTheEmbeddedStoreMiscompiles(t *testing.T) {
	t.Parallel()
	scripttest.NothingMiscompiled(t, layout.All())
}

// The store tries the rights of its user with that probe before anything else, so these
// scripts must need no others.
func TestNoScriptNeedsMoreRightsThanThePermissionProbeTries(t *testing.T) {
	t.Parallel()
	scripttest.ProbeTries(t, lua.PermissionProbe, layout.All(), 5)
}
