package app

import (
	"runtime/debug"

	"github.com/spillway-io/spillway/cmd/spillway/config"
)

const (
	// gcPercent lets the heap, usually a few MB, grow to five times the live
	// data before a collection. With Go's default of 100, a load of 10,000
	// requests per second caused 2.5 collections per second, which took half of
	// one of two processors: p99 was 6.5 ms, and is 4.7 ms with 400
	// (bench/README.md).
	gcPercent = 400
	// gcFloor is added to the memory limit, in bytes, for all that is not requests.
	gcFloor = 256 << 20
)

// tuneGC trades memory for processor time. The memory limit is the sum of the limits
// of ingest: above it, Go collects more often. With the embedded store the entries
// are on the heap without such a limit, so Go's defaults stay. GOGC and GOMEMLIMIT
// in the environment take precedence.
func tuneGC(p config.Process, cfg *config.Config) {
	if cfg.Redis == "embedded:" {
		return
	}
	if _, set := p.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	if _, set := p.LookupEnv("GOMEMLIMIT"); !set {
		debug.SetMemoryLimit(gcFloor + cfg.Ingest().MaxMemory())
	}
}
