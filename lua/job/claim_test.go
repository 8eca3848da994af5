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
