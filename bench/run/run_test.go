package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary be one of the sides, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && sides[os.Args[1]] != nil {
		main()
	}
	os.Exit(m.Run())
}

func TestRedisFieldsAreToldApart(t *testing.T) {
	t.Parallel()
	info := "# Memory\r\nused_memory:123\r\nused_memory_human:0.1K\r\nused_memory_peak:456\r\n"
	if got, err := infoField(info, "used_memory"); err != nil || got != 123 {
		t.Errorf("got %d, %v; want 123", got, err)
	}
	if _, err := infoField(info, "maxmemory"); err == nil {
		t.Error("a missing field: got no error")
	}
}

func TestWrongFlagsAreUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-scenario", "nothing"}, {"-rate", "fast"}, {"-rows", "z"}, {"-rounds", "0"}} {
		if code := command(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
			t.Errorf("%v: got exit %d, want 2", args, code)
		}
	}
}

func TestAServerThatDoesNotStartShowsItsLog(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "spillway")
	if err := os.Symlink("/bin/sh", bin); err != nil { // has no script called serve, and says so
		t.Fatal(err)
	}
	var progress bytes.Buffer
	code := command(t.Context(), []string{"-scenario", "throughput", "-bin", bin}, &bytes.Buffer{}, &progress)
	if code != 1 || !strings.Contains(progress.String(), "the process ended; the end of its log:\n") || !strings.Contains(progress.String(), "serve:") {
		t.Errorf("got exit %d and %q, want 1 and the shell's complaint", code, progress.String())
	}
}
