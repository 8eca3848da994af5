package job_test

import (
	"fmt"
	"testing"
)

const start = 1_763_600_000_000_000 // µs since 1970

func TestTimeCountsToTheMillisecond(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		ends := s.now() + 1000
		delayed := s.stored(group{queue: "delayed", delay: 1000, bodies: bodies(1)})
		s.stored(group{queue: "claimed", ends: ends, bodies: bodies(1)})
		s.stored(group{queue: "head", ends: ends, bodies: bodies(1)})
		hidden := s.stored(group{queue: "hidden", ends: ends, bodies: bodies(1)})
		lapsing := s.put("lapsing", "x")
		s.claimAll("lane", "t", request{queues: []string{"lapsing"}, count: 1, ttr: 1000})
		for _, ms := range []int64{999, 1000} {
			s.clock = start + ms*1000
			due1 := ms == 1000
			s.same("delayed", s.promote(due{"delayed", "delay", delayed})[0], bit(due1))
			s.same("lapsed", s.promote(due{"lapsing", "lease", lapsing})[0], bit(due1))
			s.same("head", s.promote(due{"head", "head", nil})[2], bit(due1))
			s.same("peek", s.peek("claimed")[1], bit(!due1))
			s.same("get", s.get("hidden", hidden[0])[1], bit(!due1))
			s.same("expire", s.expire("hidden"), bit(due1))
			got := s.claim("claimed", 1)
			s.same("claimed", len(got), bit(!due1))
			if len(got) == 1 {
				s.settle(settle{"claimed", got[0].seq, 1, "requeue", 0})
			}
		}
		s.same("expired", s.total("expired"), 3)
		s.exact("delayed", "claimed", "head", "hidden", "lapsing")
	})
}

// The ttl of a job that somebody holds ends it when the lease does.
func TestALeasedJobExpiresWithItsLease(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		seqs := s.stored(group{queue: "a", ends: s.now() + 100, tries: 1, bodies: bodies(2)})
		s.stored(group{queue: "a", bodies: bodies(1)})
		s.claimAll("lane", "t", request{queues: []string{"a"}, count: 2, ttr: 1000})
		s.clock += 500_000
		s.same("held", s.get("a", seqs[0])[2], "leased")
		s.same("expire leaves it", s.expire("a"), 0)
		s.same("ack counts", s.ack("a", seqs[0]), []int64{1})
		s.clock += 501_000 // the mark of the last try is half a ms
		s.same("the last try, too late to be dead", s.promote(due{"a", "lease", seqs}), []int64{0, 0, 1, 0})
		s.exact("a")
	})
}

func TestTouchKeepsTheMarkOfTheLastTry(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.stored(group{queue: "a", tries: 2, bodies: bodies(1)})
		for attempt := int64(1); attempt <= 2; attempt++ {
			s.claim("a", 1)
			for range 2 {
				s.same("touch", s.settle(settle{"a", seqs[0], attempt, "touch", 1000}), []int64{6})
			}
			s.past("lease", "a", seqs[0])
			s.same(fmt.Sprint("after attempt ", attempt), s.promote(due{"a", "lease", seqs})[:2], []int64{2 - attempt, attempt - 1})
		}
		s.exact("a")
	})
}

// A sequence never repeats and always rises, whatever the clock does.
func TestSequencesRiseThoughTheClockGoesBack(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		var last int64
		for _, step := range []int64{0, 0, 1, -5_000_000, 3_000, 9} {
			s.clock += step
			for _, seq := range s.put("a", bodies(25)...) {
				if seq <= last {
					t.Fatalf("%d after %d", seq, last)
				}
				last = seq
			}
		}
		s.same("first", s.claim("a", 1)[0].seq, int64(start))
		s.exact("a")
	})
}

// Above 2⁵³ a double is not exact, so there a publish is refused before it writes.
func TestSequencesStayBelow53Bits(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		for _, last := range []int64{1<<53 - 3, 1<<53 - 1, 1 << 53, 1<<63 - 1} {
			s := newShard(t, s.c)
			s.do("hset", s.ledger(), "seq", last)
			before := s.snapshot()
			if _, err := s.tryPublish(group{queue: "a", bodies: bodies(3)}); err == nil {
				t.Errorf("after %d: stored", last)
			}
			s.same("the shard", s.snapshot(), before)
		}
		s.do("hset", s.ledger(), "seq", 1<<53-10)
		seqs := s.put("a", bodies(4)...)
		s.same("sequences", seqs, []int64{1<<53 - 9, 1<<53 - 8, 1<<53 - 7, 1<<53 - 6})
		s.same("claimed", s.claim("a", 4)[3].seq, seqs[3])
		s.exact("a")
	})
}
