package main

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/spillway-io/spillway/ingest"
)

// Not parallel: the settings are the process's.
func TestTheEnvironmentHasTheLastWordOnCollections(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	for _, c := range []struct {
		env         map[string]string
		wantPercent int
		wantLimit   int64
	}{
		{nil, 400, 256<<20 + 128<<20 + 4096*(64<<10)},
		{map[string]string{"GOGC": "50", "GOMEMLIMIT": "1GiB"}, 100, math.MaxInt64},
	} {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(math.MaxInt64)
		tuneGC(process{lookupEnv: func(key string) (string, bool) { v, ok := c.env[key]; return v, ok }}, ingest.DefaultConfig())
		if got := debug.SetMemoryLimit(-1); got != c.wantLimit {
			t.Errorf("%v: memory limit %d, want %d", c.env, got, c.wantLimit)
		}
		if got := debug.SetGCPercent(100); got != c.wantPercent {
			t.Errorf("%v: GC percent %d, want %d", c.env, got, c.wantPercent)
		}
	}
}
