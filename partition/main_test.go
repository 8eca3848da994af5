package partition_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a Store starts outlives its Close.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
