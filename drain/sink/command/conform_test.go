//go:build unix

package command

import (
	"bytes"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

// TestMain lets the test binary be a plugin: one that appends its stdin to a file.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "append" {
		os.Exit(appendInput(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

func appendInput(path string) int {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 1
	}
	if stalled, err := os.Open(path + ".stall"); err == nil { // a pipe without a writer
		stalled.Close()
	}
	if fault, err := os.ReadFile(path + ".fault"); err == nil {
		switch string(fault) {
		case "killed":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "retry", "drop":
			var rest []byte
			for i, line := range bytes.SplitAfter(input, []byte("\n")) {
				if i != 3 {
					rest = append(rest, line...)
				}
			}
			os.Stdout.WriteString(`{"results":[{"i":3,"result":"` + string(fault) + `"}]}`)
			return appendTo(path, rest)
		}
		os.Stderr.Write(input)
		code, _ := strconv.Atoi(string(fault))
		return code
	}
	return appendTo(path, input)
}

func appendTo(path string, lines []byte) int {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	if _, err := f.Write(lines); err != nil {
		return 1
	}
	return 0
}

func TestConforms(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
		dir := t.TempDir()
		path, program := filepath.Join(dir, "out"), filepath.Join(dir, "program")
		must(t, os.Symlink(os.Args[0], program))
		fault := func(name string, permanent bool) sinktest.Fault {
			return sinktest.Fault{Name: name, Permanent: permanent, Start: func() func() {
				must(t, os.WriteFile(path+".fault", []byte(name), 0o600))
				return func() { must(t, os.Remove(path+".fault")) }
			}}
		}
		return sinktest.Fixture{
			// The race detector otherwise waits a second at each end.
			Sink: newSinkIn(t, []string{"GORACE=atexit_sleep_ms=0"}, program, "append", path),
			Received: func() ([]sinktest.Record, error) {
				lines, err := os.ReadFile(path)
				if err != nil && !os.IsNotExist(err) {
					return nil, err
				}
				return sinktest.ParseLines(lines)
			},
			Stall: func() func() {
				must(t, syscall.Mkfifo(path+".stall", 0o600))
				return func() { must(t, os.Remove(path+".stall")) }
			},
			Faults: []sinktest.Fault{
				fault("75", false), fault("1", false), fault("killed", false), fault("65", true), fault("retry", false), fault("drop", true),
				{Name: "no program", Start: func() func() {
					must(t, os.Remove(program))
					return func() { must(t, os.Symlink(os.Args[0], program)) }
				}},
			},
		}
	}})
}

func newSink(t testing.TB, argv ...string) *Sink {
	t.Helper()
	return newSinkIn(t, []string{"PATH=/usr/bin:/bin"}, argv...)
}

func newSinkIn(t testing.TB, environ []string, argv ...string) *Sink {
	t.Helper()
	s, err := New(argv, environ)(&url.URL{Scheme: "exec"})
	must(t, err)
	return s.(*Sink)
}

// shell is a sink that runs a script.
func shell(t testing.TB, script string, args ...string) *Sink {
	t.Helper()
	return newSink(t, append([]string{"/bin/sh", "-c", script, "plugin"}, args...)...)
}

func batch(payloads ...string) *sink.Batch {
	b := sinktest.Batch("com.acme.kart", 1763629675123456, payloads...)
	b.Attempt = 3
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return strings.TrimSpace(string(b))
}
