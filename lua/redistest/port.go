package redistest

import (
	"testing"

	"github.com/spillway-io/spillway/lua/proc"
)

// FreeAddr is proc.FreeAddr; without a free one the test fails.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	addr, err := proc.FreeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	return addr
}
