package app

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/ingest"
)

// wantMemory is the most that ingest holds with its defaults, in bytes.
var wantMemory = ingest.DefaultConfig().MaxMemory()

// Not parallel: it changes settings of the whole process.
func TestTuneGCKeepsSettingsOfTheEnvironment(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	for _, c := range []struct {
		redis       string
		env         map[string]string
		wantPercent int
		wantLimit   int64
	}{
		{"redis://h:1", nil, 400, 256<<20 + wantMemory},
		{"embedded:", nil, 100, math.MaxInt64}, // its entries are on the heap
		{"redis://h:1", map[string]string{"GOGC": "50", "GOMEMLIMIT": "1GiB"}, 100, math.MaxInt64},
	} {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(math.MaxInt64)
		cfg, err := config.Default()
		if err != nil {
			t.Fatal(err)
		}
		cfg.Redis = c.redis
		tuneGC(config.Process{LookupEnv: func(key string) (string, bool) { v, ok := c.env[key]; return v, ok }}, cfg)
		if got := debug.SetMemoryLimit(-1); got != c.wantLimit {
			t.Errorf("%v: memory limit %d, want %d", c.env, got, c.wantLimit)
		}
		if got := debug.SetGCPercent(100); got != c.wantPercent {
			t.Errorf("%v: GC percent %d, want %d", c.env, got, c.wantPercent)
		}
	}
}
