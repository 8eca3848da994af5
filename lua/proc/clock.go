package proc

import (
	"context"
	"crypto/sha256"
	_ "embed" // of clockSource
	"encoding/binary"
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

// Clock is the wall clock of a redis-server, as much ahead of this machine's as a file says.
// TIME, the scripts and the ttls of keys all go by it.
type Clock struct {
	Library string // from BuildClock
	Path    string // of the file; it outlives a server that is killed
}

// Env is what a server has in its environment, beside its own, to go by this clock.
func (c Clock) Env() []string {
	return []string{"LD_PRELOAD=" + c.Library, "CLOCK_OFFSET_FILE=" + c.Path}
}

// Set makes the clock read so much more than this machine's from now on. A server starts on a clock
// that was Set once.
func (c Clock) Set(ahead time.Duration) error {
	f, err := os.OpenFile(c.Path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	var ns [8]byte
	binary.NativeEndian.PutUint64(ns[:], uint64(ahead)) // #nosec G115 -- the bits of a signed number
	_, err = f.WriteAt(ns[:], 0)
	return errors.Join(err, f.Close())
}

// BuildClock compiles what a [Clock] is preloaded with, and returns its path. It is compiled once a
// machine: it stays in the folder for temporary files, by its content. Processes that compile it at
// the same time do not see the half of another's.
func BuildClock(ctx context.Context) (library string, err error) {
	if runtime.GOOS != "linux" {
		return "", errors.New("redis-server takes a clock of its own on Linux only")
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("spillway-clock-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	library = filepath.Join(dir, fmt.Sprintf("%x.so", sha256.Sum256([]byte(clockSource))))
	if _, err := os.Stat(library); err == nil {
		return library, nil
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return "", errors.New("a clock for redis-server takes a C compiler, cc; Debian and Ubuntu have it in the packages gcc and libc6-dev")
	}
	f, err := os.CreateTemp(dir, "clock-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(f.Name()) }() // it has another name by then, if all went well
	cmd := exec.CommandContext(ctx, compiler, "-O2", "-shared", "-fPIC", "-o", f.Name(), "-x", "c", "-")
	cmd.Stdin = strings.NewReader(clockSource)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("compile the clock for redis-server: %w %s", err, out), f.Close())
	}
	return library, errors.Join(f.Close(), os.Rename(f.Name(), library))
}
