// Package e2e tests the program with a real redis-server, through its ports,
// signals and files.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/app/apptest"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// binary is the path of the program.
var binary string

func TestMain(m *testing.M) { apptest.Main(m, &binary) }

// server is a running `spillway serve`.
type server struct {
	t           *testing.T
	cmd         *exec.Cmd
	data, admin string // host:port
	log         *bytes.Buffer
	done        chan struct{}
}

// serve starts a server on free ports; args follow its own.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	return serveBy(t, exec.Command(binary), args...)
}

// serveBy is serve, with a command that runs the binary with more arguments.
func serveBy(t *testing.T, cmd *exec.Cmd, args ...string) *server {
	t.Helper()
	s := &server{t: t, data: redistest.FreeAddr(t), admin: redistest.FreeAddr(t), log: &bytes.Buffer{}, done: make(chan struct{})}
	s.cmd = cmd
	cmd.Args = append(append(cmd.Args, "serve", "--listen", s.data, "--admin-listen", s.admin), args...)
	if s.cmd.Stderr == nil {
		s.cmd.Stderr = s.log
	}
	proc.KillWithParent(cmd)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("log of serve %v:\n%s", args, s.log)
		}
	})
	return s
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// terminate sends SIGTERM, waits for the end and returns the exit code.
func (s *server) terminate() int {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		s.t.Fatal("no end 20s after SIGTERM")
	}
	return s.cmd.ProcessState.ExitCode()
}

// ready waits until the admin port's /readyz answers with the wanted status.
func (s *server) ready(want int) *server {
	s.t.Helper()
	eventually(s.t, "readyz answers "+fmt.Sprint(want), func() bool {
		select {
		case <-s.done:
			s.t.Fatalf("serve ended: %s", s.log)
		default:
		}
		resp, err := http.Get("http://" + s.admin + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == want
	})
	return s
}

// eventually polls until f holds. Only its failing takes time.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	redistest.Until(t, 30*time.Second, what, f)
}

// stoodStill watches the machine until the test ends, and reports whether it stood still for as long as makes
// a service give up on Redis (2 s) perhaps: what is answered 503 then says nothing of the service.
func stoodStill(t *testing.T) func() bool {
	var longest atomic.Int64
	tick := time.NewTicker(10 * time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { tick.Stop(); cancel() })
	go func() {
		for last := time.Now(); ctx.Err() == nil; last = time.Now() {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
			longest.Store(max(longest.Load(), int64(time.Since(last))))
		}
	}()
	return func() bool { return longest.Load() > int64(time.Second) }
}

type ledger struct {
	Accepted, Delivered, Evicted, Expired, Dead, Lost, Buffered int64
}

// ledger reads the ledger with an audit, and checks its equation. It asks again if
// the store is too busy to answer.
func (s *server) ledger() ledger {
	s.t.Helper()
	var body struct {
		Ledger   ledger
		Residual *int64
	}
	eventually(s.t, "the ledger is answered", func() bool {
		resp, err := http.Get("http://" + s.admin + "/api/v1/namespaces/default?audit=1")
		if err != nil {
			s.t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			return false
		}
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || resp.StatusCode != 200 {
			s.t.Fatalf("ledger: %s %v", resp.Status, err)
		}
		return true
	})
	l := body.Ledger
	if sum := l.Delivered + l.Evicted + l.Expired + l.Dead + l.Lost + l.Buffered; sum != l.Accepted {
		s.t.Fatalf("the ledger does not add up: %+v", l)
	}
	if body.Residual == nil {
		s.t.Fatal("audit=1 answers no residual")
	}
	return l
}

type answer struct {
	status     int
	retryAfter string
	body       string

	Accepted, Evicted, Rejected int
	Error, Outcome              string
}

// post sends one body to the data port.
func (s *server) post(path, contentType, body string) answer {
	s.t.Helper()
	resp, err := http.Post("http://"+s.data+path, contentType, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After"), body: string(text)}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &a); err != nil {
			s.t.Fatalf("%s: %v in %s", resp.Status, err, text)
		}
	}
	return a
}

// line is a line that file: and the webhook write.
type line struct {
	Namespace, Partition, Batch string
	Seq, TS                     int64
	Attempt                     int
	Data                        json.RawMessage
}

func parseLines(t *testing.T, text []byte) []line {
	t.Helper()
	var lines []line
	for raw := range bytes.Lines(text) {
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatalf("%v in line %q", err, raw)
		}
		lines = append(lines, l)
	}
	return lines
}
