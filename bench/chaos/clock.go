package main

import (
	"context"
	_ "embed" // of clockSource
	endian "encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// clockSource is what steps the wall clock of redis-server. libfaketime cannot: it clashes with
// jemalloc, which redis-server is linked with.
//
//go:embed clock/clock.c
var clockSource string

// buildClock compiles clockSource into dir, and returns the path of the library.
func buildClock(ctx context.Context, compiler, dir string) (library string, err error) {
	if runtime.GOOS != "linux" {
		return "", errors.New("redis-server takes a preloaded library on Linux only")
	}
	library = filepath.Join(dir, "clock.so")
	cmd := exec.CommandContext(ctx, compiler, "-O2", "-shared", "-fPIC", "-o", library, "-x", "c", "-")
	cmd.Stdin = strings.NewReader(clockSource)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s: %w %s", filepath.Base(library), err, out)
	}
	return library, nil
}

// offsetFile says by how much Redis's clock is ahead. It outlives a Redis that is killed.
func (r *setup) offsetFile() string { return filepath.Join(r.dir, "clock-offset") }

// setClock makes Redis's clock read so much more than this machine's from now on.
func (r *setup) setClock(ahead time.Duration) error {
	f, err := os.OpenFile(r.offsetFile(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	var ns [8]byte
	endian.NativeEndian.PutUint64(ns[:], uint64(ahead)) // #nosec G115 -- the bits of a signed number
	_, err = f.WriteAt(ns[:], 0)
	return errors.Join(err, f.Close())
}

func stepClock(_ context.Context, r *setup, f planned) error {
	r.progress("        Redis's clock is ahead by %v", f.offset)
	return r.setClock(f.offset)
}
