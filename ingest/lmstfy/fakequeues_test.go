package lmstfy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// fakeQueues keeps jobs in memory: delay, ttr, ttl, tries, dead letters. Its clock stands
// still until a test moves it.
type fakeQueues struct {
	job.Operations // nil: what no request of lmstfy asks for

	mu         sync.Mutex
	namespaces map[string]*job.Namespace
	pools      map[string]string // of namespaces that are not in the default pool
	now        int64             // Unix ms
	seq        int64             // µs
	jobs       map[string][]*fakeJob
	changed    chan struct{} // closed when a job becomes ready
	down       error         // what every call returns
	claims     int           // calls of Claim that began
	waiting    chan struct{} // receives one value when a Claim begins to wait
	requeued   int
	held       chan struct{} // if set: Counts, Peek and Purge wait until it is closed
	holding    atomic.Int64  // calls that wait so
}

type fakeJob struct {
	job.Job
	state job.State
	due   int64 // of a delayed job, or the end of the lease
}

func newFake(t testing.TB, names ...string) *fakeQueues {
	f := &fakeQueues{
		namespaces: map[string]*job.Namespace{}, pools: map[string]string{}, now: 1_700_000_000_000,
		jobs: map[string][]*fakeJob{}, changed: make(chan struct{}), waiting: make(chan struct{}, 16),
	}
	for _, name := range names {
		ns, err := job.NewNamespace("sw", name, job.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		f.namespaces[name] = ns
	}
	return f
}

// sleep moves the clock.
func (f *fakeQueues) sleep(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now += d.Milliseconds()
	f.wake()
}

func (f *fakeQueues) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = err
}

// hold waits where a test lets calls of the store hang.
func (f *fakeQueues) hold() {
	if f.held != nil {
		f.holding.Add(1)
		<-f.held
	}
}

func (f *fakeQueues) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// both are its two pools.
func (f *fakeQueues) both() Pools {
	return Pools{{DefaultPool, f, fakePool{f, ""}}, {"fast", f, fakePool{f, "fast"}}}
}

type fakePool struct {
	*fakeQueues
	name string
}

func (p fakePool) Namespace(name string) *job.Namespace {
	if p.pools[name] != p.name {
		return nil
	}
	return p.namespaces[name]
}

func (f *fakeQueues) Publish(publishes ...*job.Publish) {
	for _, p := range publishes {
		f.publish(p)
	}
}

func (f *fakeQueues) publish(p *job.Publish) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Err = f.down; p.Err != nil {
		return
	}
	f.seq = max(f.seq, f.now*1000)
	p.Shard, p.First = p.Namespace.Shards(p.Queue)[0], f.seq+1
	for _, m := range p.Messages {
		f.seq++
		j := &fakeJob{Job: job.Job{
			Queue: p.Queue, Ref: job.Ref{Shard: p.Shard, Seq: f.seq}, ID: p.Namespace.ID(p.Shard, p.Queue, f.seq, ""),
			Tries: p.Tries, Published: f.now, Payload: slices.Clone(m.Payload), Attributes: slices.Clone(m.Attributes),
		}, state: job.Ready}
		if p.TTL > 0 {
			j.Expires = f.now + p.TTL.Milliseconds()
		}
		if p.Delay > 0 {
			j.state, j.due = job.Delayed, f.now+p.Delay.Milliseconds()
		}
		key := p.Namespace.Name + " " + p.Queue
		f.jobs[key] = append(f.jobs[key], j)
	}
	f.wake()
}

// queue returns the jobs of a queue as they are at this time.
func (f *fakeQueues) queue(ns *job.Namespace, name string) []*fakeJob {
	key := ns.Name + " " + name
	f.jobs[key] = slices.DeleteFunc(f.jobs[key], func(j *fakeJob) bool {
		switch {
		case j.state == job.Delayed && j.due <= f.now, j.state == job.Leased && j.due <= f.now && j.Attempt < j.Tries:
			j.state = job.Ready
		case j.state == job.Leased && j.due <= f.now:
			j.state, j.Expires = job.Dead, 0
		}
		j.Now = f.now
		return j.Expires > 0 && j.Expires <= f.now && j.state != job.Leased
	})
	return f.jobs[key]
}

func (f *fakeQueues) Claim(c *jobs.Claim) ([]job.Job, error) {
	deadline := time.Now().Add(c.Wait)
	for first := true; ; first = false {
		f.mu.Lock()
		if first {
			f.claims++
		}
		if f.down != nil {
			defer f.mu.Unlock()
			return nil, f.down
		}
		var found []job.Job
		for _, name := range c.Queues {
			for _, j := range f.queue(c.Namespace, name) {
				if j.state == job.Ready && len(found) < c.Count {
					j.Attempt++
					j.state, j.due = job.Leased, f.now+c.TTR.Milliseconds()
					found = append(found, j.Job)
				}
			}
		}
		changed := f.changed
		f.mu.Unlock()
		left := time.Until(deadline)
		if len(found) > 0 || left <= 0 {
			return found, nil
		}
		if first {
			f.waiting <- struct{}{}
		}
		select {
		case <-changed:
		case <-time.After(left):
		case <-c.Stopping:
			return nil, nil
		}
		if c.Revoked() {
			return nil, jobs.ErrRevoked
		}
	}
}

func (f *fakeQueues) GiveBack(ns *job.Namespace, claimed []job.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requeued += len(claimed)
	for _, j := range claimed {
		for _, k := range f.queue(ns, j.Queue) {
			if k.ID == j.ID {
				k.state = job.Ready
				k.Attempt--
			}
		}
	}
}

// remove removes jobs for which gone is true, at most limit of them.
func (f *fakeQueues) remove(ns *job.Namespace, queue string, limit int, gone func(*fakeJob) bool) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return 0, f.down
	}
	f.jobs[ns.Name+" "+queue] = slices.DeleteFunc(f.queue(ns, queue), func(j *fakeJob) bool {
		if n == limit || !gone(j) {
			return false
		}
		n++
		return true
	})
	return n, nil
}

func (f *fakeQueues) Ack(acks ...*job.Ack) {
	for _, a := range acks {
		var n int
		n, a.Err = f.remove(a.Namespace, a.Queue, 1, func(j *fakeJob) bool { return j.Ref == a.Ref })
		a.Acked = n == 1
	}
}

func (f *fakeQueues) Purge(_ context.Context, ns *job.Namespace, queue string, all bool) (int64, error) {
	f.hold()
	n, err := f.remove(ns, queue, -1, func(j *fakeJob) bool { return j.state == job.Ready || all })
	return int64(n), err
}

func (f *fakeQueues) DeleteDead(_ context.Context, ns *job.Namespace, queue string, limit int) (int, error) {
	return f.remove(ns, queue, limit, func(j *fakeJob) bool { return j.state == job.Dead })
}

func (f *fakeQueues) find(ns *job.Namespace, queue string, is func(*fakeJob) bool) (job.Job, job.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return job.Job{}, job.Gone, f.down
	}
	for _, j := range f.queue(ns, queue) {
		if is(j) {
			return j.Job, j.state, nil
		}
	}
	return job.Job{}, job.Gone, job.ErrNoJob
}

func (f *fakeQueues) Peek(_ context.Context, ns *job.Namespace, queue string) (job.Job, error) {
	j, _, err := f.find(ns, queue, func(j *fakeJob) bool { return j.state == job.Ready })
	return j, err
}

func (f *fakeQueues) Get(_ context.Context, ns *job.Namespace, queue string, ref job.Ref) (job.Job, job.State, error) {
	return f.find(ns, queue, func(j *fakeJob) bool { return j.Ref == ref })
}

func (f *fakeQueues) Counts(_ context.Context, ns *job.Namespace, queue string) (c job.Counts, err error) {
	f.hold()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.queue(ns, queue) {
		switch j.state {
		case job.Ready:
			c.Ready++
		case job.Dead:
			c.Dead++
		}
	}
	return c, f.down
}

func (f *fakeQueues) Dead(_ context.Context, ns *job.Namespace, queue string, offset, limit int) (dead []job.Job, total int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.queue(ns, queue) {
		if j.state == job.Dead {
			dead = append(dead, j.Job)
		}
	}
	total = int64(len(dead))
	return dead[min(offset, len(dead)):min(offset+limit, len(dead))], total, f.down
}

func (f *fakeQueues) Respawn(_ context.Context, ns *job.Namespace, queue string, limit int, ttl time.Duration) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.queue(ns, queue) {
		if j.state == job.Dead && n < limit {
			n++
			j.state, j.Attempt, j.Tries = job.Ready, 0, 1
			if ttl > 0 {
				j.Expires = f.now + ttl.Milliseconds()
			}
		}
	}
	f.wake()
	return n, f.down
}

var errDown = errors.Join(partition.ErrUnavailable, errors.New("dial tcp 10.0.0.1:6379: connection refused"))
