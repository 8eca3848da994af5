package job_test

import (
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/scripttest"
)

func TestEveryScriptDoesWhatItsHeaderDeclares(t *testing.T) {
	t.Parallel()
	scripttest.EveryScript(t, len(luajob.All()), scripttest.Includes(t, "..", "."))
}
