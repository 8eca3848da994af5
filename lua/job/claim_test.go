package job_test

import (
	"slices"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
)

// The answer ends at about its size, with one job at least. What is too much stays at the
// head, in order, and the answer tells that it is there.
func TestAClaimIsBoundedInBytes(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.bytes = 2500
		seqs := s.put("a", slices.Repeat([]string{strings.Repeat("x", 1000)}, 40)...)
		keys, argv, each := s.claimCall("lane", "t", false, request{queues: []string{"a"}, count: 40}, request{queues: []string{"a"}, count: 40})
		got := parseClaims(s.must(luajob.Claim, keys, argv...), each)
		s.same("jobs", []int{len(got.jobs[0]), len(got.jobs[1])}, []int{3, 0})
		s.same("left", got.left, []int64{37})
		s.same("the next", s.peek("a")[2], seqs[3])
		s.bytes = 1 << 20
		all := s.claim("a", 100)
		for i, job := range all {
			if job.seq != seqs[3+i] {
				t.Fatalf("job %d is %d, want %d", i, job.seq, seqs[3+i])
			}
		}
		s.same("the rest", len(all), 37)
		s.exact("a")
	})
}

// However many jobs the requests of a call ask for, they get 1,000 together: requests of
// empty queues can share a call. The answer tells who is to ask again.
func TestTheRequestsOfACallGetABoundedNumberOfJobs(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.stored(group{queue: "a", bodies: bodies(700)})
		s.stored(group{queue: "b", bodies: bodies(700)})
		all := []request{{queues: []string{"none"}, count: 1000}, {queues: []string{"a"}, count: 1000}, {queues: []string{"b"}, count: 1000},
			{queues: []string{"b"}, count: 1000}}
		for _, want := range [][]int{{0, 700, 300, 0, 0, 0, 400}, {0, 0, 400, 0, 0, 0, 0}} {
			keys, argv, each := s.claimCall("lane", "t", false, all...)
			got, n := parseClaims(s.must(luajob.Claim, keys, argv...), each), []int{}
			for _, jobs := range got.jobs {
				n = append(n, len(jobs))
			}
			for _, left := range got.left {
				n = append(n, int(left))
			}
			s.same("jobs, left", n, want)
			s.exact("a", "b")
		}
	})
}

// A claim drops about 1,000 jobs a call, so that a queue full of expired ones holds
// nobody up. Its answer tells that more are there.
func TestAClaimDropsABoundedNumber(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		s.stored(group{queue: "a", ends: s.now() + 1, bodies: bodies(2500)})
		s.put("a", "last")
		s.clock += 1000
		calls := 0
		for jobs := 0; jobs == 0 && calls < 9; calls++ {
			keys, argv, each := s.claimCall("lane", "t", false, request{queues: []string{"a", "b"}, count: 4})
			got := parseClaims(s.must(luajob.Claim, keys, argv...), each)
			if jobs = len(got.jobs[0]); jobs == 0 && (got.left[0] == 0 || got.expired > 1200) {
				t.Fatalf("call %d: expired %d, left %v", calls, got.expired, got.left)
			}
			s.exact("a", "b")
		}
		s.same("calls", calls, 3)
	})
}

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

// Above 2⁵³ a double is not exact, so there a publish is rejected before it writes.
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
