package job_test

import (
	"fmt"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

// trace notes events: member, ms that its trace is kept, line.
func (s *shard) trace(most int, events ...any) (forgotten int64) {
	s.t.Helper()
	keys := []string{s.key("traces"), s.key("traced")}
	return num(s.must(luajob.Trace, keys, append([]any{most}, events...)...)[1])
}

func (s *shard) traceOf(member string) string { return s.c.HGet(ctx, s.key("traces"), member).Val() }

func TestATraceHasItsEventsInOrderUntilItIsOver(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		s.same("forgotten", s.trace(9, "1 a", 1000, "x", "2 a", 5000, "y", "1 a", 1000, "z"), int64(0))
		s.trace(9, "1 a", 2000, "later")
		s.same("one", s.traceOf("1 a"), "x\nz\nlater\n")
		s.same("another", s.traceOf("2 a"), "y\n")
		s.clock += 2_000_000
		s.same("forgotten", s.trace(9), int64(1))
		s.same("one that is over", s.traceOf("1 a"), "")
		s.trace(9, "1 a", 1000, "again")
		s.same("begun anew", s.traceOf("1 a"), "again\n")
		s.clock += 9_000_000
		s.same("forgotten", s.trace(9), int64(2))
		s.same("keys that are left", s.c.Exists(ctx, s.key("traces"), s.key("traced")).Val(), int64(0))
	})
}

func TestTracesAreBounded(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		var many []any
		for i := range 100 {
			many = append(many, fmt.Sprint(i, " a"), 1000+i, "x")
		}
		s.same("forgotten", s.trace(30, many...), int64(70))
		s.same("the oldest", s.traceOf("69 a"), "")
		s.same("the newest", s.traceOf("99 a")+s.traceOf("70 a"), "x\nx\n")
		s.same("none is kept", s.trace(0, "1 b", 1000, "x"), int64(31))
		line := strings.Repeat("l", 99)
		for range 100 {
			s.trace(9, "1 c", 60_000, "first", "1 c", 60_000, line, "1 c", 60_000, line+"2")
		}
		text := s.traceOf("1 c")
		if len(text) > 4096 || len(text) < 3800 || !strings.HasPrefix(text, "first\n") || !strings.HasSuffix(text, line+"\n"+line+"2\n") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
		s.trace(9, "1 d", 60_000, strings.Repeat("long", 2000), "1 d", 60_000, "x")
		s.same("a first line that is too long stays, alone", len(s.traceOf("1 d")), 8001)
	})
}

func TestAFullStoreForgetsTracesAndNotesNone(t *testing.T) {
	t.Parallel()
	s := newShard(t, redistest.Start(t).Client())
	s.trace(9, "1 a", 1, "x")
	s.do("config", "set", "maxmemory", "1")
	keys := []string{s.key("traces"), s.key("traced")}
	if _, err := s.try(luajob.Trace, keys, 9, "2 a", 1000, "x"); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("an event: got %v, want OOM", err)
	}
	for s.c.HLen(ctx, s.key("traces")).Val() > 0 { // a ms passes
		s.trace(9)
	}
}

func TestATraceRejectsWrongArguments(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		keys := []string{s.key("traces"), s.key("traced")}
		for _, argv := range [][]any{{}, {-1}, {"x"}, {1, "1 a"}, {1, "1 a", 0, "x"}, {1, "1 a", "1.5", "x"}, {1, "1 a", 1, "x", "y"}} {
			if _, err := s.try(luajob.Trace, keys, argv...); err == nil || !strings.Contains(err.Error(), "bad arguments") {
				t.Errorf("%v: got %v", argv, err)
			}
		}
		if _, err := s.try(luajob.Trace, keys[:1], 1); err == nil {
			t.Error("one key: no error")
		}
	})
}
