package job_test

import (
	"testing"
)

func TestAJobGoesFromPublishToAck(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.put("a", "one", "two")
		s.exact("a")
		got := s.claim("a", 5)
		s.same("claimed", got, []claimed{{"a", seqs[0], 1, "0000000000000 3 one"}, {"a", seqs[1], 1, "0000000000000 3 two"}})
		s.exact("a")
		s.same("ack", s.ack("a", seqs[0], seqs[1]), []int64{1, 1})
		s.same("acked", s.total("acked"), 2)
		s.exact("a")
		s.same("again", s.ack("a", seqs[0]), []int64{0})
	})
}

func TestEachVerbMovesAJobBetweenItsStates(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.stored(group{queue: "a", delay: 1000, tries: 2, bodies: []string{"x"}})
		s.same("delayed", s.get("a", seqs[0])[2], "delayed")
		s.past("delay", "a", seqs[0])
		s.same("promote", s.promote(due{"a", "delay", seqs}), []int64{1, 0, 0, 0})
		s.same("peek", s.peek("a")[2:4], []any{seqs[0], 0})
		s.claim("a", 1)
		s.same("touch", s.settle(settle{"a", seqs[0], 1, "touch", 5000}), []int64{6})
		s.same("requeue", s.settle(settle{"a", seqs[0], 1, "requeue", 0}), []int64{1})
		s.claim("a", 1)
		s.same("nack", s.settle(settle{"a", seqs[0], 1, "nack", 0}), []int64{1})
		s.same("second", s.claim("a", 1)[0].attempt, 2)
		s.same("a stale holder", s.settle(settle{"a", seqs[0], 1, "nack", 0}), []int64{0})
		s.exact("a")
		s.past("lease", "a", seqs[0])
		s.same("lapse", s.promote(due{"a", "lease", seqs}), []int64{0, 1, 0, 0})
		s.same("dead", s.get("a", seqs[0])[2], "dead")
		s.exact("a")
		s.same("respawn", s.respawn("a", "respawn", 10, 0), 1)
		s.same("one try more", s.claim("a", 1)[0].attempt, 3)
		s.same("bury", s.settle(settle{"a", seqs[0], 3, "bury", 0}), []int64{3})
		s.same("delete", s.respawn("a", "delete", 10, 0), 1)
		s.exact("a")
		s.put("a", bodies(3)...)
		s.tokens = 0
		s.claim("a", 2)
		s.same("revert", s.revert("lane", "token1", "a"), 2)
		s.exact("a")
		s.same("counts", s.counts(10, "a")[:4], []any{3, 0, 0, 0})
		s.same("purge", s.purge("a", "ready", 2), []int64{2, 2})
		s.claim("a", 1)
		s.same("purge all", s.purge("a", "all", 2), []int64{1, 1})
		s.exact("a")
		s.same("empty", s.counts(10, "a")[:4], []any{0, 0, 0, 0})
	})
}
