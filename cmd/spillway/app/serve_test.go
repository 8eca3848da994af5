package app

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/lua/redistest"
)

// serveProcess is a running `spillway serve`.
type serveProcess struct {
	cmd                 *exec.Cmd
	listen, adminListen string
	stdout, stderr      *bytes.Buffer // complete after wait
	pipes               sync.WaitGroup
}

// startServe runs main in a process and waits for the log line "started".
func startServe(t *testing.T, args ...string) *serveProcess {
	t.Helper()
	return startServeIn(t, nil, args...)
}

// startServeIn is startServe with variables, as NAME=value.
func startServeIn(t *testing.T, environ []string, args ...string) *serveProcess {
	t.Helper()
	s := &serveProcess{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	s.cmd = exec.Command(os.Args[0], append([]string{"serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--linger=5ms", "--log-format=json"}, args...)...)
	s.cmd.Env = append(environ, "TEST_AS_SPILLWAY=1")
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		s.wait()
	})
	s.pipes.Go(func() { _, _ = io.Copy(s.stdout, out) })
	started := make(chan struct{})
	s.pipes.Go(func() {
		for lines := bufio.NewScanner(errs); lines.Scan(); {
			s.stderr.Write(append(lines.Bytes(), '\n'))
			var event struct {
				Msg         string
				Listen      string
				AdminListen string `json:"admin_listen"`
			}
			if json.Unmarshal(lines.Bytes(), &event) == nil && event.Msg == "started" {
				s.listen, s.adminListen = event.Listen, event.AdminListen
				close(started)
			}
		}
	})
	select {
	case <-started:
	case <-time.After(20 * time.Second):
		t.Fatal("it did not start")
	}
	return s
}

// wait waits for the end and returns the exit code.
func (s *serveProcess) wait() int {
	s.pipes.Wait()
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

func (s *serveProcess) signal(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

func (s *serveProcess) status(url string) int {
	res, err := http.Get(url)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	return res.StatusCode
}

// startSlowRequest sends half of a request and returns when the service waits for
// the other half.
func (s *serveProcess) startSlowRequest(t *testing.T) {
	t.Helper()
	conn, err := net.Dial("tcp", s.listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, "POST /v1/default/kart HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(answer, "100 Continue") {
		t.Fatal(answer, err)
	}
}

func TestServeStopsInOrderAtTheFirstSignal(t *testing.T) {
	t.Parallel()
	s := startServe(t)
	res, err := http.Post("http://"+s.listen+"/v1/default/kart", "", strings.NewReader(`{"lap":1}`))
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	res.Body.Close()
	s.signal(t)
	if code := s.wait(); code != exitOK {
		t.Errorf("exit %d, %s", code, s.stderr)
	}
	// Only the sink writes to stdout. The log on stderr has one JSON object per line.
	for line := range strings.Lines(s.stdout.String()) {
		if !json.Valid([]byte(line)) || !strings.Contains(line, `"partition":"kart"`) {
			t.Errorf("stdout holds %q", line)
		}
	}
	for line := range strings.Lines(s.stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("stderr holds %q", line)
		}
		if strings.Contains(line, "lap") {
			t.Errorf("a payload is in the log: %s", line)
		}
	}
	if !strings.Contains(s.stderr.String(), `"msg":"stopped"`) || !strings.Contains(s.stderr.String(), `"accepted":1,`) {
		t.Errorf("no final ledger: %s", s.stderr)
	}
}

// go-redis prints to stderr by default, in a format of its own.
func TestLinesOfTheRedisClientReachTheLogAtDebugLevel(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]bool{"debug": true, "info": false} {
		s := startServe(t, "--log-level="+level, "--redis=redis://"+redistest.FreeAddr(t))
		s.signal(t)
		s.wait()
		found := false
		for line := range strings.Lines(s.stderr.String()) {
			var event struct{ Msg, Logger, Detail string }
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Errorf("level %s: a line on stderr is not JSON: %s", level, line)
			}
			found = found || event.Msg == "redis client" && event.Logger == "store.redis" && strings.Contains(event.Detail, "failed to dial")
		}
		if found != want {
			t.Errorf("level %s: a line of the client in the log: %v, want %v\n%s", level, found, want, s.stderr)
		}
	}
}

func TestServeExitsAtOnceAtTheSecondSignal(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--shutdown-timeout=5m", "--read-timeout=5m")
	// A request that never completes keeps the service from stopping.
	s.startSlowRequest(t)
	s.signal(t)
	eventually(t, "it shuts down", func() bool { return s.status("http://"+s.adminListen+"/readyz") == 503 })
	if s.status("http://"+s.adminListen+"/livez") != 200 {
		t.Error("the admin port does not answer during shutdown")
	}
	s.signal(t) // within sameSignal of the first: ignored
	// On a busy machine the process may meet several signals at once, as one.
	ended := make(chan struct{})
	go func() { s.pipes.Wait(); close(ended) }()
	for again := time.NewTicker(2 * sameSignal); ; {
		select {
		case <-again.C:
			s.signal(t)
			continue
		case <-ended:
			again.Stop()
		}
		break
	}
	if code := s.wait(); code != exitFailure || !strings.Contains(s.stderr.String(), "second signal") {
		t.Errorf("exit %d, %s", code, s.stderr)
	}
}

func TestServeExitsAtTheShutdownTimeout(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--shutdown-timeout=200ms", "--read-timeout=5m")
	s.startSlowRequest(t)
	s.signal(t)
	if code := s.wait(); code != exitFailure || !strings.Contains(s.stderr.String(), "finish requests") {
		t.Errorf("exit %d, %s", code, s.stderr)
	}
}

func TestValuesOfPlaceholdersAreNotShown(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry pass:w@rd"
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var path, auth atomic.Value
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, p, _ := r.BasicAuth()
		path.Store(r.URL.Path)
		auth.Store(p)
		http.Error(w, "no such "+p+r.RequestURI, http.StatusServiceUnavailable)
	}))
	defer hook.Close()
	raw := strings.Replace(hook.URL, "://", "://u:{file:"+password+"}@", 1) + "/{env:HOOK}?k={env:HOOK}"

	s := startServeIn(t, []string{"HOOK=" + canary, "SPILLWAY_SINK=" + raw}, "--log-level=debug")
	if res, err := http.Post("http://"+s.listen+"/v1/default/kart", "", strings.NewReader(`{"lap":1}`)); err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	eventually(t, "the sink does not fail", func() bool {
		res, err := http.Get("http://" + s.adminListen + "/metrics")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return bytes.Contains(text, []byte(`_sink_failing{namespace="default"} 1`))
	})
	var seen strings.Builder
	for _, url := range []string{"/readyz", "/metrics", "/api/v1/namespaces", "/debug/pprof/goroutine?debug=2"} {
		res, err := http.Get("http://" + s.adminListen + url)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(&seen, res.Body)
		res.Body.Close()
	}
	s.signal(t)
	s.wait()
	seen.Write(s.stdout.Bytes())
	seen.Write(s.stderr.Bytes())
	if path.Load() != "/"+canary || auth.Load() != canary {
		t.Errorf("the receiver got %v and %v, want the value", path.Load(), auth.Load())
	}
	for _, raw := range []string{
		raw, "http://{env:HOOK}/", "http://h:{env:HOOK}/", "{env:HOOK}://h/", "{env:HOOK}", "http:{env:HOOK}", "http://h/?gzip={env:HOOK}",
		"http://h/#{env:HOOK}", "http://u:{env:HOOK}%zz@h/", "file:///{env:HOOK}/", "file://h/{env:HOOK}", "file:///x?max_size={env:HOOK}",
		"file:///x?{env:HOOK}=1", "null:{env:HOOK}", "null:?{env:HOOK}", "redis-stream://h/{env:HOOK}", "redis-stream://h/?tls={env:HOOK}", "http://h/?k={env:HOOK",
	} {
		for _, command := range []string{"print", "check"} {
			stdout, stderr, code := runCommand(t, map[string]string{"HOOK": canary}, "", "config", command, "--sink="+raw)
			seen.WriteString(stdout + stderr)
			if command == "print" && code != exitOK {
				t.Errorf("%s: %s", raw, stderr)
			}
		}
	}
	for _, part := range []string{canary, "c4n4ry", "w%40rd"} {
		if strings.Contains(seen.String(), part) {
			t.Errorf("%s is shown in\n%s", part, seen.String())
		}
	}
	if want := "http://…@" + strings.TrimPrefix(hook.URL, "http://") + "/…?…"; !strings.Contains(seen.String(), want) {
		t.Errorf("%s is not shown in\n%s", want, seen.String())
	}
}

func TestAMissingValueOfAPlaceholderIsAUsageError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, make([]byte, config.MaxSecret+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		"http://h/?k={env:HOOK}":            "--sink: namespace default: sink http://h/?…: {env:HOOK}: the environment has no variable HOOK",
		"http://h/?k={file:/none}":          "{file:/none}: stat /none: no such file or directory",
		"http://h/?k={file:" + dir + "}":    "{file:" + dir + "}: not a regular file",
		"http://h/?k={file:" + large + "}":  "{file:" + large + "}: larger than 64KiB",
		"http://h/?k={file:/dev/zero}":      "{file:/dev/zero}: not a regular file",
		"http://h/?k={file:relative/token}": "{file:relative/token}: the path is relative: write it from the root",
	} {
		if _, stderr, code := runCommand(t, nil, "", "config", "check", "--sink="+raw); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d, %s, want %s", raw, code, stderr, want)
		}
	}
}

func TestPasswordsAreNotShown(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry"
	server := redistest.Start(t, "--requirepass", "another")
	redis := strings.Replace(server.URL(), "redis://", "redis://user:"+canary+"@", 1)
	hook := fmt.Sprintf("http://user:%s@127.0.0.1:1/%%2e?token=%s", canary, canary)

	s := startServe(t, "--redis="+redis, "--sink="+hook, "--log-level=debug")
	eventually(t, "it is not ready", func() bool { return s.status("http://"+s.adminListen+"/readyz") == 503 })
	var seen strings.Builder
	for _, url := range []string{
		"http://" + s.listen + "/readyz", "http://" + s.adminListen + "/readyz", "http://" + s.adminListen + "/metrics",
		"http://" + s.adminListen + "/api/v1/namespaces", "http://" + s.adminListen + "/api/v1/namespaces/default",
		"http://" + s.adminListen + "/debug/pprof/cmdline", "http://" + s.adminListen + "/debug/pprof/goroutine?debug=2",
		"http://" + s.adminListen + "/debug/pprof/heap?debug=1",
	} {
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(&seen, res.Body)
		res.Body.Close()
	}
	s.signal(t)
	s.wait()
	seen.Write(s.stdout.Bytes())
	seen.Write(s.stderr.Bytes())

	file := filepath.Join(t.TempDir(), "spillway.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "redis: %q\nsink: %q\n", redis, hook), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"config", "print", "--config", file},
		{"config", "check", "--config", file},
		{"config", "print", "--redis=redis://" + canary + "@h?a=" + canary},
		{"config", "print", "--redis=redis-sentinel://u:" + canary + "/x@h1:1,h2:2/m"},
		{"config", "print", "--redis=redis://h/0?password=x@" + canary},
		{"config", "check", "--redis=redis://u:" + canary + "%zz@h:port"},
		{"config", "check", "--redis=rediss:" + canary},
		{"config", "check", "--redis=" + canary + "://x"},
		{"config", "print", "--sink=http:user:" + canary + "@h"},
		{"config", "check", "--sink=http://user:" + canary + "%zz@h"},
		{"config", "check", "--sink=file://" + canary + "@h/x?" + canary + "=1"},
		{"serve", "--redis=redis://u:" + canary + "%zz@h:port"},
	} {
		stdout, stderr, _ := runCommand(t, nil, "", args...)
		if strings.Contains(stdout+stderr, canary) {
			t.Errorf("%v shows the password: %s%s", args, stdout, stderr)
		}
	}
	if strings.Contains(seen.String(), canary) {
		t.Errorf("the password is shown in\n%s", seen.String())
	}
	if !strings.Contains(seen.String(), "redis://…@"+server.Addr) {
		t.Errorf("the log does not name the store:\n%s", s.stderr)
	}
}

// Not parallel: it changes settings of the whole process.
func TestTuneGCKeepsSettingsOfTheEnvironment(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	for _, c := range []struct {
		redis       string
		env         map[string]string
		wantPercent int
		wantLimit   int64
	}{
		{"redis://h:1", nil, 400, 256<<20 + ingest.DefaultConfig().MaxMemory()},
		{"embedded:", nil, 100, math.MaxInt64}, // its entries are on the heap
		{"redis://h:1", map[string]string{"GOGC": "50", "GOMEMLIMIT": "1GiB"}, 100, math.MaxInt64},
	} {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(math.MaxInt64)
		cfg, err := config.Default()
		if err != nil {
			t.Fatal(err)
		}
		cfg.Redis = c.redis
		tuneGC(config.Process{LookupEnv: func(key string) (string, bool) { v, ok := c.env[key]; return v, ok }}, cfg)
		if got := debug.SetMemoryLimit(-1); got != c.wantLimit {
			t.Errorf("%v: memory limit %d, want %d", c.env, got, c.wantLimit)
		}
		if got := debug.SetGCPercent(100); got != c.wantPercent {
			t.Errorf("%v: GC percent %d, want %d", c.env, got, c.wantPercent)
		}
	}
}
