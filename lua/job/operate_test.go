package job_test

import (
	"fmt"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
)

// revert gives back what is still leased under the deadline that its claim set.
func TestRevertTakesBackItsClaimOnly(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.put("a", bodies(6)...)
		s.claimAll("lane", "t1", request{queues: []string{"a"}, count: 4})
		s.same("another token", s.revert("lane", "t0", "a"), 0)
		s.ack("a", seqs[0])
		s.settle(settle{"a", seqs[1], 1, "touch", 90_000}, settle{"a", seqs[2], 1, "nack", 0})
		s.same("the one that is left", s.revert("lane", "t1", "a"), 1)
		s.same("again", s.revert("lane", "t1", "a"), 0)
		s.same("ready", s.c.LRange(ctx, s.key("r:a"), 0, -1).Val(), []int64{seqs[3], seqs[4], seqs[5], seqs[2]})
		s.claimAll("lane", "t2", request{queues: []string{"a"}, count: 1})
		s.claimAll("lane", "t3", request{queues: []string{"a"}, count: 1})
		s.same("a claim before the last", s.revert("lane", "t2", "a"), 0)
		s.exact("a")
	})
}

// Two lanes remember their claims apart.
func TestLanesDoNotRevertEachOther(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.put("a", bodies(2)...)
		s.claimAll("one", "t", request{queues: []string{"a"}, count: 1})
		s.claimAll("two", "t", request{queues: []string{"a"}, count: 1})
		s.same("reverted", s.revert("one", "t", "a"), 1)
		s.same("ready", s.c.LRange(ctx, s.key("r:a"), 0, -1).Val(), seqs[:1])
		s.exact("a")
	})
}

func TestARespawnedJobHasOneTryMore(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		seqs := s.stored(group{queue: "a", ends: s.now() + 60_000, tries: 2, bodies: bodies(3)})
		for attempt := range int64(2) {
			for _, job := range s.claim("a", 3) {
				s.same("attempt", job.attempt, attempt+1)
				s.settle(settle{"a", job.seq, 0, "nack", 0})
				s.clock += 1000 // they die one after the other
			}
		}
		s.clock += 120e6
		s.same("dead jobs have no ttl", s.expire("a"), 0)
		s.do("hset", s.key("attempts"), fmt.Sprint(seqs[0], " a"), 7) // left behind by another program
		s.same("respawn", s.respawn("a", "respawn", 2, 500), 2)
		s.same("dead", s.total("dead"), 1)
		got := s.claim("a", 9)
		s.same("oldest first", []any{len(got), got[0].seq, got[0].attempt}, []any{2, seqs[0], 3})
		s.same("record", got[0].record, fmt.Sprintf("%013d 3 body 0", s.now()+500))
		for _, verb := range []string{"nack", "bury", "touch"} {
			stale := []settle{{"a", seqs[0], 1, verb, 1}, {"a", seqs[0], 2, verb, 1}}
			s.same("the holders before: "+verb, s.settle(stale...), []int64{0, 0})
		}
		s.same("the try more", s.settle(settle{"a", seqs[0], 3, "nack", 0}), []int64{3})
		s.same("delete", s.respawn("a", "delete", 9, 0), 2)
		s.same("ledger", []int64{s.total("died"), s.total("respawned"), s.total("deleted"), s.total("dead")}, []int64{4, 2, 2, 0})
		s.exact("a")
	})
}

func TestDeadLettersAreKeptWhereTheQueueKeepsThem(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.keeps = false
		seqs := s.stored(group{queue: "a", id: "x", tries: 1, bodies: bodies(1)})
		lapsing := s.stored(group{queue: "a", id: "y", tries: 1, bodies: bodies(1)})
		s.put("a", "stays")
		s.claim("a", 2)
		s.same("bury", s.settle(settle{"a", seqs[0], 1, "bury", 0}), []int64{4})
		s.past("lease", "a", lapsing...)
		s.same("lapse", s.promote(due{"a", "lease", lapsing}), []int64{0, 0, 1, 0})
		s.same("ids", s.c.Exists(ctx, s.key("u:a")).Val(), 0)
		s.exact("a")
	})
}

func TestPurgeOfAllTakesEveryStateInBoundedCalls(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		c := newScene(s)
		other := s.counts(1000, "b")
		looked, deleted := int64(0), int64(0)
		for {
			got := c.purge("a", "all", 4)
			looked, deleted = looked+got[0], deleted+got[1]
			s.exact("a", "b")
			if got[0] < 4 {
				break
			}
		}
		s.same("looked at, deleted", []int64{looked, deleted}, []int64{16, 15})
		s.same("counts", s.counts(1000, "a"), []any{0, 0, 0, 0, ""})
		s.same("the other queue", s.counts(1000, "b"), other)
		s.same("its ids are free", s.publish(group{queue: "a", id: "mine", bodies: bodies(1)})[0][0], 1)
	})
}

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

// The score of a dead job is when it died, to the ms, and why.
func TestADeadJobSaysWhyItDied(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = 4_102_444_800_123_456 // in 2100: the fraction is exact then, too
		seqs := s.stored(group{queue: "a", tries: 1, bodies: bodies(3)})
		s.claim("a", 3)
		s.settle(settle{"a", seqs[0], 1, "nack", 1000}, settle{"a", seqs[2], 1, "bury", 0})
		s.past("lease", "a", seqs[1])
		s.promote(due{"a", "lease", seqs[1:2]})

		page := s.must(luajob.DeadPage, []string{s.key("j:a"), s.key("d:a"), s.key("u:a")}, 0, 10, 1000)[2:]
		for i, want := range []struct{ seq, reason int64 }{{seqs[0], 1}, {seqs[1], 2}, {seqs[2], 3}} {
			job := s.get("a", want.seq)
			s.same("get", job[2:5], []any{"dead", s.now(), want.reason})
			s.same("page", page[5*i:5*i+3], []any{want.seq, s.now(), want.reason})
		}
		s.exact("a")
	})
}

// A job whose ttl ends in the hands of a silent worker is counted when its lease lapses. The
// last look at the queue found its list empty, and left the next one for an hour later.
func TestALapseFindsThatTheTTLIsOver(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		a := s.stored(group{queue: "a", ends: s.now() + 1000, bodies: bodies(2)})
		b := append(s.stored(group{queue: "b", ends: s.now() + 1000, bodies: bodies(1)}), s.stored(group{queue: "b", ends: s.now() + 5000, bodies: bodies(1)})...)
		s.claimAll("lane", "t", request{queues: []string{"a"}, ttr: 1500, count: 2}, request{queues: []string{"b"}, ttr: 1500, count: 2})
		s.clock += 1_000_000
		s.same("the look", s.promote(due{"a", "head", nil}, due{"b", "head", nil}), []int64{0, 0, 0, 0})
		s.clock += 500_000
		s.same("lapse", s.promote(due{"a", "lease", a}, due{"b", "lease", b}), []int64{4, 0, 3, 0})
		s.same("next look", s.c.ZScore(ctx, s.key("queues"), "b").Val(), float64(start/1000+5000))
		s.exact("a", "b")
	})
}

// Two foreign changes: one job loses its reference and expires, another its record. The
// reference of that one leads nowhere, and is no tombstone of the first: it is lost.
func TestAnExpiredJobWithoutAReferenceLeavesNoTombstone(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		for audit := range 2 {
			s.clock = start
			gone := s.put("a", bodies(2)...)
			expired := s.stored(group{queue: "a", ends: s.now() + 1000, bodies: bodies(1)})[0]
			s.do("lrem", s.key("r:a"), 0, expired)
			s.do("hdel", s.key("j:a"), gone[0])
			s.clock += 2_000_000
			s.same("expire", s.must(luajob.Expire, s.common("a"), "a", "0", 1000, audit, s.channel(), "publish")[1:], []any{"0", 1, 0})
			s.same("tombstones", s.c.HGet(ctx, s.key("tombstones"), "a").Val(), "")
			s.same("claimed", s.claim("a", 9)[0].seq, gone[1])
			s.same("ack", s.ack("a", gone[1]), []int64{1})
			s.same("lost, expired", []int64{s.total("lost"), s.total("expired")}, []int64{int64(audit) + 1, int64(audit) + 1})
			s.exact("a")
		}
	})
}

// An audit pushes jobs again that are in no state, and nothing else.
func TestAuditFindsJobsWithoutAReference(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		c := newScene(s)
		s.expire("a")
		before := s.counts(100, "a", "b")
		ready := s.c.LRange(ctx, s.key("r:a"), 0, -1).Val()
		s.do("del", s.key("r:a"))
		audit := func() []any {
			return s.must(luajob.Expire, s.common("a"), "a", "0", 1000, 1, s.channel(), "publish")[1:]
		}
		s.do("hdel", s.key("tombstones"), "a")
		s.same("audit", audit(), []any{"0", 0, 3})
		s.same("again", audit(), []any{"0", 0, 0})
		s.same("order", s.c.LRange(ctx, s.key("r:a"), 0, -1).Val(), []string{ready[0], ready[3], ready[4]})
		s.same("counts", s.counts(100, "a", "b"), before)
		_ = c
		s.exact("a", "b")
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
			argv[1], argv[3] = "a 60000 100 1000", len(seqs)
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
