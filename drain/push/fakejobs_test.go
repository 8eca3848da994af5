package push

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// fakeJobs is a store of jobs in memory, with the states, the leases and the wakes of the
// real one. Any number of pushers may use it.
type fakeJobs struct {
	ns      *job.Namespace
	latency time.Duration
	fail    func(b *job.Batch) error // nil: every call runs; else no part of it
	lost    func(b *job.Batch) error // the same, but it runs and the answer is lost

	failRevert func() error
	pause      time.Duration         // between two jobs of a queue in a shard; 0: no rate
	full       map[fakeKey]time.Time // when the next may pass

	mu      sync.Mutex
	seq     int64
	jobs    map[string]*fakeJob // by id
	ready   map[fakeKey][]*fakeJob
	wakes   []*fakeWakes
	leases  map[*job.Lane][]*fakeJob // of claims whose answer was lost
	runs    int
	claims  int
	lists   int
	looks   int // plans of a shard
	reverts int
	broken  []string // what went wrong
}

type fakeKey struct {
	queue string
	shard int
}

type fakeJob struct {
	deferred time.Duration
	result   string
	job.Job
	key      fakeKey
	state    job.State
	acked    bool
	attempts []time.Time // when each delivery was claimed
	ends     time.Time   // of the lease
}

func newFakeJobs(t testing.TB, policy job.Policy) *fakeJobs {
	t.Helper()
	ns, err := job.NewNamespace("sw", "mail", policy)
	if err != nil {
		t.Fatal(err)
	}
	return &fakeJobs{ns: ns, jobs: map[string]*fakeJob{}, full: map[fakeKey]time.Time{}, ready: map[fakeKey][]*fakeJob{}, leases: map[*job.Lane][]*fakeJob{}}
}

// publish adds n jobs to a queue's shards in turn.
func (s *fakeJobs) publish(queue string, n, tries int, change ...func(*fakeJob)) (list []*fakeJob) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		s.seq++
		shards := s.ns.Shards(queue)
		key := fakeKey{queue, shards[i%len(shards)]}
		j := &fakeJob{key: key, Job: job.Job{
			Queue: queue, ID: fmt.Sprintf("J%05d", s.seq), Ref: job.Ref{Shard: key.shard, Seq: s.seq}, Tries: tries,
			Published: time.Now().UnixMilli(), Payload: fmt.Appendf(nil, "%d", s.seq),
		}}
		for _, f := range change {
			f(j)
		}
		s.jobs[j.ID] = j
		s.push(j)
		list = append(list, j)
	}
	return list
}

// push makes a job ready; s.mu is held.
func (s *fakeJobs) push(j *fakeJob) {
	j.state = job.Ready
	s.ready[j.key] = append(s.ready[j.key], j)
	if len(s.ready[j.key]) == 1 {
		s.wake(j.key)
	}
}

func (s *fakeJobs) wake(key fakeKey) {
	for _, w := range s.wakes {
		w.tell(job.WakeEvent{Kind: job.WakeHeard, Namespace: "mail", Shard: key.shard, Queue: key.queue, Count: 1})
	}
}

func (s *fakeJobs) Namespace(name string) *job.Namespace {
	s.mu.Lock()
	s.looks++
	s.mu.Unlock()
	if name != s.ns.Name {
		return nil
	}
	return s.ns
}

func (s *fakeJobs) NewLane() *job.Lane { return new(job.Lane) }

func (s *fakeJobs) Queues(context.Context, *job.Namespace) (names []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	for _, j := range s.jobs {
		if !j.acked && j.state != job.Dead && !slices.Contains(names, j.Queue) {
			names = append(names, j.Queue)
		}
	}
	return names, nil
}

func (s *fakeJobs) Note(*job.Namespace, string, job.Ref, job.TraceEvent) {}

func (s *fakeJobs) Revert(_ context.Context, lane *job.Lane) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reverts++
	if s.failRevert != nil {
		if err := s.failRevert(); err != nil {
			return err
		}
	}
	s.revert(lane)
	return nil
}

func (s *fakeJobs) revert(lane *job.Lane) {
	for _, j := range s.leases[lane] {
		if j.state == job.Leased {
			j.Attempt--
			j.attempts = j.attempts[:j.Attempt]
			s.push(j)
		}
	}
	delete(s.leases, lane)
}

func (s *fakeJobs) Run(ctx context.Context, lane *job.Lane, b *job.Batch) {
	s.mu.Lock()
	latency := s.latency
	s.mu.Unlock()
	guard.Sleep(ctx, latency)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	var err error
	if ctx.Err() != nil {
		err = partition.ErrUnavailable
	}
	if err == nil && s.fail != nil {
		err = s.fail(b)
	}
	if err != nil {
		setErrs(b, err)
		return
	}
	if len(b.Claims) > 0 {
		s.revert(lane)
	}
	for _, a := range b.Acks {
		if j := s.find(a.Queue, a.Ref); j != nil && !j.acked {
			a.Acked = true
			j.acked = true
			j.result = string(a.Result)
			s.leave(j)
		}
	}
	for _, x := range b.Settles {
		s.settle(x)
	}
	for _, c := range b.Claims {
		s.claims++
		s.claim(c)
	}
	if s.lost != nil {
		if err := s.lost(b); err != nil {
			for _, c := range b.Claims {
				for _, j := range c.Jobs {
					s.leases[lane] = append(s.leases[lane], s.jobs[j.ID])
				}
				c.Jobs, c.Left = nil, nil
			}
			setErrs(b, err)
		}
	}
}

func setErrs(b *job.Batch, err error) {
	for _, a := range b.Acks {
		a.Err, a.Acked = err, false
	}
	for _, x := range b.Settles {
		x.Err, x.State = err, job.Gone
	}
	for _, c := range b.Claims {
		c.Err = err
	}
}

func (s *fakeJobs) find(queue string, ref job.Ref) *fakeJob {
	for _, j := range s.jobs {
		if j.Queue == queue && j.Ref == ref {
			return j
		}
	}
	return nil
}

// leave takes a job out of the ready ones.
func (s *fakeJobs) leave(j *fakeJob) {
	s.ready[j.key] = slices.DeleteFunc(s.ready[j.key], func(x *fakeJob) bool { return x == j })
}

func (s *fakeJobs) claim(c *job.Claim) {
	if c.Err = nil; len(c.Queues) != 1 || c.Count < 1 || c.Count > job.MaxCount || !c.ReportLeft {
		s.broken = append(s.broken, fmt.Sprintf("claim %+v", c))
	}
	key := fakeKey{c.Queues[0], c.Shard}
	for len(s.ready[key]) > 0 && len(c.Jobs) < c.Count && !time.Now().Before(s.full[key]) {
		s.full[key] = time.Now().Add(s.pause)
		j := s.ready[key][0]
		s.ready[key] = s.ready[key][1:]
		j.state = job.Leased
		j.Attempt++
		j.attempts = append(j.attempts, time.Now())
		j.ends = time.Now().Add(c.TTR)
		if j.Attempt > j.Tries {
			s.broken = append(s.broken, j.ID+" is delivered more often than it may be")
		}
		ends := j.ends                 // a requeued job has its next lease under the same attempt
		time.AfterFunc(c.TTR, func() { // the lease lapses
			s.mu.Lock()
			defer s.mu.Unlock()
			if j.state == job.Leased && !j.acked && j.ends.Equal(ends) {
				s.back(j, 0)
			}
		})
		one := j.Job
		one.Now = time.Now().UnixMilli()
		c.Jobs = append(c.Jobs, one)
	}
	c.Left, c.Held = []int{len(s.ready[key])}, []int64{0}
	if held := time.Until(s.full[key]); held > 0 && c.Left[0] > 0 {
		c.Left[0], c.Held[0] = -1, int64((held+time.Millisecond-1)/time.Millisecond)
	}
}

// back gives a job back after a while, or gives it up.
func (s *fakeJobs) back(j *fakeJob, after time.Duration) {
	switch {
	case j.Attempt >= j.Tries:
		j.state = job.Dead
	case after == 0:
		s.push(j)
	default:
		j.state = job.Delayed
		time.AfterFunc(after, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if j.state == job.Delayed && !j.acked {
				s.push(j)
			}
		})
	}
}

func (s *fakeJobs) settle(x *job.Settle) {
	x.Err, x.State = nil, job.Gone
	j := s.find(x.Queue, x.Ref)
	if j == nil || j.acked || j.state != job.Leased || j.Attempt != x.Attempt {
		return
	}
	switch x.Verb {
	case job.Nack:
		s.back(j, x.After)
	case job.Bury:
		j.state = job.Dead
	case job.Defer:
		j.deferred = x.After
	case job.Requeue:
		j.Attempt--
		j.attempts = j.attempts[:j.Attempt]
		j.state = job.Ready
		s.ready[j.key] = append([]*fakeJob{j}, s.ready[j.key]...)
		if len(s.ready[j.key]) == 1 {
			s.wake(j.key)
		}
	}
	x.State = j.state
}

// count is how many jobs are in a state, and -1 for those that are acked.
func (s *fakeJobs) count(state job.State) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if !j.acked && j.state == state {
			n++
		}
	}
	return n
}

func (s *fakeJobs) acked() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.acked {
			n++
		}
	}
	return n
}

// slow makes calls take so long from now on.
func (s *fakeJobs) slow(latency time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency = latency
}

func (s *fakeJobs) figures() (runs, lists int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs, s.lists
}

// fakeWakes tells one pusher of what becomes ready, a moment later.
type fakeWakes struct {
	s  *fakeJobs
	on func(job.WakeEvent)

	mu      sync.Mutex
	wanted  map[fakeKey]int
	deaf    bool // nothing is heard
	stopped bool
}

func (s *fakeJobs) newWakes(on func(job.WakeEvent)) Wakes {
	w := &fakeWakes{s: s, on: on, wanted: map[fakeKey]int{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakes = append(s.wakes, w)
	return w
}

func (w *fakeWakes) Want(_ *job.Namespace, shard int, queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted[fakeKey{queue, shard}]++
	w.send(job.WakeEvent{Kind: job.WakeSubscribed, Namespace: "mail", Shard: shard, Queue: queue})
}

func (w *fakeWakes) Unwant(_ *job.Namespace, shard int, queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wanted[fakeKey{queue, shard}]--; w.wanted[fakeKey{queue, shard}] == 0 {
		delete(w.wanted, fakeKey{queue, shard})
	}
}

func (w *fakeWakes) tell(e job.WakeEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wanted[fakeKey{e.Queue, e.Shard}] > 0 {
		w.send(e)
	}
}

func (w *fakeWakes) send(e job.WakeEvent) {
	time.AfterFunc(time.Millisecond, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.stopped && !w.deaf {
			w.on(e)
		}
	})
}

func (w *fakeWakes) wants() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wanted)
}

func (w *fakeWakes) Start(context.Context) error { return nil }

func (w *fakeWakes) Stop(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	return nil
}
