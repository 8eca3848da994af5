// Package jobtest has a store of jobs in memory, for tests of what stands on one. It passes the
// suite of package job, except for the cases that TestTheStoreOfJobtest leaves out: it has no
// ids of callers, keys, replies, follow-ups, prepared jobs, forecasts, traces and schedules,
// checks few arguments, and bounds neither an answer nor the number of queues.
package jobtest

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// Job is one that a Store has, or had. Its fields are read under Mu of the Store, or when
// nothing runs any more.
type Job struct {
	job.Job // At is when a delayed job is due, or the lease ends
	State   job.State
	Acked   bool
	Result  string      // of the ack
	Claims  []time.Time // when each delivery began; a requeue takes the last one back
	key     key
}

type key struct {
	namespace string
	shard     int
	queue     string
}

// A Store keeps jobs in memory. Its exported fields are set before it is used, or under Mu.
type Store struct {
	Mu         sync.Mutex
	Namespaces map[string]*job.Namespace // see Set
	// Fail is asked before a batch runs. With an error no part of it does, and each request
	// has the error. Nil: every batch runs.
	Fail func(*job.Batch) error
	// Down is the error of all reads, and of acts on many jobs.
	Down error
	// Answer is called after a batch ran, and may change what it says, by Lose and Fail.
	Answer func(*job.Lane, *job.Batch)
	// Pause is the time between two jobs of a queue in a shard; 0: no rate.
	Pause time.Duration
	// Frozen is a clock that stands still, in Unix ms, and that Move moves. 0: time passes.
	Frozen int64
	// Wakes are told which queues have jobs again.
	Wakes []*Wakes

	queues  map[key]*queue
	lost    map[*job.Lane][]*Job // of claims whose answer was lost
	ledgers map[string]*job.Ledger
	seq     int64
}

type queue struct {
	ready  []*Job
	all    map[int64]*Job // by sequence
	passes time.Time      // when the rate lets the next one pass
	next   int64          // when the first comes due or expires, Unix ms; 0: none does
}

// New makes a store with these namespaces, of the prefix "sw".
func New(tb testing.TB, policies map[string]job.Policy) *Store {
	tb.Helper()
	s := &Store{
		Namespaces: map[string]*job.Namespace{}, queues: map[key]*queue{},
		lost: map[*job.Lane][]*Job{}, ledgers: map[string]*job.Ledger{},
	}
	for name, p := range policies {
		s.Set(tb, name, p)
	}
	return s
}

// Set adds a namespace, or changes its policy.
func (s *Store) Set(tb testing.TB, name string, p job.Policy) {
	tb.Helper()
	ns, err := job.NewNamespace("sw", name, p)
	if err != nil {
		tb.Fatal(err)
	}
	s.With(func() {
		s.Namespaces[name] = ns
		if s.ledgers[name] == nil {
			s.ledgers[name] = &job.Ledger{}
		}
	})
}

// SetPause changes the rate: the next job of each queue passes at once.
func (s *Store) SetPause(d time.Duration) {
	s.With(func() {
		s.Pause = d
		for _, q := range s.queues {
			q.passes = time.Time{}
		}
	})
}

// With runs f under Mu.
func (s *Store) With(f func()) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	f()
}

// Put makes jobs ready, as another process would, and fills in what they lack. With wake false
// nobody is told.
func (s *Store) Put(namespace string, wake bool, jobs ...*Job) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, j := range jobs {
		s.store(s.Namespaces[namespace], j)
		s.push(j, false, wake)
	}
}

// sequences returns the first of n new ones in a row, which begin with the time, as the scripts'.
func (s *Store) sequences(n int) int64 {
	first := max(s.seq, s.now()*1000) + 1
	s.seq = first + int64(n) - 1
	return first
}

// store adds a job that is not ready yet.
func (s *Store) store(ns *job.Namespace, j *Job) {
	j.key = key{ns.Name, j.Shard, j.Queue}
	if j.Seq == 0 {
		j.Seq = s.sequences(1)
		j.Published = cmp.Or(j.Published, j.Seq/1000)
	}
	if j.ID == "" {
		j.ID = ns.ID(j.Shard, j.Queue, j.Seq, j.CallerID)
	}
	j.Published = cmp.Or(j.Published, s.now())
	j.Tries = max(j.Tries, 1)
	s.at(j.key).all[j.Seq] = j
	s.ledgers[ns.Name].Published++
}

func (s *Store) at(k key) *queue {
	q := s.queues[k]
	if q == nil {
		q = &queue{all: map[int64]*Job{}}
		s.queues[k] = q
	}
	return q
}

// push makes a job ready. As the scripts do, it wakes only where no job was ready before.
func (s *Store) push(j *Job, head, wake bool) {
	q := s.at(j.key)
	j.State, j.At = job.Ready, 0
	q.until(j.Expires)
	if head {
		q.ready = slices.Insert(q.ready, 0, j)
	} else {
		q.ready = append(q.ready, j)
	}
	if len(q.ready) > 1 || !wake {
		return
	}
	for _, w := range s.Wakes {
		w.publish(j.key)
	}
}

// wait has a delayed or leased job come due. A time that has changed meanwhile is another's.
func (s *Store) wait(j *Job, state job.State, d time.Duration) {
	j.State, j.At = state, s.now()+d.Milliseconds()
	s.at(j.key).until(j.At)
	s.at(j.key).until(j.Expires)
	if s.Frozen == 0 {
		time.AfterFunc(d, func() { s.With(func() { s.due(j) }) })
	}
}

// due is what time does to a job.
func (s *Store) due(j *Job) {
	switch {
	case j.At == 0 || j.At > s.now():
	case j.State == job.Delayed:
		s.push(j, false, true)
	case j.State == job.Leased:
		s.back(j, 0, job.Lapsed)
	}
}

// back gives a job back after a while, or gives it up.
func (s *Store) back(j *Job, after time.Duration, why job.Reason) {
	j.Deferred = false
	switch {
	case j.Attempt >= j.Tries:
		s.bury(j, why)
	case after == 0:
		s.push(j, false, true)
	default:
		s.wait(j, job.Delayed, after)
	}
}

func (s *Store) bury(j *Job, why job.Reason) {
	l := s.ledgers[j.key.namespace]
	if s.Namespaces[j.key.namespace].Policy.DropDead {
		s.leave(j, &l.Expired)
		j.State = job.Expired
		return
	}
	l.Died++
	j.State, j.Reason, j.At, j.Expires = job.Dead, why, s.now(), 0
	if why == job.Buried && (len(j.Errors) == 0 || j.Errors[0].AtMS != j.At) {
		j.Attempt = -1 // as package job knows no more
	}
}

// leave ends a job and counts it.
func (s *Store) leave(j *Job, class *int64) {
	q := s.at(j.key)
	q.ready = slices.DeleteFunc(q.ready, func(k *Job) bool { return k == j })
	delete(q.all, j.Seq)
	j.State = job.Gone
	*class++
}

// expire is a queue at this time: what came due is ready, and what is too old has gone.
func (s *Store) expire(k key) *queue {
	q, now := s.at(k), s.now()
	if q.next == 0 || q.next > now {
		return q
	}
	q.next = 0
	for _, j := range inOrder(q) {
		waits := j.State == job.Ready || j.State == job.Delayed
		switch {
		case waits && j.Expires > 0 && j.Expires <= now:
			s.leave(j, &s.ledgers[k.namespace].Expired)
		case waits || j.State == job.Leased:
			s.due(j)
			q.until(j.At)
			q.until(j.Expires)
		}
	}
	return q
}

// until notes that something happens then; 0: never.
func (q *queue) until(at int64) {
	if at > 0 && (q.next == 0 || at < q.next) {
		q.next = at
	}
}

func (s *Store) now() int64 {
	if s.Frozen > 0 {
		return s.Frozen
	}
	return time.Now().UnixMilli()
}

// Move moves a Frozen clock.
func (s *Store) Move(d time.Duration) {
	s.With(func() {
		s.Frozen += d.Milliseconds()
		for k := range s.queues {
			s.expire(k)
		}
	})
}

// Now is the clock in Unix ms.
func (s *Store) Now() (int64, bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.now(), true
}

// Namespace is nil for a name that was not set.
func (s *Store) Namespace(name string) *job.Namespace {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Namespaces[name]
}

// Note does nothing: there are no traces.
func (s *Store) Note(*job.Namespace, string, job.Ref, job.TraceEvent) {}

// NewLane makes a lane for Run.
func (s *Store) NewLane() *job.Lane { return new(job.Lane) }

func inOrder(q *queue) []*Job {
	return slices.SortedFunc(maps.Values(q.all), func(a, b *Job) int { return int(a.Seq - b.Seq) })
}
