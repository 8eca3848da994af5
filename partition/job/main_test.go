package job_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Every goroutine of a Store ends with Close, except the client's own probe of a
// server that is down, which ends within a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
