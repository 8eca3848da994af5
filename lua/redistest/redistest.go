// Package redistest starts real redis-servers for tests: on free loopback
// ports, in temporary folders, stopped by pid when the test ends. A missing
// redis-server fails the test; it never skips.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/proc"
)

// Server is one running redis-server.
type Server struct {
	Addr string // host:port
	Dir  string // its working folder

	tb   testing.TB
	args []string // of redis-server

	mu    sync.Mutex
	cmd   *exec.Cmd
	done  chan struct{}
	clock *proc.Clock   // of StartWithClock
	ahead time.Duration // of this machine's clock
}

// Start runs a redis-server with the extra arguments, as on its command line,
// and waits until it answers. Without arguments it persists nothing.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return start(tb, FreeAddr(tb), tb.TempDir(), args)
}

func start(tb testing.TB, addr, dir string, args []string) *Server {
	tb.Helper()
	return run(&Server{Addr: addr, Dir: dir, tb: tb, args: arguments(addr, dir, args)})
}

func arguments(addr, dir string, more []string) []string {
	_, port, _ := net.SplitHostPort(addr)
	return append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--daemonize", "no",
		"--logfile", filepath.Join(dir, "redis.log"), "--enable-debug-command", "yes",
		"--repl-diskless-sync-delay", "0", // a replica is in sync at once, not after 5s
	}, more...)
}

// run launches the server and ends it with the test.
func run(s *Server) *Server {
	s.tb.Helper()
	s.Launch()
	s.tb.Cleanup(s.Kill)
	return s
}

// URL is the address in the form partition.Config wants.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Client is a plain client of the server, closed when the test ends. It waits for an answer as long as a busy machine
// may take; what was read until a time-out looks like a result.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, DisableIdentity: true, ReadTimeout: 20 * time.Second})
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Launch starts the server again on the same port and folder.
func (s *Server) Launch() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatalf("redis-server is not installed; `make test` installs it, or see your package manager: %v", err)
	}
	cmd := exec.Command(bin, s.args...)
	if s.clock != nil {
		cmd.Env = append(os.Environ(), s.clock.Env()...)
	}
	proc.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		s.tb.Fatalf("start redis-server: %v", err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	s.cmd, s.done = cmd, done
	if err := s.await(done); err != nil {
		log, _ := os.ReadFile(filepath.Join(s.Dir, "redis.log"))
		s.tb.Fatalf("redis-server on %s: %v\n%s", s.Addr, err, log)
	}
}

func (s *Server) await(done <-chan struct{}) error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, DisableIdentity: true})
	defer c.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	give := time.After(20 * time.Second)
	for {
		err := c.Ping(context.Background()).Err()
		if err == nil || strings.HasPrefix(err.Error(), "NOAUTH") {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("it ended at once")
		case <-give:
			return fmt.Errorf("no answer in 20s: %w", err)
		case <-tick.C:
		}
	}
}

// Kill ends the server with SIGKILL and waits for its end. It may come twice.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Signal sends sig to the server: SIGSTOP and SIGCONT make it stall and go on.
func (s *Server) Signal(sig syscall.Signal) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("signal redis-server: %v", err)
	}
}

// Forward is proc.Forward until the test ends.
func Forward(tb testing.TB, addr, target string, serve func(client, server net.Conn)) {
	tb.Helper()
	_, stop, err := proc.Forward(addr, target, serve)
	must(tb, err)
	tb.Cleanup(stop)
}

// FreeAddr is proc.FreeAddr; without a free one the test fails.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	addr, err := proc.FreeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	return addr
}

// StartWithClock is [Start] with a wall clock of the server's own, which goes right until the test
// sets it by Advance. It takes a C compiler; without one the test fails, and says so.
//
// A test that steps the time has a server of its own. Nodes of a cluster and sentinels watch each
// other by that clock, so a group should never be stepped by more than its timeouts.
func StartWithClock(tb testing.TB, args ...string) *Server {
	tb.Helper()
	library, err := proc.BuildClock(tb.Context())
	must(tb, err)
	s := &Server{Addr: FreeAddr(tb), Dir: tb.TempDir(), tb: tb}
	s.clock = &proc.Clock{Library: library, Path: filepath.Join(s.Dir, "clock")}
	must(tb, s.clock.Set(0))
	s.args = arguments(s.Addr, s.Dir, args)
	return run(s)
}

// Advance moves the server's clock on, by less than nothing backwards: TIME, what scripts read, the
// ttls of keys and the waits of blocking commands, which end within a tick of the server, 0.1 s. It
// is so for the next command, also after another Launch. Clocks of the test's process stay, so what
// sleeps by them sleeps on.
func (s *Server) Advance(d time.Duration) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock == nil {
		s.tb.Fatal("a server steps its clock when StartWithClock started it")
	}
	s.ahead += d
	must(s.tb, s.clock.Set(s.ahead))
}
