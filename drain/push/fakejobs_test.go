package push

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/job/jobtest"
)

// fakeJobs is a store in memory of the namespace mail, which counts what pushers ask of it. Any
// number of them may use it.
type fakeJobs struct {
	*jobtest.Store
	ns         *job.Namespace
	latency    time.Duration
	lost       func(b *job.Batch) error // nil: every answer arrives; else a batch runs and has this error
	failRevert func() error
	answered   func() // after a batch ran, before the pusher has its answer

	jobs    map[string]*fakeJob // all that there were, by id
	runs    int
	claims  int
	lists   int
	looks   int // plans of a shard
	reverts int
	broken  []string // what went wrong
}

type fakeJob = jobtest.Job

func newFakeJobs(t testing.TB, policy job.Policy) *fakeJobs {
	t.Helper()
	s := &fakeJobs{Store: jobtest.New(t, map[string]job.Policy{"mail": policy}), jobs: map[string]*fakeJob{}}
	s.ns = s.Store.Namespace("mail")
	s.Answer = func(l *job.Lane, b *job.Batch) {
		if s.lost == nil {
			return
		}
		if err := s.lost(b); err != nil {
			for _, c := range b.Claims {
				s.Lose(l, c, err)
			}
			jobtest.Fail(b, err)
		}
	}
	return s
}

// publish adds n jobs to a queue's shards in turn.
func (s *fakeJobs) publish(queue string, n, tries int, change ...func(*fakeJob)) (list []*fakeJob) {
	shards := s.ns.Shards(queue)
	for i := range n {
		seq := int64(len(s.jobs) + 1)
		j := &fakeJob{Job: job.Job{
			Queue: queue, ID: fmt.Sprintf("J%05d", seq), Ref: job.Ref{Shard: shards[i%len(shards)], Seq: seq}, Tries: tries,
			Payload: fmt.Appendf(nil, "%d", seq),
		}}
		for _, f := range change {
			f(j)
		}
		s.With(func() { s.jobs[j.ID] = j })
		list = append(list, j)
	}
	s.Put("mail", true, list...)
	return list
}

func (s *fakeJobs) Listen(on func(job.WakeEvent)) job.Listener {
	w := s.NewWakes(on)
	w.SetLatency(time.Millisecond)
	return w
}

func (s *fakeJobs) Namespace(name string) *job.Namespace {
	s.With(func() { s.looks++ })
	return s.Store.Namespace(name)
}

func (s *fakeJobs) Queues(ctx context.Context, ns *job.Namespace) ([]string, error) {
	s.With(func() { s.lists++ })
	return s.Store.Queues(ctx, ns)
}

func (s *fakeJobs) Revert(ctx context.Context, l *job.Lane) (err error) {
	s.With(func() {
		if s.reverts++; s.failRevert != nil {
			err = s.failRevert()
		}
	})
	if err != nil {
		return err
	}
	return s.Store.Revert(ctx, l)
}

func (s *fakeJobs) Run(ctx context.Context, l *job.Lane, b *job.Batch) {
	s.Mu.Lock()
	latency := s.latency
	s.Mu.Unlock()
	guard.Sleep(ctx, latency)
	s.With(func() {
		s.runs++
		s.claims += len(b.Claims)
		for _, c := range b.Claims {
			if len(c.Queues) != 1 || !c.ReportLeft {
				s.broken = append(s.broken, fmt.Sprintf("claim %+v", c))
			}
		}
	})
	s.Store.Run(ctx, l, b)
	if s.answered != nil {
		s.answered()
	}
	for _, c := range b.Claims {
		for _, j := range c.Jobs {
			if j.Attempt > j.Tries {
				s.With(func() { s.broken = append(s.broken, j.ID+" is delivered more often than it may be") })
			}
		}
	}
}

// count is how many jobs are in a state.
func (s *fakeJobs) count(state job.State) (n int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, j := range s.jobs {
		if j.State == state {
			n++
		}
	}
	return n
}

func (s *fakeJobs) acked() (n int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, j := range s.jobs {
		if j.Acked {
			n++
		}
	}
	return n
}

// slow makes calls take so long from now on.
func (s *fakeJobs) slow(latency time.Duration) { s.With(func() { s.latency = latency }) }

func (s *fakeJobs) figures() (runs, lists int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.runs, s.lists
}
