package job_test

import (
	"slices"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
)

// memory is what the server uses for its data, in bytes.
func (s *shard) memory() int64 {
	s.t.Helper()
	for line := range strings.SplitSeq(s.c.Info(ctx, "memory").Val(), "\r\n") {
		if text, ok := strings.CutPrefix(line, "used_memory_dataset:"); ok {
			return num(text)
		}
	}
	s.t.Fatal("INFO tells no used_memory_dataset")
	return 0
}

// What a job of 200 bytes takes in Redis decides how many fit: these are the figures of
// DESIGN.md, with 100,000 of them.
func TestBytesOfAJob(t *testing.T) {
	t.Parallel()
	for state, row := range map[string]struct {
		delay int64
		most  int64
	}{"ready": {0, 320}, "delayed": {3_600_000, 440}} {
		s := newShard(t, server(t))
		s.maxJobs = 1 << 40
		keys, argv := s.publishCall(group{queue: "mail", delay: row.delay, bodies: slices.Repeat([]string{strings.Repeat("x", 200)}, 500)})
		before := s.memory()
		repeat(t, s.c, 200, luajob.Publish, func(int) ([]string, []any) { return keys, argv })
		each := (s.memory() - before) / 100_000
		t.Logf("%s: %d bytes", state, each)
		if each > row.most {
			t.Errorf("%s: %d bytes, want at most %d", state, each, row.most)
		}
	}
}
