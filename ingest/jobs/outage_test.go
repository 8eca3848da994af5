package jobs

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
)

func TestAnOutageIsAnErrorAndNeverNoJob(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		s.With(func() { s.Fail = func(*job.Batch) error { return errAway } })
		for wait := range 2 {
			r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Duration(wait) * time.Minute})
			if !errors.Is(r.err, errAway) || r.took != time.Duration(wait)*time.Minute {
				t.Errorf("got %+v", r)
			}
		}
		s.With(func() { s.Fail = func(*job.Batch) error { return partition.ErrBroken } })
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Minute}); !errors.Is(r.err, partition.ErrBroken) || r.took != 0 {
			t.Errorf("a broken queue: got %+v", r)
		}
	})
}

// The store is slower than the wait is long: it is asked nevertheless, once.
func TestAWaitThatEndsBeforeTheFirstLookLooks(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errAway} {
		bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
			publish(t, e, ns, "q", "a")
			s.With(func() { s.delay = time.Second })
			before := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Hour}) // the lane is in a flush
			synctest.Wait()
			p := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Millisecond})
			clocktest.Pass(500 * time.Millisecond)
			s.With(func() {
				s.Fail = func(b *job.Batch) error {
					s.Fail = func(*job.Batch) error { return err } // of the second flush
					return nil
				}
			})
			<-before
			if r := <-p; !errors.Is(r.err, err) {
				t.Errorf("the store answers %v: got %+v", err, r)
			}
		})
	}
}

func TestAClaimIsNotOverBeforeTheStoreWasAsked(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
			publish(t, e, ns, "q", "a")
			s.With(func() {
				s.delay = 2 * time.Second
				if away {
					s.Fail = func(*job.Batch) error { return errAway }
				}
			})
			before := claims(e, Claim{Namespace: ns, Queues: []string{"none"}})
			synctest.Wait()
			// It is queued behind the other one when its time is over.
			r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Millisecond})
			switch {
			case away && !errors.Is(r.err, errAway):
				t.Errorf("an outage: got %+v", r)
			case !away && payloads(r.jobs) != "a":
				t.Errorf("a slow store: got %+v", r)
			}
			<-before
		})
	}
}

func TestAClaimWithAnUnknownOutcomeAsksAgain(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		n := 0
		s.With(func() {
			s.lose = func() error {
				if n++; n < 4 {
					return partition.ErrUnknown
				}
				return nil
			}
		})
		publish(t, e, ns, "q", "a")
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Wait: time.Minute}); payloads(r.jobs) != "a" || r.jobs[0].Attempt != 1 {
			t.Errorf("got %+v", r)
		}
	})
}

// The outcome of a flush that panics is unknown, and that of its claims with it.
func TestAPanicEndsNoReverts(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]struct {
		bug  func(*fakeStore)
		want int // reverts
	}{
		"of the flush":   {func(s *fakeStore) { s.panics = true }, 1},
		"of the reverts": {func(s *fakeStore) { s.badRevert, s.lose = true, func() error { return partition.ErrUnknown } }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
				publish(t, e, ns, "q", "a")
				s.With(func() { with.bug(s) })
				if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}}); !errors.Is(r.err, partition.ErrUnknown) {
					t.Fatalf("got %+v", r)
				}
				s.With(func() { s.panics = false })
				clocktest.Pass(3 * minPause) // of the bubble's clock
				s.With(func() {
					if s.reverts != with.want || s.lost > 0 {
						t.Errorf("%d reverts, %d jobs are still leased", s.reverts, s.lost)
					}
				})
			})
		})
	}
}

// The next claim takes an unknown one back, but there may be none.
func TestAClaimWithAnUnknownOutcomeIsTakenBackByItself(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		s.With(func() { s.lose = func() error { return partition.ErrUnknown } })
		publish(t, e, ns, "q", "a")
		if r := <-claims(e, Claim{Namespace: ns, Queues: []string{"q"}}); !errors.Is(r.err, partition.ErrUnknown) {
			t.Fatalf("got %+v", r)
		}
		clocktest.Pass(minPause) // of the bubble's clock
		s.With(func() {
			if s.lost > 0 {
				t.Error("the job is still leased")
			}
		})
	})
}
