package job_test

import (
	"fmt"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
)

func TestCountsOfQueues(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		c := newScene(s)
		s.stored(group{queue: "a", delay: 1e9, bodies: bodies(2)})
		s.same("counts", s.counts(100, "a", "b", "none"), []any{5, 5, 5, 2, c.ready["a"][0], 5, 3, 5, 2, c.ready["b"][0], 0, 0, 0, 0, ""})
		s.same("too many to tell apart", s.counts(7, "a"), []any{5, -1, 10, 2, c.ready["a"][0]})
		s.ack("a", c.ready["a"][0])
		s.same("the oldest", s.counts(100, "a")[4], c.ready["a"][1])
	})
}

func TestDeadLettersComeInPages(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.put("a", bodies(5)...)
		for i, job := range s.claim("a", 5) {
			s.clock = start + int64(i)*1000
			s.settle(settle{"a", job.seq, 1, "bury", 0})
		}
		page := func(skip, count, bytes int) []any {
			return s.must(luajob.DeadPage, []string{s.key("j:a"), s.key("d:a"), s.key("u:a")}, skip, count, bytes)[1:]
		}
		record := func(i int) string { return fmt.Sprint("0000000000000 3 body ", i) }
		s.same("page", page(1, 2, 1000), []any{5, seqs[1], start/1000 + 1, 3, record(1), "", seqs[2], start/1000 + 2, 3, record(2), ""})
		s.same("bytes", page(0, 5, 1), []any{5, seqs[0], start / 1000, 3, record(0), ""})
		s.same("behind the end", page(5, 5, 1000), []any{5})
	})
}

// Large jobs are read about 1 MiB a call. The answer tells that there is more.
func TestCallsReadABoundedNumberOfBytes(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		large := strings.Repeat("x", 300_000)
		s.clock = start
		fill := func(ends int64, id string) {
			for i := range 14 {
				s.stored(group{queue: "a", id: fmt.Sprint(id, i), ends: ends, bodies: []string{large}})
			}
		}
		s.bytes = 1 << 30
		fill(0, "dead")
		for _, job := range s.claim("a", 14) {
			s.settle(settle{"a", job.seq, 1, "bury", 0})
		}
		reply := s.must(luajob.Respawn, s.common("a"), s.respawnArgs("a", "respawn")...)
		s.same("respawn", reply[1:2], []any{4})
		reply = s.must(luajob.Respawn, s.common("a"), s.respawnArgs("a", "delete")...)
		s.same("delete", reply[1:2], []any{4})

		s.same("purge", s.purge("a", "ready", 100), []int64{100, 4})
		for s.purge("a", "all", 100)[0] == 100 {
		}
		s.same("counts", s.counts(100, "a"), []any{0, 0, 0, 0, ""})

		fill(s.now()+1, "expired")
		s.clock += 5000
		s.same("peek", s.peek("a")[1], 0)
		s.do("zadd", s.key("queues"), 1, "a")
		keys, argv := s.promoteCall(due{"a", "head", nil})
		s.same("heads", s.must(luajob.Promote, keys, argv...)[1:], []any{0, 0, 4, 0, 1})
		s.same("still due", s.c.ZScore(ctx, s.key("queues"), "a").Val() <= float64(s.now()), true)
		s.same("expire", s.expire("a"), 10)
		s.exact("a")
	})
}

// What a call copies of jobs that are kept is about 1 MiB; the others are for another call.
func TestAnAckBoundsWhatItKeeps(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		large := strings.Repeat("x", 600<<10)
		seqs := s.put("a", large, large, large)
		s.claim("a", 3)
		ack := func(seqs ...int64) []any {
			keys, argv := s.ackCall("a")
			argv[1], argv[3] = "a 60000 1000", len(seqs)
			for _, seq := range seqs {
				argv = append(argv, seq)
			}
			return s.must(luajob.Ack, append(keys, s.key("kept"), s.key("a:a"), s.key("k:a")), argv...)[1:]
		}
		s.same("acks", ack(seqs...), []int64{1, 1, -2})
		s.same("leases", s.c.ZCard(ctx, s.key("lease")).Val(), 1)
		s.same("again", ack(seqs...), []int64{0, 0, 1})
		s.same("kept", s.total("kept"), 3)
		s.exact("a")
	})
}
