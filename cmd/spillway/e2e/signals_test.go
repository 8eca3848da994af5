package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
)

// pipe returns both ends of a pipe, which the test closes when it ends.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

func TestClosedStdoutIsAFailingSink(t *testing.T) {
	t.Parallel()
	r, w := pipe(t)
	cmd := exec.Command(binary)
	cmd.Stdout = w
	s := serveBy(t, cmd, "--sink", "stdout:", "--linger", "10ms").ready(200)
	_ = w.Close()
	post := func() {
		t.Helper()
		if a := s.post("/v1/default/kart", "application/json", `{"n":1}`); a.status != 200 {
			t.Fatalf("got %d %s", a.status, a.body)
		}
	}
	post()
	if _, err := r.Read(make([]byte, 1<<10)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first entry is delivered", func() bool { return s.ledger().Delivered == 1 })

	_ = r.Close()
	post()
	post()
	eventually(t, "the sink fails", func() bool { return s.metric(`spillway_drain_sink_failing{namespace="default"}`) == 1 })
	if l := s.ledger(); l != (ledger{Accepted: 3, Delivered: 1, Buffered: 2}) {
		t.Errorf("got %+v, want 1 delivered and 2 that wait", l)
	}
	post()
	s.ready(200)
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

func TestClosedStderrLosesLogLinesOnly(t *testing.T) {
	t.Parallel()
	r, w := pipe(t)
	cmd := exec.Command(binary)
	cmd.Stderr = w
	// A sink that cannot be reached causes log lines.
	s := serveBy(t, cmd, "--sink", "http://"+redistest.FreeAddr(t)+"/", "--linger", "10ms").ready(200)
	_, _ = r.Close(), w.Close()
	if a := s.post("/v1/default/kart", "application/json", `{"n":1}`); a.status != 200 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	eventually(t, "the sink fails", func() bool { return s.metric(`spillway_drain_sink_failing{namespace="default"}`) == 1 })
	s.ready(200)
	if l := s.ledger(); l != (ledger{Accepted: 1, Buffered: 1}) {
		t.Errorf("got %+v, want 1 buffered", l)
	}
	// The log lines of the stop are lost too.
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// A command whose stdout is closed ends by SIGPIPE and prints nothing to stderr, as
// in `spillway config print | head -1`.
func TestOtherCommandsEndByClosedStdout(t *testing.T) {
	t.Parallel()
	s := serve(t, "--sink", "null:").ready(200)
	for _, args := range [][]string{
		{"config", "print"}, {"config", "check"}, {"version"}, {"--help"},
		{"report", "--server", "http://" + s.data},
		{"bench", "ingest", "--server", "http://" + s.data, "--admin", "http://" + s.admin, "--rate", "100", "--duration", "50ms"},
	} {
		r, w := pipe(t)
		_ = r.Close()
		var stderr bytes.Buffer
		cmd := exec.Command(binary, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(`{"partition":"kart","data":1}`), w, &stderr
		_ = cmd.Run()
		if how := cmd.ProcessState.Sys().(syscall.WaitStatus); !how.Signaled() || how.Signal() != syscall.SIGPIPE || stderr.Len() > 0 && args[0] != "bench" {
			t.Errorf("%v: got %v and %q on stderr; want SIGPIPE and an empty stderr, but for the progress of bench", args, cmd.ProcessState, stderr.String())
		}
	}
}
