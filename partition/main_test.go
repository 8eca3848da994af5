package partition_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a Store starts outlives its Close, but for the client's own probe
// of a server that is gone, which notices within a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
