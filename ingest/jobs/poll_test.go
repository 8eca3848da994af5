package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/job/jobtest"
)

// bubble runs a test with a clock of its own, and an engine that ends before it does.
func bubble(t *testing.T, policies map[string]job.Policy, test func(*testing.T, *fakeStore, *Engine, *job.Namespace)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t, policies)
		test(t, s, start(t, s), s.Namespace("mail"))
	})
}

// result is what a claim ended with.
type result struct {
	jobs []job.Job
	err  error
	took time.Duration
}

// claims runs a claim in a goroutine.
func claims(e *Engine, c Claim) <-chan result {
	ch := make(chan result, 1)
	if c.Count == 0 {
		c.Count = 1
	}
	if c.TTR == 0 {
		c.TTR = time.Minute
	}
	go func() {
		began := time.Now()
		jobs, err := e.Claim(&c)
		ch <- result{jobs, err, time.Since(began)}
	}()
	return ch
}

func TestAClaimWithoutWaitAnswersAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}}); r.jobs != nil || r.err != nil {
			t.Errorf("an empty queue: %+v", r)
		}
		publish(t, e, ns, "q", "a", "b", "c")
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"p", "q"}, Count: 2}); payloads(r.jobs) != "a b" || r.took != 0 {
			t.Errorf("got %+v", r)
		}
	})
}

func TestIdlePollsCostNoCommand(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		var polls []<-chan result
		for i := range 1000 {
			polls = append(polls, claims(e, Claim{Namespace: ns, Queues: []string{fmt.Sprint("q", i%10), "all"}, Wait: 10 * time.Minute}))
		}
		clocktest.Pass(time.Second)
		before, claimed := s.ran()
		clocktest.Pass(9 * time.Minute)
		if after, _ := s.ran(); after != before || claimed > 2000 {
			t.Errorf("%d calls while all waited; %d claims before", after-before, claimed)
		}
		for _, p := range polls {
			if r := <-p; r.jobs != nil || r.err != nil || r.took != 10*time.Minute {
				t.Fatalf("got %+v", r)
			}
		}
	})
}

func TestAPublishWakesAsManyAsItsJobs(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		var got atomic.Int64
		for range 20 {
			go func() {
				jobs, err := e.Claim(&Claim{Namespace: ns, Queues: []string{"q"}, Count: 1, Wait: time.Hour / 2, TTR: time.Hour})
				if err != nil {
					t.Error(err)
				}
				got.Add(int64(len(jobs)))
			}()
		}
		synctest.Wait()
		_, before := s.ran()
		publish(t, e, ns, "q", "a", "b", "c")
		synctest.Wait()
		if _, after := s.ran(); got.Load() != 3 || after-before != 3 {
			t.Errorf("%d polls got a job, after %d claims", got.Load(), after-before)
		}
	})
}

// A claim that the rate stops waits for it: one claim a job that passes, and none meanwhile, however many wait.
func TestClaimsThatARateStopsWaitForIt(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		s.With(func() { s.Pause = time.Minute })
		publish(t, e, ns, "q", "a", "b", "c", "d")
		var polls []<-chan result
		for range 100 {
			polls = append(polls, claims(e, Claim{Namespace: ns, Queues: []string{"q", "empty"}, Wait: 150 * time.Second}))
		}
		clocktest.Pass(time.Second)
		_, before := s.ran()
		clocktest.Pass(140 * time.Second)
		_, after := s.ran()
		got := map[time.Duration]int{}
		for _, p := range polls {
			r := <-p
			if r.err != nil || len(r.jobs) > 1 {
				t.Fatalf("got %+v", r)
			}
			got[r.took] += len(r.jobs)
		}
		if got[0] != 1 || got[time.Minute] != 1 || got[2*time.Minute] != 1 || after-before > 6 {
			t.Errorf("jobs by the time they were waited for: %v, after %d claims", got, after-before)
		}
		publish(t, e, ns, "other", "x") // a rate of one queue holds no other up
		s.SetPause(time.Minute)
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"other"}}); payloads(r.jobs) != "x" {
			t.Errorf("got %+v", r)
		}
	})
}

// W2: a job that comes at any moment around the claim and the subscription is found.
func TestNoPollSleepsBesideAJobThatCameWhileItSubscribed(t *testing.T) {
	t.Parallel()
	for at := range 60 {
		for _, latency := range []time.Duration{1, 5, 12} {
			bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
				s.With(func() { s.delay, s.after = 7*time.Millisecond, 9*time.Millisecond })
				s.wakes.SetLatency(latency * time.Millisecond)
				p := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Minute})
				clocktest.Pass(time.Duration(at) * time.Millisecond)
				s.arrives(ns, "q", "a")
				if r := <-p; payloads(r.jobs) != "a" || r.took > 200*time.Millisecond {
					t.Errorf("published after %d ms: got %+v", at, r)
				}
			})
		}
	}
}

// W3: a push to a list that is not empty says nothing; the claim that looks does.
func TestWhoClaimsWakesOthersForWhatIsLeft(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		var polls []<-chan result
		for range 5 {
			polls = append(polls, claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Minute}))
		}
		synctest.Wait()
		publish(t, e, ns, "q", "a", "b", "c", "d", "e", "f")
		for i, p := range polls {
			if r := <-p; len(r.jobs) != 1 || r.took != 0 {
				t.Errorf("poll %d: got %+v", i, r)
			}
		}
		if ready, _ := s.ready("q"); ready != 1 {
			t.Errorf("%d are ready", ready)
		}
	})
}

func TestAJobLeftByAClaimWithoutWaitWakesWhoWaits(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		p := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Minute})
		synctest.Wait()
		for _, payload := range []string{"a", "b"} { // as if a wake were lost for ever
			s.Put("mail", false, &jobtest.Job{Job: job.Job{Queue: "q", Payload: []byte(payload)}})
		}
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}}); payloads(r.jobs) != "a" {
			t.Errorf("got %+v", r)
		}
		if r := <-p; payloads(r.jobs) != "b" || r.took != 0 {
			t.Errorf("got %+v", r)
		}
	})
}

// W4: a poll that was woken, and ends without having asked, wakes the next.
func TestAWokenPollThatLeavesWakesTheNext(t *testing.T) {
	t.Parallel()
	push := func(s *fakeStore, ns *job.Namespace, queues ...string) {
		for _, queue := range queues {
			s.arrives(ns, queue, queue)
		}
	}
	wait := func(e *Engine, c Claim) <-chan result {
		p := claims(e, c)
		synctest.Wait()
		return p
	}
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) { // also of another queue than the one that woke it
		var revoked atomic.Bool
		first := wait(e, Claim{Namespace: ns, Queues: []string{"q", "r"}, Wait: time.Minute, Revoked: revoked.Load})
		second := wait(e, Claim{Namespace: ns, Queues: []string{"r"}, Wait: time.Minute})
		third := wait(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Minute})
		revoked.Store(true)
		push(s, ns, "q")
		if r := <-first; !errors.Is(r.err, ErrRevoked) {
			t.Errorf("the first got %+v", r)
		}
		if r := <-third; payloads(r.jobs) != "q" || r.took != 0 {
			t.Errorf("the third got %+v", r)
		}
		if r := <-second; r.jobs != nil || r.took != time.Minute {
			t.Errorf("the second got %+v", r)
		}
	})
	policy := job.DefaultPolicy()
	policy.Shards = 8
	bubble(t, map[string]job.Policy{"mail": policy}, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		// It has enough before it asks the shard of the queue that woke it.
		first := wait(e, Claim{Namespace: ns, Queues: []string{"q", "r"}, Wait: time.Minute})
		second := wait(e, Claim{Namespace: ns, Queues: []string{"r"}, Wait: time.Minute})
		if slices.Equal(ns.Shards("q"), ns.Shards("r")) {
			t.Fatal("both queues have the same shard")
		}
		push(s, ns, "r", "q")
		if r := <-first; payloads(r.jobs) != "q" || r.took != 0 {
			t.Errorf("the first got %+v", r)
		}
		if r := <-second; payloads(r.jobs) != "r" || r.took != 0 {
			t.Errorf("the second got %+v", r)
		}
	})
	// The wait is over when it is woken: whichever it sees first.
	for range 50 {
		bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
			first := wait(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Minute})
			second := wait(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour})
			clocktest.Pass(time.Minute)
			push(s, ns, "q")
			one := <-first
			if len(one.jobs) == 0 {
				one = <-second
			}
			if payloads(one.jobs) != "q" || one.took != time.Minute {
				t.Errorf("got %+v", one)
			}
			_ = e.Stop(context.Background())
		})
	}
}

// W5: after a reconnect all ask again.
func TestPollsAskAgainAfterTheirSubscriptionsWereLost(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		p := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour})
		synctest.Wait()
		s.With(func() { s.Fail = func(*job.Batch) error { return errAway } })
		s.wakes.SetDeaf(true, true)
		clocktest.Pass(time.Minute)
		before, _ := s.ran()
		clocktest.Pass(time.Minute)
		if after, _ := s.ran(); after-before > 60 {
			t.Errorf("asked %d times in a minute of an outage", after-before)
		}
		s.With(func() {
			s.Fail = nil
		})
		s.arrives(ns, "q", "a")
		s.wakes.SetDeaf(false, true) // at once, not after the pause
		if r := <-p; payloads(r.jobs) != "a" || r.took > 2*time.Minute+100*time.Millisecond {
			t.Errorf("got %+v", r)
		}
	})
}

func TestPollsFindJobsAlsoWhereNoSubscriptionWorks(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		s.wakes.SetDeaf(true, true)
		p := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour})
		clocktest.Pass(time.Minute)
		if runs, _ := s.ran(); runs > 60 {
			t.Errorf("asked %d times in a minute", runs)
		}
		publish(t, e, ns, "q", "a")
		if r := <-p; payloads(r.jobs) != "a" || r.took > time.Minute+maxPause {
			t.Errorf("got %+v", r)
		}
	})
}

func TestAClaimAsksAgainWhereTheAnswerWasFullOfOthersJobs(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Minute} {
		bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
			publish(t, e, ns, "q", "a")
			s.With(func() { s.full = 3 })
			if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: wait}); payloads(r.jobs) != "a" || r.took != 0 {
				t.Errorf("wait %v: got %+v", wait, r)
			}
		})
	}
}

func TestOpenPollsGetAnEmptyAnswerAtShutdown(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		stopping := make(chan struct{})
		retired := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour, Stopping: stopping})
		stopped := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour})
		synctest.Wait()
		close(stopping)
		if r := <-retired; r.jobs != nil || r.err != nil || r.took != 0 {
			t.Errorf("retired: got %+v", r)
		}
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if r := <-stopped; r.jobs != nil || r.err != nil || r.took != 0 {
			t.Errorf("stopped: got %+v", r)
		}
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour}); !errors.Is(r.err, ErrStopping) {
			t.Errorf("afterwards: got %+v", r)
		}
		p := &job.Publish{Namespace: ns, Queue: "q", Messages: []job.Message{{}}}
		if e.Publish(p); !errors.Is(p.Err, ErrStopping) {
			t.Error(p.Err)
		}
	})
}

// An answer without jobs is the store's, also where the server ends meanwhile.
func TestAClaimSaysThatThereIsNoJobOnlyIfTheStoreDoes(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread = 4, map[string]int{"q": 4}
	for _, wait := range []time.Duration{0, time.Hour} {
		for at := range 6 { // the claim that flies when the server ends; 5: before them
			for name, end := range map[string]func(*Engine, chan struct{}){
				"stop": func(e *Engine, _ chan struct{}) { go func() { _ = e.Stop(context.Background()) }() }, "retire": func(_ *Engine, stopping chan struct{}) { close(stopping) },
			} {
				bubble(t, map[string]job.Policy{"mail": policy}, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
					stopping, flown := make(chan struct{}), 0
					s.With(func() {
						s.full = 1
						s.flies = func(b *job.Batch) {
							if len(b.Claims) == 0 {
								return
							}
							if flown++; flown-1 == at {
								end(e, stopping)
								clocktest.Take(time.Second)
							}
						}
					})
					if at == 5 && name == "retire" {
						close(stopping)
					}
					last := ns.Shards("q")[0] // a first poll begins at the second
					e.Publish(&job.Publish{Namespace: ns, Queue: "q", Shard: last, Tries: 1, Messages: []job.Message{{Payload: []byte("a")}}})
					if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: wait, Stopping: stopping}); payloads(r.jobs) != "a" || r.err != nil {
						t.Errorf("%s at claim %d, wait %v: got %q %v", name, at, wait, payloads(r.jobs), r.err)
					}
				})
			}
		}
	}
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		s.With(func() { s.Fail = func(*job.Batch) error { return errAway } })
		stopping := make(chan struct{})
		retired := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour, Stopping: stopping})
		stopped := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour})
		clocktest.Pass(time.Minute)
		close(stopping)
		if r := <-retired; !errors.Is(r.err, errAway) {
			t.Errorf("retired in an outage: got %+v", r)
		}
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if r := <-stopped; !errors.Is(r.err, errAway) {
			t.Errorf("stopped in an outage: got %+v", r)
		}
	})
}

func TestAClaimOverShardsAsksThemInTurn(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread = 4, map[string]int{"q": 4}
	bubble(t, map[string]job.Policy{"mail": policy}, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		for _, shard := range ns.Shards("q") {
			e.Publish(&job.Publish{Namespace: ns, Queue: "q", Shard: shard, Tries: 1, Messages: []job.Message{{Payload: []byte("a")}, {Payload: []byte("b")}}})
		}
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Count: 7}); len(r.jobs) != 7 {
			t.Errorf("got %d jobs", len(r.jobs))
		}
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Count: 7, Wait: time.Minute}); len(r.jobs) != 1 {
			t.Errorf("got %d jobs", len(r.jobs))
		}
		for _, shard := range ns.Shards("q") { // each of them wakes
			p := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Minute})
			synctest.Wait()
			e.Publish(&job.Publish{Namespace: ns, Queue: "q", Shard: shard, Tries: 1, Messages: []job.Message{{Payload: []byte("c")}}})
			if r := <-p; payloads(r.jobs) != "c" || r.took != 0 {
				t.Errorf("shard %d: got %+v", shard, r)
			}
		}
	})
}

// Whatever happens, in the end no poll sleeps beside a ready job, and none is leased that
// nobody was handed.
func TestAClaimMayNameMoreQueuesThanOneCallTakes(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		queues := make([]string, 4*job.MaxQueues)
		for i := range queues {
			queues[i] = fmt.Sprint("q", i)
		}
		publish(t, e, ns, queues[100], "2")
		publish(t, e, ns, queues[1], "1")
		if r := <-claims(e, Claim{Namespace: ns, Queues: queues, Count: 2}); r.err != nil || payloads(r.jobs) != "1 2" {
			t.Errorf("got %q %v", payloads(r.jobs), r.err)
		}
		waiting := claims(e, Claim{Namespace: ns, Queues: queues, Count: 2, Wait: time.Minute})
		synctest.Wait()
		publish(t, e, ns, queues[len(queues)-1], "3")
		if r := <-waiting; r.err != nil || payloads(r.jobs) != "3" {
			t.Errorf("got %q %v", payloads(r.jobs), r.err)
		}
	})
}
