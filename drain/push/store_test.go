package push

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
)

func TestStopEndsWritesAndGivesTheRestBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.rule.Writes = 4
		r.sink.write = func(context.Context, []*sink.Batch) error { clocktest.Take(2 * time.Second); return nil }
		r.store.publish("welcome", 4, 1)
		r.start()
		clocktest.Pass(time.Second) // four Writes run
		r.store.slow(time.Second)
		rest := r.store.publish("other", 4, 1)
		clocktest.Pass(100 * time.Millisecond)
		r.p.targets[0].list(r.store.ns, "other", &r.p.spaces[0].rules[0]) // a claim begins
		clocktest.Pass(100 * time.Millisecond)
		r.stop()
		r.wantOutcomes(map[string]int{acked: 4, requeued: 4})
		for _, j := range rest {
			if j.Attempt != 0 || j.State != job.Ready {
				t.Errorf("%s: attempt %d, %v", j.ID, j.Attempt, j.State)
			}
		}
		if r.sink.closes != 1 {
			t.Errorf("%d closes", r.sink.closes)
		}
	})
}

func TestStopCutsWritesOffWhenItsTimeIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = hang
		jobs := r.store.publish("welcome", 4, 2)
		r.start()
		clocktest.Pass(2 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		for _, j := range jobs {
			if j.Attempt != 0 || j.State != job.Ready {
				t.Errorf("%s: attempt %d, %v", j.ID, j.Attempt, j.State)
			}
		}
		if err := r.p.Stop(t.Context()); err != nil {
			t.Errorf("second stop: %v", err)
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		target := Target{Namespace: "mail", Rules: []Rule{r.rule}, Sinks: map[string]Sink{"crm": {Sink: r.sink, Label: "crm:"}}}
		p, err := New(r.cfg, r.store, []Target{target}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Stop(t.Context()), p.Stop(t.Context())); err != nil {
			t.Error(err)
		}
		if p.Start(t.Context()) == nil {
			t.Error("it starts after Stop")
		}
	})
}

// Whatever the store does, each job is delivered once, and acked.
func TestAStoreThatFailsLosesAndDoublesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.latency = time.Millisecond
		n := 0
		every := func(k int, err error) func(*job.Batch) error {
			return func(*job.Batch) error {
				if n++; n%k == 0 {
					return err
				}
				return nil
			}
		}
		r.store.Fail = every(3, partition.ErrUnavailable)
		r.store.lost = every(5, partition.ErrUnknown)
		jobs := r.store.publish("welcome", 500, 1)
		r.start()
		clocktest.Pass(5 * time.Minute)
		r.stop()
		for _, j := range jobs {
			if !j.Acked || len(j.Claims) != 1 {
				t.Fatalf("%s: acked %v, %d deliveries, %v", j.ID, j.Acked, len(j.Claims), j.State)
			}
		}
		r.wantOutcomes(map[string]int{acked: 500})
		if r.p.outage.Failing() != 0 {
			t.Errorf("%d parts still fail", r.p.outage.Failing())
		}
	})
}

func TestAClaimWithAnUnknownOutcomeIsRevertedAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.lost = func(b *job.Batch) error { return partition.ErrUnknown }
		jobs := r.store.publish("welcome", 3, 1)
		r.start()
		clocktest.Pass(20 * time.Millisecond)
		r.stop()
		if r.store.reverts != 1 || jobs[0].State != job.Ready || jobs[0].Attempt != 0 {
			t.Errorf("%d reverts, %v", r.store.reverts, jobs[0].State)
		}
	})
}

// The lane's next claim would take it back, but there may be none for hours.
func TestAClaimWithAnUnknownOutcomeIsRevertedSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.latency = time.Millisecond
		began := time.Now()
		r.sink.open = func(context.Context) error {
			if time.Since(began) > 0 {
				return errDown
			}
			return nil
		}
		r.sink.write = func(context.Context, []*sink.Batch) error {
			clocktest.Take(20 * time.Millisecond)
			return sink.ErrNotConnected
		}
		failures := 0
		r.store.lost = func(b *job.Batch) error {
			if len(b.Claims) > 0 && b.Claims[0].Queues[0] == "lost" {
				return partition.ErrUnknown
			}
			return nil
		}
		first := r.store.publish("welcome", 1, 2)
		r.start()
		clocktest.Pass(10 * time.Millisecond)
		jobs := r.store.publish("lost", 1, 1)
		r.p.targets[0].list(r.store.ns, "lost", &r.p.spaces[0].rules[0])
		clocktest.Pass(5 * time.Millisecond)
		r.store.Mu.Lock()
		if jobs[0].State != job.Leased || first[0].State != job.Leased {
			t.Errorf("%v and %v, want both leased", jobs[0].State, first[0].State)
		}
		r.store.failRevert = func() error {
			if failures++; failures < 3 {
				return partition.ErrUnavailable
			}
			return nil
		}
		r.store.Mu.Unlock()
		clocktest.Pass(time.Second)
		r.store.Mu.Lock()
		if jobs[0].State != job.Ready || jobs[0].Attempt != 0 || r.store.reverts != 3 {
			t.Errorf("%v, attempt %d, %d reverts", jobs[0].State, jobs[0].Attempt, r.store.reverts)
		}
		r.store.Mu.Unlock()
		r.stop()
	})
}

func TestACallThatTheStoreDoesNotAnswerEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.slow(time.Hour)
		r.store.publish("welcome", 10, 1)
		r.start()
		clocktest.Pass(time.Second)
		r.store.slow(time.Millisecond)
		clocktest.Pass(5 * time.Second)
		if n := r.store.acked(); n != 10 {
			t.Errorf("%d acked", n)
		}
		r.stop()
	})
}

func TestAQueueThatTheStoreRejectsRests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		broken := errors.New("WRONGTYPE")
		r.store.Fail = func(b *job.Batch) error {
			for _, c := range b.Claims {
				if c.Queues[0] == "bad" {
					return broken
				}
			}
			return nil
		}
		r.rule.Match = "bad"
		r.start()
		clocktest.Pass(10 * time.Minute)
		if runs, _ := r.store.figures(); runs > 22 {
			t.Errorf("%d calls", runs)
		}
		r.stop()
	})
}
