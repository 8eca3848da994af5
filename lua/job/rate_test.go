package job_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

// rated claims from one queue under a rate: pause in ns between jobs, burst jobs.
func (s *shard) rated(queue string, count int, pause, burst int64) (jobs, left int64) {
	s.t.Helper()
	keys, argv, each := s.claimCall("lane", "t", true, request{queues: []string{queue}, count: count})
	argv[5] = fmt.Sprintf("1 %d %d", pause, burst)
	got := parseClaims(s.must(luajob.Claim, append(keys, s.key("rate:"+queue)), argv...), each)
	return int64(len(got.jobs[0])), got.left[0]
}

// The clock of these tests is their own, but Redis ends the key of a rate by its own: pauses are long.
const ms = 1_000_000 // ns

func TestARateLetsPassABurstAndThenOneJobAPause(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		s.put("a", bodies(20)...)
		s.put("b", bodies(5)...)
		want := func(what string, wantJobs, wantLeft int64) {
			t.Helper()
			jobs, left := s.rated("a", 10, 100_000*ms, 3)
			s.same(what, []int64{jobs, left}, []int64{wantJobs, wantLeft})
		}
		jobs, left := s.rated("a", 3, 100_000*ms, 3)
		s.same("at first, all that was asked for", []int64{jobs, left}, []int64{3, -100_001})
		want("at once again", 0, -100_001)
		s.clock += 60_000_000
		want("60 s later", 0, -40_001)
		s.clock += 40_000_000
		want("after a pause", 1, -100_001)
		s.clock += 10_000_000_000
		want("after a rest", 3, -100_001)
		s.same("an other queue", len(s.claim("b", 9)), 5)
		s.clock += 1_000_000_000
		keys, argv, each := s.claimCall("lane", "t", false, request{queues: []string{"a", "b"}, count: 9}, request{queues: []string{"a"}, count: 9})
		argv[6] = fmt.Sprintf("0 %d 2", 100_000*ms)
		got := parseClaims(s.must(luajob.Claim, append(keys, s.key("rate:a")), argv...), each)
		s.same("two requests share a rate", []int{len(got.jobs[0]), len(got.jobs[1])}, []int{2, 0})
		s.exact("a", "b")
	})
}

// A queue hands out what a bucket holds that starts full and gets a job each pause: not one more, and all
// of that while it has ready jobs.
func TestARateIsExact(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		random := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- a test
		for _, row := range []struct{ pause, burst int64 }{{10_000_000_001, 500}, {2_000_000_000_000, 1}, {333_333_333_333, 7}, {3_600_000 * ms, 2}} {
			s.clock = start
			s.do("del", s.key("rate:a"))
			bucket, held := float64(row.burst), 0
			for range 200 {
				if s.c.LLen(ctx, s.key("r:a")).Val() < 60 {
					s.put("a", bodies(300)...)
				}
				asked := 1 + random.IntN(60)
				got, left := s.rated("a", asked, row.pause, row.burst)
				// Each call may round a µs up.
				if least, most := min(asked, int(bucket-0.01)), min(asked, int(bucket+1e-9)); int(got) < least || int(got) > most {
					t.Fatalf("%+v: asked for %d, got %d of a bucket of %f", row, asked, got, bucket)
				}
				if bucket -= float64(got); int(got) < asked {
					if held++; left > -2 {
						t.Fatalf("%+v: got %d of %d, left %d", row, got, asked, left)
					}
				}
				step := random.Int64N(1 + row.pause*min(row.burst, 30)/2000)
				s.clock += step
				bucket = min(float64(row.burst), bucket+float64(step)*1000/float64(row.pause))
			}
			if held < 20 {
				t.Errorf("%+v: held back %d times only", row, held)
			}
		}
		s.exact("a")
	})
}

// A clock that goes back, and a rule that becomes faster, hold a queue up for its burst at most.
func TestWhatARateRemembersIsBounded(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		s.put("a", bodies(20)...)
		s.rated("a", 2, 600_000*ms, 2)
		s.clock -= 3600_000_000
		if _, left := s.rated("a", 1, 100_000*ms, 5); left < -500_001 {
			t.Errorf("an hour back: held for %d ms", -1-left)
		}
		s.clock += 100_000_000
		jobs, _ := s.rated("a", 9, 100_000*ms, 5)
		s.same("jobs after a pause", jobs, 1)
		s.exact("a")
	})
}

func TestARateWhoseKeyIsForeignRejectsTheClaim(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.put("a", bodies(3)...)
		s.do("rpush", s.key("rate:a"), "x")
		keys, argv, _ := s.claimCall("lane", "t", true, request{queues: []string{"a"}, count: 1})
		argv[5] = "1 1000 1"
		if _, err := s.try(luajob.Claim, append(keys, s.key("rate:a")), argv...); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("got %v", err)
		}
		s.exact("a")
		argv[5] = "1 0 1"
		if _, err := s.try(luajob.Claim, append(keys, s.key("rate:a")), argv...); err == nil || !strings.Contains(err.Error(), "bad arguments") {
			t.Errorf("a pause of 0: got %v", err)
		}
	})
}

// limited claims from one queue under a limit of most leases.
func (s *shard) limited(queue string, count, most int) (seqs []int64, left int64) {
	s.t.Helper()
	keys, argv := s.limitedCall(queue, count, most)
	got := parseClaims(s.must(luajob.Claim, keys, argv...), []string{queue})
	for _, j := range got.jobs[0] {
		seqs = append(seqs, j.seq)
	}
	return seqs, got.left[0]
}

func (s *shard) limitedCall(queue string, count, most int) (keys []string, argv []any) {
	keys, argv, _ = s.claimCall("lane", "t", true, request{queues: []string{queue}, count: count})
	argv[5] = fmt.Sprintf("1 0 0 %d publish w:", most)
	return append(keys, s.spare()...), argv
}

const noSlot = -1 << 50

// What another program wrote under the key rejects the claims that need it, and no end of a lease.
func TestAForeignKeyOfLimitsRejectsClaims(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.put("a", bodies(3)...)
		s.limited("a", 1, 1)
		s.do("del", s.key("slots"))
		s.do("set", s.key("slots"), "foreign")
		before := s.snapshot()
		keys, argv := s.limitedCall("a", 1, 1)
		if _, err := s.try(luajob.Claim, keys, argv...); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("claim: got %v", err)
		}
		s.same("the shard", s.snapshot(), before)
		keys, argv = s.ackCall("a", seqs[0])
		if reply, err := s.try(luajob.Ack, keys, argv...); err != nil || fmt.Sprint(reply[1:]) != "[1]" {
			t.Errorf("ack: got %v, %v", reply, err)
		}
	})
}

// A shard without limits has neither keys nor commands of them.
func TestOnlyLimitedShardsCountLeases(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.put("a", bodies(3)...)
		s.ack("a", s.claim("a", 1)[0].seq)
		s.same("asked", s.spared, 0)
		seqs, left := s.limited("a", 2, 1)
		s.same("jobs and left", []int64{int64(len(seqs)), left}, []int64{1, noSlot})
		s.ack("a", seqs[0])
		s.same("asked", s.spared, 1)
		s.same("counted", s.c.HGetAll(ctx, s.key("slots")).Val(), map[string]string{})
	})
}

// Walks of the model meet these too rarely to find a bug in them by themselves.
func TestScenesThatWalksRarelyMeet(t *testing.T) {
	t.Parallel()
	client := redistest.SharedClient(t)
	for name, row := range map[string]struct {
		bug  seeded
		play func(s *shard)
	}{
		"an audit gives back the slot of a lease that is gone": {seeded{"expire", "totals.slots.free(name, k.r, seq)", ""}, func(s *shard) {
			seqs := s.put("a", bodies(2)...)
			s.limited("a", 2, 1)
			s.do("zrem", s.key("lease"), fmt.Sprint(seqs[0], " a"))
			s.must(luajob.Expire, s.common("a"), "a", "0", 200, 1, s.channel(), "publish")
			again, _ := s.limited("a", 2, 1)
			s.same("claimed", again, seqs[1:])
		}},
		"three errors of a job are kept": {seeded{"settle", `(string.match(older, '^[^\n]*\n[^\n]*') or older)`, "older"}, func(s *shard) {
			seq := s.stored(group{queue: "a", bodies: bodies(1), tries: 9})[0]
			for x := range 5 {
				s.claim("a", 1)
				s.settle(settle{"a", seq, 0, fmt.Sprint("nack why", x), 0})
			}
			kept := s.c.HGet(ctx, s.key("u:a"), fmt.Sprint("!", seq)).Val()
			s.same("errors", []any{strings.Count(kept, "why"), strings.Contains(kept, "why2")}, []any{3, true})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShard(t, client)
			s.clock = start
			row.play(s)
			quiet := &tolerant{TB: t}
			s = newShard(quiet, client)
			s.clock, s.bug = start, row.bug
			if row.play(s); !quiet.failed {
				t.Error("it does not see the bug")
			}
		})
	}
}
