package main

import (
	"runtime/debug"

	"github.com/spillway-io/spillway/ingest"
)

const (
	// gcPercent lets the heap, a few MB as a rule, grow to five times what is
	// alive before it is collected. At 10,000 requests a second a collection of
	// Go's default came 2.5 times a second and took half a processor of two,
	// away from Redis too: p99 6.5 ms, and 4.7 ms with this (bench/README.md).
	gcPercent = 400
	// gcFloor is memory that nothing needs to be collected below, and connMemory
	// what a connection takes with ordinary requests.
	gcFloor    = 256 << 20
	connMemory = 64 << 10
)

// tuneGC trades memory for processor time while the process is small. Past what
// its bounds should let it reach it collects as often as need be. GOGC and
// GOMEMLIMIT in the environment win.
func tuneGC(p process, cfg ingest.Config) {
	if _, set := p.lookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	if _, set := p.lookupEnv("GOMEMLIMIT"); !set {
		debug.SetMemoryLimit(gcFloor + 2*cfg.MaxInflightBytes + int64(cfg.MaxConns)*connMemory)
	}
}
