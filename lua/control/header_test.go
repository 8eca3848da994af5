package control_test

import (
	"testing"

	"github.com/spillway-io/spillway/lua/control"
	"github.com/spillway-io/spillway/lua/scripttest"
)

func TestEveryScriptDoesWhatItsHeaderDeclares(t *testing.T) {
	t.Parallel()
	scripttest.EveryScript(t, len(control.All()), scripttest.Includes(t, "../include"))
}
