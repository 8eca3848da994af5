package jobs

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
)

func TestARevokedTokenEndsItsPolls(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		var revoked atomic.Bool
		one := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour, Revoked: revoked.Load})
		synctest.Wait()
		other := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour})
		synctest.Wait()
		revoked.Store(true)
		publish(t, e, ns, "q", "a") // it wakes the one, which may no longer ask
		if r := <-one; !errors.Is(r.err, ErrRevoked) {
			t.Errorf("got %+v", r)
		}
		if r := <-other; payloads(r.jobs) != "a" || r.took != 0 {
			t.Errorf("the other got %+v", r)
		}
		revoked.Store(false)
		third := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour, Revoked: revoked.Load})
		synctest.Wait()
		revoked.Store(true)
		e.Refresh()
		if r := <-third; !errors.Is(r.err, ErrRevoked) || r.took != 0 {
			t.Errorf("the third got %+v", r)
		}
	})
}

// Each change of the control document replaces the namespaces and refreshes the engine.
func TestAChangeOfAnotherNamespaceAsksTheStoreForNobodyWhoWaits(t *testing.T) {
	t.Parallel()
	other := job.DefaultPolicy()
	bubble(t, map[string]job.Policy{"mail": job.DefaultPolicy(), "other": other}, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		for i := range 100 {
			claims(e, Claim{Namespace: ns, Queues: []string{fmt.Sprint("idle", i)}, Wait: time.Hour})
		}
		clocktest.Pass(time.Second)
		_, before := s.ran()
		other.MaxJobs--
		s.Set(t, "other", other)
		e.Refresh()
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"idle0"}}); len(r.jobs) > 0 || r.err != nil {
			t.Errorf("got %+v", r)
		}
		clocktest.Pass(time.Minute)
		if _, after := s.ran(); after-before != 1 {
			t.Errorf("%d claims, and one came", after-before)
		}
	})
}

func TestPollsFollowTheirQueueToMoreShards(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Shards = 8
	bubble(t, map[string]job.Policy{"mail": policy}, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		p := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour})
		synctest.Wait()
		policy.Spread = map[string]int{"q": 8}
		s.Set(t, "mail", policy)
		e.Refresh()
		synctest.Wait()
		shards := s.Namespace("mail").Shards("q")
		push := &job.Publish{Namespace: s.Namespace("mail"), Queue: "q", Shard: shards[7], Tries: 1, Messages: []job.Message{{Payload: []byte("a")}}}
		e.Publish(push)
		if r := <-p; payloads(r.jobs) != "a" || r.took != 0 {
			t.Errorf("got %+v", r)
		}
		gone := claims(e, Claim{Namespace: s.Namespace("mail"), Queues: []string{"q"}, Wait: time.Hour})
		synctest.Wait()
		s.With(func() { delete(s.Namespaces, "mail") })
		e.Refresh()
		if r := <-gone; !errors.Is(r.err, ErrNoNamespace) {
			t.Errorf("got %+v", r)
		}
	})
}

func TestAPollThatEndsWhileItMovesLeavesNoSubscription(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Shards = 8
	bubble(t, map[string]job.Policy{"mail": policy}, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		stopping, release := make(chan struct{}), make(chan struct{})
		p := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour, Stopping: stopping})
		synctest.Wait()
		policy.Spread = map[string]int{"q": 8}
		s.Set(t, "mail", policy)
		s.wakes.SetWanting(func() { <-release })
		go e.Refresh()
		synctest.Wait()
		close(stopping)
		synctest.Wait()
		close(release)
		if r := <-p; len(r.jobs) > 0 || r.err != nil {
			t.Errorf("got %+v", r)
		}
		synctest.Wait()
		if n := s.wakes.Wanted(); n > 0 {
			t.Errorf("%d subscriptions are left", n)
		}
	})
}

func TestNothingIsKnownOfANamespaceThatIsGone(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		publish(t, e, ns, "q", strings.Repeat("x", largePublish))
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}}); len(r.jobs) != 1 {
			t.Fatalf("got %+v", r)
		}
		e.Refresh()
		for _, want := range []int{1, 0} {
			e.mu.Lock()
			if len(e.last) != want {
				t.Errorf("the last answers of %d namespaces are known, want %d", len(e.last), want)
			}
			e.mu.Unlock()
			s.With(func() { delete(s.Namespaces, "mail") })
			e.Refresh()
		}
	})
}
