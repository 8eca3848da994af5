package lua_test

import (
	"flag"
	"os"
	"testing"
)

// With -short rapid takes a fifth of the walks, and halves their steps, by which the walk of a seed
// would be another one. So they stay as long.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		_ = flag.Set("rapid.steps", "60")
	}
	os.Exit(m.Run())
}
