package jobs

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// fakeStore keeps jobs in memory, in the states that matter to an engine. It tells wakes as
// the scripts do: only when a list was empty before.
type fakeStore struct {
	Store      // nil: what schedules need, which a real store has
	mu         sync.Mutex
	namespaces map[string]*job.Namespace
	queues     map[queueKey]*fakeQueue
	seq        int64
	runs       int                    // calls of Run
	claims     int                    // claims in them
	delay      time.Duration          // of a call, before it takes effect
	after      time.Duration          // and after
	fail       func(*job.Batch) error // for every request of a batch; it does nothing then
	lose       func() error           // for every claim, which takes the jobs nevertheless
	lost       []*job.Job             // what such claims took
	full       int                    // claims that get nothing, because the answer is full
	panics     bool
	reverts    int              // calls of Revert
	badRevert  bool             // the first of which panics
	flies      func(*job.Batch) // is called without the lock before a batch takes effect
	held       chan struct{}    // no batch returns before it is closed
	counts     job.Counts
	readErr    error
	begins     bool // acts on many jobs fail only after they did all
	dead       []job.Job
	due        []int64 // of the first steps of a forecast
	ticks      []int64 // too, of too many schedules
	wakes      *fakeWakes
	pause      time.Duration // between two jobs; 0: no rate
	passes     time.Time     // when the next may pass
}

type fakeQueue struct {
	ready  []*job.Job
	leased map[int64]*job.Job
	dead   map[int64]*job.Job
}

func newFake(tb testing.TB, policies map[string]job.Policy) *fakeStore {
	tb.Helper()
	s := &fakeStore{namespaces: map[string]*job.Namespace{}, queues: map[queueKey]*fakeQueue{}}
	if policies == nil {
		policies = map[string]job.Policy{"mail": job.DefaultPolicy()}
	}
	for name, p := range policies {
		s.set(tb, name, p)
	}
	return s
}

func (s *fakeStore) set(tb testing.TB, name string, p job.Policy) {
	tb.Helper()
	ns, err := job.NewNamespace("sw", name, p)
	if err != nil {
		tb.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces[name] = ns
}

func (s *fakeStore) Namespace(name string) *job.Namespace {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.namespaces[name]
}

func (s *fakeStore) Now() (int64, bool) { return 5000, true }

func (s *fakeStore) NewLane() *job.Lane { return &job.Lane{} }

func (s *fakeStore) Revert(context.Context, *job.Lane) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reverts++; s.badRevert && s.reverts == 1 {
		panic("a bug")
	}
	s.revert()
	return nil
}

// revert gives back what claims with an unknown outcome took.
func (s *fakeStore) revert() {
	for _, j := range s.lost {
		q := s.queueOf(queueKey{"mail", j.Shard, j.Queue})
		delete(q.leased, j.Seq)
		j.Attempt--
		s.push(queueKey{"mail", j.Shard, j.Queue}, q, true, j)
	}
	s.lost = nil
}

func (s *fakeStore) queueOf(key queueKey) *fakeQueue {
	q := s.queues[key]
	if q == nil {
		q = &fakeQueue{leased: map[int64]*job.Job{}, dead: map[int64]*job.Job{}}
		s.queues[key] = q
	}
	return q
}

func (s *fakeStore) push(key queueKey, q *fakeQueue, head bool, jobs ...*job.Job) {
	wake := len(q.ready) == 0
	if head {
		q.ready = append(slices.Clone(jobs), q.ready...)
	} else {
		q.ready = append(q.ready, jobs...)
	}
	if wake && len(jobs) > 0 && s.wakes != nil {
		s.wakes.publish(job.WakeEvent{Kind: job.WakeHeard, Namespace: key.namespace, Shard: key.shard, Queue: key.queue, Count: len(jobs)})
	}
}

func (s *fakeStore) Run(ctx context.Context, _ *job.Lane, b *job.Batch) {
	s.mu.Lock()
	delay, flies := s.delay, s.flies
	s.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	if flies != nil {
		flies(b)
	}
	s.mu.Lock()
	defer func() {
		after, held := s.after, s.held
		s.mu.Unlock()
		if after > 0 {
			time.Sleep(after)
		}
		if held != nil {
			<-held
		}
	}()
	s.runs++
	s.claims += len(b.Claims)
	if s.panics {
		panic("a bug")
	}
	if s.fail != nil {
		if err := s.fail(b); err != nil {
			w := work{batch: *b}
			w.fail(err)
			return
		}
	}
	s.revert()
	for _, a := range b.Acks {
		q := s.queueOf(queueKey{a.Namespace.Name, a.Ref.Shard, a.Queue})
		_, a.Acked = q.leased[a.Ref.Seq]
		delete(q.leased, a.Ref.Seq)
		n := len(q.ready)
		q.ready = slices.DeleteFunc(q.ready, func(j *job.Job) bool { return j.Seq == a.Ref.Seq })
		a.Deleted = len(q.ready) < n
	}
	heads := map[queueKey][]*job.Job{}
	for _, x := range b.Settles {
		s.settle(x, heads)
	}
	for key, jobs := range heads {
		s.push(key, s.queueOf(key), true, jobs...)
	}
	for _, p := range b.Publishes {
		s.publish(p)
	}
	for _, c := range b.Claims {
		s.claim(c)
	}
	for _, c := range b.Claims {
		for _, queue := range c.Queues {
			if c.ReportLeft && c.Err == nil {
				left, held := len(s.queueOf(queueKey{c.Namespace.Name, c.Shard, queue}).ready), int64(0)
				if wait := time.Until(s.passes); wait > 0 && left > 0 {
					left, held = -1, int64((wait+time.Millisecond-1)/time.Millisecond)
				}
				c.Left, c.Held = append(c.Left, left), append(c.Held, held)
			}
		}
	}
}

func (s *fakeStore) settle(x *job.Settle, heads map[queueKey][]*job.Job) {
	key := queueKey{x.Namespace.Name, x.Ref.Shard, x.Queue}
	q := s.queueOf(key)
	j := q.leased[x.Ref.Seq]
	if j == nil || x.Attempt != 0 && x.Attempt != j.Attempt {
		x.State = job.Gone
		return
	}
	if x.Verb != job.Touch {
		delete(q.leased, j.Seq)
	}
	switch x.Verb {
	case job.Touch:
		x.State = job.Leased
	case job.Bury:
		q.dead[j.Seq] = j
		j.Reason, j.Attempt = job.Buried, -1
		x.State = job.Dead
	case job.Requeue:
		j.Attempt--
		heads[key] = append(heads[key], j)
		x.State = job.Ready
	case job.Nack:
		s.push(key, q, false, j)
		x.State = job.Ready
	}
}

func (s *fakeStore) publish(p *job.Publish) {
	key := queueKey{p.Namespace.Name, p.Shard, p.Queue}
	q := s.queueOf(key)
	if int64(len(q.ready)+len(p.Messages)) > p.Namespace.Policy.MaxJobs {
		p.Err = job.ErrTooManyJobs
		return
	}
	p.First, p.Count = s.seq+1, len(p.Messages)
	var jobs []*job.Job
	expires := int64(0)
	if p.TTL > 0 {
		expires = 1000 + p.TTL.Milliseconds()
	}
	for _, m := range p.Messages {
		s.seq++
		jobs = append(jobs, &job.Job{
			Queue: p.Queue, Ref: job.Ref{Shard: p.Shard, Seq: s.seq, CallerID: p.CallerID}, ID: p.Namespace.ID(p.Shard, p.Queue, s.seq, p.CallerID),
			Tries: p.Tries, Published: 1000, Expires: expires, Now: 3500, Payload: slices.Clone(m.Payload), Attributes: slices.Clone(m.Attributes),
		})
	}
	s.push(key, q, false, jobs...)
}

func (s *fakeStore) claim(c *job.Claim) {
	if s.full > 0 {
		s.full--
		c.More = true
		return
	}
	if len(c.Queues) > job.MaxQueues {
		c.Err = job.ErrBadArgument
		return
	}
	var taken []*job.Job
	for _, queue := range c.Queues {
		q := s.queueOf(queueKey{c.Namespace.Name, c.Shard, queue})
		for len(q.ready) > 0 && len(c.Jobs) < c.Count && !time.Now().Before(s.passes) {
			s.passes = time.Now().Add(s.pause)
			j := q.ready[0]
			q.ready = q.ready[1:]
			j.Attempt++
			q.leased[j.Seq] = j
			c.Jobs = append(c.Jobs, *j)
			taken = append(taken, j)
		}
	}
	if s.lose != nil {
		if err := s.lose(); err != nil {
			c.Jobs, c.Err = nil, err
			s.lost = append(s.lost, taken...)
		}
	}
}

// ready is how many jobs of a queue are ready, over all shards; leased likewise.
func (s *fakeStore) ready(queue string) (ready, leased int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, q := range s.queues {
		if key.queue == queue {
			ready, leased = ready+len(q.ready), leased+len(q.leased)
		}
	}
	return ready, leased
}

func (s *fakeStore) ran() (runs, claims int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs, s.claims
}

func (s *fakeStore) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *fakeStore) Peek(_ context.Context, ns *job.Namespace, queue string) (job.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, q := range s.queues {
		if key.queue == queue && key.namespace == ns.Name && len(q.ready) > 0 {
			return *q.ready[0], s.readErr
		}
	}
	return job.Job{}, cmp.Or(s.readErr, job.ErrNoJob)
}

func (s *fakeStore) Get(_ context.Context, ns *job.Namespace, queue string, ref job.Ref) (job.Job, job.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queueOf(queueKey{ns.Name, ref.Shard, queue})
	for _, j := range q.ready {
		if j.Seq == ref.Seq {
			return *j, job.Ready, s.readErr
		}
	}
	if j := q.leased[ref.Seq]; j != nil {
		return *j, job.Leased, s.readErr
	}
	if j := q.dead[ref.Seq]; j != nil {
		return *j, job.Dead, s.readErr
	}
	return job.Job{}, job.Gone, cmp.Or(s.readErr, job.ErrNoJob)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead[min(offset, len(s.dead)):min(offset+limit, len(s.dead))], int64(len(s.dead)), s.readErr
}

func (s *fakeStore) Purge(_ context.Context, _ *job.Namespace, queue string, all bool) (int64, error) {
	if all {
		return s.acted(9), s.readErr
	}
	return s.acted(len(queue)), s.readErr
}

func (s *fakeStore) Respawn(_ context.Context, _ *job.Namespace, _ string, limit int, _ time.Duration) (int, error) {
	return int(s.acted(limit)), s.readErr
}

func (s *fakeStore) DeleteDead(_ context.Context, _ *job.Namespace, _ string, limit int) (int, error) {
	return int(s.acted(limit)), s.readErr
}

// acted is how many jobs an act did before it failed, if it does.
func (s *fakeStore) acted(n int) int64 {
	if s.readErr != nil && !s.begins {
		return 0
	}
	return int64(n)
}

// fakeWakes delivers events one at a time, after a latency, to what is subscribed when
// they are published.
type fakeWakes struct {
	on      func(job.WakeEvent)
	latency time.Duration
	mu      sync.Mutex
	filled  sync.Cond
	queue   []job.WakeEvent
	wants   map[queueKey]int
	deaf    bool
	closed  bool
	wanting func() // is called without the lock before each Want
	ended   chan struct{}
}

func newFakeWakes(on func(job.WakeEvent)) *fakeWakes {
	w := &fakeWakes{on: on, wants: map[queueKey]int{}, ended: make(chan struct{})}
	w.filled.L = &w.mu
	return w
}

func (w *fakeWakes) Start(context.Context) error {
	go func() {
		defer close(w.ended)
		for {
			w.mu.Lock()
			for len(w.queue) == 0 && !w.closed {
				w.filled.Wait()
			}
			if w.closed {
				w.mu.Unlock()
				return
			}
			event := w.queue[0]
			w.queue = w.queue[1:]
			latency := w.latency
			w.mu.Unlock()
			if latency > 0 {
				time.Sleep(latency)
			}
			w.on(event)
		}
	}()
	return nil
}

func (w *fakeWakes) Stop(context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.filled.Broadcast()
	w.mu.Unlock()
	<-w.ended
	return nil
}

func (w *fakeWakes) send(event job.WakeEvent) {
	w.queue = append(w.queue, event)
	w.filled.Signal()
}

func (w *fakeWakes) publish(event job.WakeEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wants[queueKey{event.Namespace, event.Shard, event.Queue}] > 0 && !w.deaf {
		w.send(event)
	}
}

func (w *fakeWakes) Want(ns *job.Namespace, shard int, queue string) {
	w.mu.Lock()
	wanting := w.wanting
	w.mu.Unlock()
	if wanting != nil {
		wanting()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wants[queueKey{ns.Name, shard, queue}]++
	if !w.deaf {
		w.send(job.WakeEvent{Kind: job.WakeSubscribed, Namespace: ns.Name, Shard: shard, Queue: queue})
	}
}

func (w *fakeWakes) Unwant(ns *job.Namespace, shard int, queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := queueKey{ns.Name, shard, queue}
	if w.wants[key]--; w.wants[key] == 0 {
		delete(w.wants, key)
	}
}

// setDeaf ends the subscriptions, or begins them again.
func (w *fakeWakes) setDeaf(deaf bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = deaf
	if deaf {
		w.send(job.WakeEvent{Kind: job.WakeLost})
		return
	}
	for key := range w.wants {
		w.send(job.WakeEvent{Kind: job.WakeSubscribed, Namespace: key.namespace, Shard: key.shard, Queue: key.queue})
	}
}

// wanted is how many queues are subscribed.
func (w *fakeWakes) wanted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wants)
}

// start runs an engine on a fake until the test ends.
func start(tb testing.TB, s *fakeStore) *Engine {
	tb.Helper()
	e, err := New(DefaultConfig(), s, func(on func(job.WakeEvent)) Wakes {
		s.wakes = newFakeWakes(on)
		return s.wakes
	}, prometheus.NewRegistry(), zap.NewNop())
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
		if len(e.queues) > 0 || len(e.polls) > 0 || s.wakes.wanted() > 0 {
			tb.Errorf("%d queues, %d polls, %d subscriptions are left", len(e.queues), len(e.polls), s.wakes.wanted())
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
