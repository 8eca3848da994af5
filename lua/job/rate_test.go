package job_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
)

// rated claims from one queue under a rate: pause in ns between jobs, burst jobs.
func (s *shard) rated(queue string, count int, pause, burst int64) (jobs, left int64) {
	s.t.Helper()
	keys, argv, each := s.claimCall("lane", "t", true, request{queues: []string{queue}, count: count})
	argv[5] = fmt.Sprintf("1 %d %d", pause, burst)
	got := parseClaims(s.must(luajob.Claim, append(keys, s.key("rate:"+queue)), argv...), each)
	return int64(len(got.jobs[0])), got.left[0]
}

const ms = 1_000_000 // ns

func TestARateLetsPassABurstAndThenOneJobAPause(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		s.put("a", bodies(20)...)
		s.put("b", bodies(5)...)
		want := func(what string, wantJobs, wantLeft int64) {
			t.Helper()
			jobs, left := s.rated("a", 10, 100*ms, 3)
			s.same(what, []int64{jobs, left}, []int64{wantJobs, wantLeft})
		}
		jobs, left := s.rated("a", 3, 100*ms, 3)
		s.same("at first, all that was asked for", []int64{jobs, left}, []int64{3, -101})
		want("at once again", 0, -101)
		s.clock += 60_000
		want("60 ms later", 0, -41)
		s.clock += 40_000
		want("after a pause", 1, -101)
		s.clock += 10_000_000
		want("after a rest", 3, -101)
		s.same("an other queue", len(s.claim("b", 9)), 5)
		s.clock += 1_000_000
		keys, argv, each := s.claimCall("lane", "t", false, request{queues: []string{"a", "b"}, count: 9}, request{queues: []string{"a"}, count: 9})
		argv[6] = fmt.Sprintf("0 %d 2", 100*ms)
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
		for _, row := range []struct{ pause, burst int64 }{{10_000_001, 500}, {2_000_000_000, 1}, {333_333_333, 7}, {3_600_000 * ms, 2}} {
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
		s.rated("a", 2, 60_000*ms, 2)
		s.clock -= 3600_000_000
		if _, left := s.rated("a", 1, 100*ms, 5); left < -501 {
			t.Errorf("an hour back: held for %d ms", -1-left)
		}
		s.clock += 100_000
		jobs, _ := s.rated("a", 9, 100*ms, 5)
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
