package jobs

import (
	"cmp"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/job/jobtest"
)

// fakeStore is a store in memory whose clock stands at 5 s, which can be slow, hang and break. Acts on
// many jobs and forecasts answer what a test says.
type fakeStore struct {
	*jobtest.Store
	missing
	runs      int           // calls of Run
	claims    int           // claims in them
	delay     time.Duration // of a call, before it takes effect
	after     time.Duration // and after
	lose      func() error  // for every claim, which takes the jobs nevertheless
	lost      int           // jobs that such claims took, and that were not given back yet
	full      int           // claims that get nothing, because the answer is full
	panics    bool
	reverts   int              // calls of Revert
	badRevert bool             // the first of which panics
	flies     func(*job.Batch) // is called without the lock before a batch takes effect
	held      chan struct{}    // no batch returns before it is closed
	counts    job.Counts
	readErr   error
	begins    bool // acts on many jobs fail only after they did all
	dead      []job.Job
	deadAct   job.DeadAct // the last
	due       []int64     // of the first steps of a forecast
	ticks     []int64     // too, of too many schedules
	wakes     *jobtest.Wakes

	gets, looks atomic.Int64 // calls of Get and Await
}

// missing is what a real store has beside.
type missing struct {
	Store
	job.Edits
	job.ScheduleOperations
	job.OwnerOperations
}

func newFake(tb testing.TB, policies map[string]job.Policy) *fakeStore {
	tb.Helper()
	if policies == nil {
		policies = map[string]job.Policy{"mail": job.DefaultPolicy()}
	}
	s := &fakeStore{Store: jobtest.New(tb, policies)}
	s.Frozen = 5000
	s.Answer = func(l *job.Lane, b *job.Batch) {
		for _, c := range b.Claims {
			if s.lose == nil {
				return
			}
			if err := s.lose(); err != nil {
				s.lost += len(c.Jobs)
				s.Lose(l, c, err)
			}
		}
	}
	return s
}

func (s *fakeStore) Revert(ctx context.Context, l *job.Lane) error {
	s.With(func() {
		if s.reverts++; s.badRevert && s.reverts == 1 {
			panic("a bug")
		}
		s.lost = 0
	})
	return s.Store.Revert(ctx, l)
}

func (s *fakeStore) Run(ctx context.Context, l *job.Lane, b *job.Batch) {
	s.Mu.Lock()
	delay, flies := s.delay, s.flies
	s.Mu.Unlock()
	if delay > 0 {
		clocktest.Take(delay)
	}
	if flies != nil {
		flies(b)
	}
	var full []*job.Claim
	s.With(func() {
		s.runs++
		s.claims += len(b.Claims)
		if s.panics {
			panic("a bug")
		}
		for len(b.Claims) > 0 && s.full > 0 {
			full, b.Claims, s.full = append(full, b.Claims[0]), b.Claims[1:], s.full-1
		}
		if len(b.Claims) > 0 {
			s.lost = 0
		}
	})
	s.Store.Run(ctx, l, b)
	for _, c := range full {
		c.Jobs, c.More = nil, true
	}
	s.Mu.Lock()
	after, held := s.after, s.held
	s.Mu.Unlock()
	if after > 0 {
		clocktest.Take(after)
	}
	if held != nil {
		<-held
	}
}

// ready is how many jobs of a queue are ready, over all shards; leased likewise.
func (s *fakeStore) ready(queue string) (ready, leased int) {
	for _, ns := range s.Namespaces {
		c, _ := s.Store.Counts(context.Background(), ns, queue)
		ready, leased = ready+int(c.Ready), leased+int(c.Leased)
	}
	return ready, leased
}

func (s *fakeStore) ran() (runs, claims int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.runs, s.claims
}

// arrives has another process publish a job.
func (s *fakeStore) arrives(ns *job.Namespace, queue, payload string) {
	s.Put(ns.Name, true, &jobtest.Job{Job: job.Job{Queue: queue, Payload: []byte(payload), Ref: job.Ref{Shard: ns.Shards(queue)[0]}, Tries: 3}})
}

func (s *fakeStore) Peek(ctx context.Context, ns *job.Namespace, queue string) (job.Job, error) {
	j, err := s.Store.Peek(ctx, ns, queue)
	return j, cmp.Or(s.readErr, err)
}

func (s *fakeStore) Get(ctx context.Context, ns *job.Namespace, queue string, ref job.Ref) (job.Job, job.State, error) {
	s.gets.Add(1)
	j, state, err := s.Store.Get(ctx, ns, queue, ref)
	return j, state, cmp.Or(s.readErr, err)
}

func (s *fakeStore) Await(ctx context.Context, ns *job.Namespace, queue string, ref job.Ref) (job.Job, job.State, error) {
	s.looks.Add(1)
	j, state, err := s.Store.Await(ctx, ns, queue, ref)
	return j, state, cmp.Or(s.readErr, err)
}

func (s *fakeStore) Counts(context.Context, *job.Namespace, string) (job.Counts, error) {
	return s.counts, s.readErr
}

func (s *fakeStore) Forecast(_ context.Context, _ *job.Namespace, _ string, _ time.Duration, n int) ([]int64, error) {
	due := make([]int64, n)
	copy(due, s.due)
	return due, s.readErr
}

func (s *fakeStore) ScanSchedules(context.Context, *job.Namespace, string, int, func([]job.Schedule) bool) (bool, error) {
	return false, s.readErr
}

func (s *fakeStore) NextTicks(_ context.Context, _ *job.Namespace, _ string, _ time.Duration, n int) ([]int64, error) {
	ticks := make([]int64, n)
	copy(ticks, s.ticks)
	return ticks, s.readErr
}

func (s *fakeStore) Dead(_ context.Context, _ *job.Namespace, _ string, offset, limit int) ([]job.Job, int64, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.dead[min(offset, len(s.dead)):min(offset+limit, len(s.dead))], int64(len(s.dead)), s.readErr
}

func (s *fakeStore) Purge(_ context.Context, _ *job.Namespace, queue string, all bool) (int64, error) {
	if all {
		return s.acted(9), s.readErr
	}
	return s.acted(len(queue)), s.readErr
}

func (s *fakeStore) ActOnDead(_ context.Context, a *job.DeadAct) (int, error) {
	s.deadAct = *a
	if a.Did = make([]bool, len(a.Named)); s.readErr == nil {
		for i, ref := range a.Named {
			a.Did[i] = ref.Seq%2 == 1
		}
	}
	return int(s.acted(a.Limit)), s.readErr
}

// acted is how many jobs an act did before it failed, if it does.
func (s *fakeStore) acted(n int) int64 {
	if s.readErr != nil && !s.begins {
		return 0
	}
	return int64(n)
}

func (s *fakeStore) Listen(on func(job.WakeEvent)) job.Listener {
	s.wakes = s.NewWakes(on)
	return s.wakes
}

// start runs an engine on a fake until the test ends.
func start(tb testing.TB, s *fakeStore) *Engine {
	tb.Helper()
	cfg := DefaultConfig()
	cfg.FlushTimeout = time.Minute // tests hold flushes, and a machine may stand still
	e, err := New(cfg, s, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		tb.Fatal(err)
	}
	if err := e.Start(context.Background()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Stop(context.Background()); err != nil {
			tb.Error(err)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.queues) > 0 || len(e.polls) > 0 || s.wakes.Wanted() > 0 {
			tb.Errorf("%d queues, %d polls, %d subscriptions are left", len(e.queues), len(e.polls), s.wakes.Wanted())
		}
	})
	return e
}

// publish stores payloads and fails the test if it cannot.
func publish(tb testing.TB, e *Engine, ns *job.Namespace, queue string, payloads ...string) {
	tb.Helper()
	shards := ns.Shards(queue)
	p := &job.Publish{Namespace: ns, Queue: queue, Shard: shards[0], Tries: 3}
	for _, text := range payloads {
		p.Messages = append(p.Messages, job.Message{Payload: []byte(text)})
	}
	if e.Publish(p); p.Err != nil {
		tb.Error(p.Err)
	}
}

// payloads are those of jobs, with spaces between.
func payloads(jobs []job.Job) string {
	var all []string
	for _, j := range jobs {
		all = append(all, string(j.Payload))
	}
	return strings.Join(all, " ")
}

var errAway = partition.ErrUnavailable
