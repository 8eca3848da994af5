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
)

func ofShards(shards int) map[string]job.Policy {
	policy := job.DefaultPolicy()
	policy.Shards = shards
	return map[string]job.Policy{"mail": policy}
}

// on finds a queue of a shard whose lane is none of the others'.
func on(e *Engine, ns *job.Namespace, shard int, others ...string) string {
	for i := 0; ; i++ {
		queue := fmt.Sprint("q", i)
		shares := func(other string) bool { return e.laneOf(ns, queue) == e.laneOf(ns, other) }
		if ns.Shards(queue)[0] == shard && !slices.ContainsFunc(others, shares) {
			return queue
		}
	}
}

// claimsOf has f called for each batch that claims of a shard.
func claimsOf(shard int, f func()) func(*job.Batch) {
	return func(b *job.Batch) {
		if slices.ContainsFunc(b.Claims, func(c *job.Claim) bool { return c.Shard == shard }) {
			f()
		}
	}
}

// A claim that fails before it asks the queue that woke it passes the wake on, also past others
// that fail.
func TestAFailingPollPassesOnWhatWokeIt(t *testing.T) {
	t.Parallel()
	for _, failing := range []int{1, 2, 5} {
		bubble(t, ofShards(4), func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
			good := on(e, ns, 0)
			bad := on(e, ns, 1, good)
			s.With(func() {
				s.Fail = func(b *job.Batch) (err error) {
					claimsOf(1, func() { err = errAway })(b)
					return err
				}
			})
			for range failing {
				claims(e, Claim{Namespace: ns, Queues: []string{bad, good}, Wait: 10 * time.Minute})
			}
			clocktest.Pass(time.Minute)
			healthy := claims(e, Claim{Namespace: ns, Queues: []string{good}, Wait: 8 * time.Minute})
			synctest.Wait()
			before := time.Now()
			publish(t, e, ns, good, "a")
			if r := <-healthy; payloads(r.jobs) != "a" || time.Since(before) != 0 {
				t.Errorf("%d fail: got %+v %v after the publish", failing, r, time.Since(before))
			}
			// There is none that does not fail: they do not wake each other.
			runs, _ := s.ran()
			publish(t, e, ns, good, "b")
			clocktest.Pass(time.Minute)
			if after, _ := s.ran(); after-runs > 40*failing {
				t.Errorf("%d fail: asked %d times in a minute", failing, after-runs)
			}
			s.With(func() { s.Fail = nil })
			clocktest.Pass(maxPause)
			if ready, _ := s.ready(good); ready != 0 {
				t.Errorf("%d fail: %d are ready after the outage", failing, ready)
			}
			_ = e.Stop(context.Background())
		})
	}
}

// A claim that asks, and is busy elsewhere, is not all that a push wakes.
func TestAWakeIsNotSpentOnAPollThatAsks(t *testing.T) {
	t.Parallel()
	bubble(t, ofShards(4), func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		good, slow := on(e, ns, 0), on(e, ns, 1)
		first := on(e, ns, 2, good)
		s.With(func() { s.flies = claimsOf(1, func() { clocktest.Take(3 * time.Second) }) })
		busy := claims(e, Claim{Namespace: ns, Queues: []string{first, good, slow}, Wait: time.Minute})
		clocktest.Pass(3500 * time.Millisecond) // it asks again, and is past good
		idle := claims(e, Claim{Namespace: ns, Queues: []string{good}, Wait: time.Minute})
		clocktest.Pass(500 * time.Millisecond)
		publish(t, e, ns, good, "a")
		if r := <-idle; payloads(r.jobs) != "a" || r.took != 500*time.Millisecond {
			t.Errorf("idle: got %+v", r)
		}
		// Where no other waits, it asks once more.
		publish(t, e, ns, good, "b")
		if r := <-busy; payloads(r.jobs) != "b" || r.took > 10*time.Second {
			t.Errorf("busy: got %+v", r)
		}
	})
}

func TestAPollEndsWithinAPass(t *testing.T) {
	t.Parallel()
	const flush = time.Second
	test := func(name string, claim func(*Claim), end func(*Engine), wantErr error) {
		bubble(t, ofShards(8), func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
			c := Claim{Namespace: ns, Wait: time.Hour}
			for shard := range 8 {
				c.Queues = append(c.Queues, on(e, ns, shard))
			}
			last := c.Queues[7]
			claim(&c)
			s.With(func() {
				s.flies = func(b *job.Batch) {
					if len(b.Claims) > 0 && b.Claims[0].TTR == time.Minute {
						clocktest.Take(flush)
					}
				}
			})
			began := time.Now()
			first := claims(e, c)
			clocktest.Pass(20 * flush) // its two passes
			second := claims(e, Claim{Namespace: ns, Queues: []string{last}, Wait: time.Hour, TTR: time.Hour})
			synctest.Wait()
			publish(t, e, ns, last, "a") // wakes the first, which asks other shards before
			clocktest.Pass(flush / 2)
			end(e)
			if r := <-first; len(r.jobs) > 0 || !errors.Is(r.err, wantErr) || time.Since(began) != 21*flush {
				t.Errorf("%s: got %+v, %v after it began", name, r, time.Since(began))
			}
			r := <-second
			if stopped := name == "stop"; !stopped && payloads(r.jobs) != "a" || stopped && r.err != nil || time.Since(began) != 21*flush {
				t.Errorf("%s: the second got %+v, %v after it began", name, r, time.Since(began))
			}
		})
	}
	test("deadline", func(c *Claim) { c.Wait = 20*flush + flush/2 }, func(*Engine) {}, nil)
	var stopping chan struct{}
	retire := func(c *Claim) {
		stopping = make(chan struct{}) // in the bubble
		c.Stopping = stopping
	}
	test("retire", retire, func(*Engine) { close(stopping) }, nil)
	test("stop", func(*Claim) {}, func(e *Engine) { go func() { _ = e.Stop(context.Background()) }() }, nil)
	var revoked atomic.Bool
	test("revoke", func(c *Claim) { c.Revoked = revoked.Load }, func(*Engine) { revoked.Store(true) }, ErrRevoked)
}

func TestARestartEndsTheWaitsOfItsNamespace(t *testing.T) {
	t.Parallel()
	policies := map[string]job.Policy{"mail": job.DefaultPolicy(), "other": job.DefaultPolicy()}
	bubble(t, policies, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		mail := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour})
		other := claims(e, Claim{Namespace: s.Namespace("other"), Queues: []string{"q"}, Wait: time.Minute})
		synctest.Wait()
		e.hear(job.WakeEvent{Kind: job.WakeRestart, Namespace: "mail"})
		if r := <-mail; r.jobs != nil || r.err != nil || r.took != 0 {
			t.Errorf("got %+v", r)
		}
		if r := <-other; r.took != time.Minute {
			t.Errorf("a claim of another namespace ends: %+v", r)
		}
		_ = e.Stop(context.Background())
	})
}
