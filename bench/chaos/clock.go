package main

import (
	"context"
	"path/filepath"

	"github.com/spillway-io/spillway/lua/proc"
)

// clock is that of Redis. How far it is ahead outlives a Redis that is killed.
func (r *setup) clock() proc.Clock {
	return proc.Clock{Library: r.settings.clock, Path: filepath.Join(r.dir, "clock-offset")}
}

func stepClock(_ context.Context, r *setup, f planned) error {
	r.progress("        Redis's clock is ahead by %v", f.offset)
	return r.clock().Set(f.offset)
}
