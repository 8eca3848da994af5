package job_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	luajob "github.com/spillway-io/spillway/lua/job"
)

// Every goroutine of a Store ends with Close, except the client's own probe of a
// server that is down, which ends within a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

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
