package job

import (
	"fmt"
	"math"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
)

// Some rules stand in the scripts and here: whoever changes one of them changes both.
func TestTheScriptsHaveTheBoundsOfTheStore(t *testing.T) {
	t.Parallel()
	for _, bound := range []struct{ script, want string }{
		{luajob.Publish.Source, fmt.Sprintf("local rest = %d -- ms until the head", headEvery)},
		{luajob.Claim.Source, fmt.Sprintf("ttr > %.0e ", float64(leaseMS(math.MaxInt64)))},
		{luajob.Settle.Source, fmt.Sprintf("ms > %.0e ", float64(leaseMS(math.MaxInt64)))},
	} {
		if want := strings.ReplaceAll(bound.want, "e+", "e"); !strings.Contains(bound.script, want) {
			t.Errorf("the script has not %q", want)
		}
	}
}
