package redistest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
)

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
