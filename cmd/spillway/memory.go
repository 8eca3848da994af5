package main

import "runtime/debug"

const (
	// gcPercent lets the heap, a few MB as a rule, grow to five times what is
	// alive before it is collected. At 10,000 requests a second a collection of
	// Go's default came 2.5 times a second and took half a processor of two,
	// away from Redis too: p99 6.5 ms, and 4.7 ms with this (bench/README.md).
	gcPercent = 400
	// gcFloor is memory that nothing needs to be collected below.
	gcFloor = 256 << 20
)

// tuneGC trades memory for processor time. What it may come to is bounded by
// the limits of ingest: past their sum it collects as often as need be. With
// the embedded store the data is on the heap, which nothing here bounds, so
// Go's defaults stay. GOGC and GOMEMLIMIT in the environment win.
func tuneGC(p process, cfg *Config) {
	if cfg.Redis == "embedded:" {
		return
	}
	if _, set := p.lookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	if _, set := p.lookupEnv("GOMEMLIMIT"); !set {
		debug.SetMemoryLimit(gcFloor + cfg.ingest().MaxMemory())
	}
}
