package job_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
)

func TestAClaimServesQueuesInOrderAndRequestsInTurn(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		a, b := s.put("a", bodies(3)...), s.put("b", bodies(3)...)
		got := s.claimAll("lane", "t", request{queues: []string{"b", "a"}, count: 4}, request{queues: []string{"a"}, count: 1},
			request{queues: []string{"none", "a", "b"}, count: 9})
		seqs := func(jobs []claimed) (all []int64) {
			for _, j := range jobs {
				all = append(all, j.seq)
			}
			return all
		}
		s.same("first", seqs(got.jobs[0]), append(slices.Clone(b), a[0]))
		s.same("second", seqs(got.jobs[1]), a[1:2])
		s.same("third", seqs(got.jobs[2]), a[2:])
		s.same("left", got.left, []int64{0, 0, 0})
		s.exact("a", "b")
	})
}

func TestAClaimTellsWhatIsLeft(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.put("a", bodies(5)...)
		s.same("left", s.claimAll("lane", "t", request{queues: []string{"a", "b"}, count: 2}).left, []int64{3, 0})
	})
}

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

// A reference without a job is skipped. As many as were removed by their ids are
// tombstones; more than that are lost.
func TestTombstonesAreExact(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.put("a", bodies(8)...)
		s.same("deleted", s.ack("a", seqs[1], seqs[3], seqs[6]), []int64{2, 2, 2})
		s.same("tombstones", s.do("hget", s.key("tombstones"), "a"), 3)
		s.do("hdel", s.key("j:a"), seqs[2])
		got := s.claimAll("lane", "t", request{queues: []string{"a"}, count: 3})
		s.same("claimed", len(got.jobs[0]), 3)
		s.exactBut("a", 1) // what another program removed is not known yet
		got = s.claimAll("lane", "t", request{queues: []string{"a"}, count: 3})
		s.same("claimed", len(got.jobs[0]), 1)
		s.same("lost", s.total("lost"), 1)
		s.same("tombstones", s.c.HExists(ctx, s.key("tombstones"), "a").Val(), false)
		s.exact("a")
	})
}

// exactBut is exact but for n jobs that another program removed and nothing met yet.
func (s *shard) exactBut(queue string, n int64) {
	s.t.Helper()
	live := s.total("published") - s.total("acked") - s.total("expired") - s.total("deleted") - s.total("lost")
	if held := s.c.HLen(ctx, s.key("j:"+queue)).Val(); live-held != n && live != held {
		s.t.Errorf("%d jobs by the ledger, %d there", live, held)
	}
}

func TestTheLastJobTakesTheQueueWithIt(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		for name, end := range map[string]func(seqs []int64){
			"acked":   func(seqs []int64) { s.claim("a", 3); s.ack("a", seqs[0], seqs[1], seqs[2]) },
			"deleted": func(seqs []int64) { s.ack("a", seqs[2], fmt.Sprint(seqs[0]), seqs[1]) },
			"purged":  func(seqs []int64) { s.ack("a", seqs[1]); s.claim("a", 1); s.purge("a", "all", 9) },
			"vanished": func(seqs []int64) {
				s.do("del", s.key("j:a"))
				s.claim("a", 9)
				s.same("lost", s.total("lost"), 3)
			},
			"expired": func(seqs []int64) {
				s.clock = start
				s.do("hset", s.key("j:a"), seqs[0], "1000000000000 3 x", seqs[1], "1000000000000 3 x", seqs[2], "1000000000000 3 x")
				s.expire("a")
				s.clock = 0
			},
		} {
			end(s.put("a", bodies(3)...))
			keys := s.c.Keys(ctx, strings.NewReplacer("{", `\{`, "}", `\}`).Replace(s.prefix)+"*").Val()
			for _, key := range keys {
				if key = strings.TrimPrefix(key, s.prefix); key != "ledger" && key != "out:lane" {
					t.Errorf("%s: %s stays", name, key)
				}
			}
			s.exact("a")
		}
	})
}

// Each job named twice in a call is served once.
func TestAJobNamedTwiceInACall(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.stored(group{queue: "a", tries: 5, bodies: bodies(6)})
		s.claim("a", 4)
		s.same("ack", s.ack("a", seqs[0], seqs[0]), []int64{1, 0})
		s.same("ack of ready", s.ack("a", seqs[4], seqs[4]), []int64{2, 0})
		s.same("settle", s.settle(settle{"a", seqs[1], 0, "touch", 500}, settle{"a", seqs[1], 0, "nack", 500}, settle{"a", seqs[1], 0, "nack", 0},
			settle{"a", seqs[2], 0, "bury", 0}, settle{"a", seqs[2], 0, "requeue", 0},
			settle{"a", seqs[3], 0, "requeue", 0}, settle{"a", seqs[3], 0, "touch", 9}), []int64{6, 2, 0, 3, 0, 1, 0})
		s.past("delay", "a", seqs[1])
		s.same("promote", s.promote(due{"a", "delay", []int64{seqs[1], seqs[1]}}, due{"a", "delay", seqs})[0], 1)
		s.same("ready", s.c.LRange(ctx, s.key("r:a"), 0, -1).Val(), []int64{seqs[3], seqs[4], seqs[5], seqs[1]})
		s.exact("a")
	})
}

// Requeued jobs come back to the head, in the order of the call, as if never claimed.
func TestRequeuedJobsKeepTheirPlaceAndTheirTries(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.stored(group{queue: "a", tries: 1, bodies: bodies(4)})
		for range 3 {
			s.claim("a", 3)
			s.same("requeue", s.settle(settle{"a", seqs[0], 1, "requeue", 0}, settle{"a", seqs[1], 1, "requeue", 0}, settle{"a", seqs[2], 1, "requeue", 0}),
				[]int64{1, 1, 1})
		}
		s.same("ready", s.c.LRange(ctx, s.key("r:a"), 0, -1).Val(), seqs)
		s.exact("a")
	})
}

// The next holder of a requeued job has the same attempt, and a repeat of the requeue, whose
// answer was lost, must leave it alone.
func TestARepeatedRequeueTakesTheJobFromNobody(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.stored(group{queue: "a", tries: 1, bodies: bodies(1)})
		member := fmt.Sprint(seqs[0], " a")
		deadline := func() int64 { return int64(s.c.ZScore(ctx, s.key("lease"), member).Val()) }
		s.claim("a", 1)
		first := deadline()
		s.same("requeue", s.settle(settle{"a", seqs[0], 1, "requeue", first}), []int64{1})
		for s.claim("a", 1); deadline() == first; s.claim("a", 1) { // in the same ms
			s.settle(settle{"a", seqs[0], 1, "requeue", 0})
		}
		s.same("repeat", s.settle(settle{"a", seqs[0], 1, "requeue", first}), []int64{0})
		s.same("the next holder's", s.settle(settle{"a", seqs[0], 1, "requeue", deadline()}), []int64{1})
		s.exact("a")
	})
}
