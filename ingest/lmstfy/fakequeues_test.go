package lmstfy

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/job/jobtest"
)

// fakeQueues is an engine on a store in memory, whose clock stands still until a test moves it.
type fakeQueues struct {
	*jobtest.Store
	missing
	pools    map[string]string // of namespaces that are not in the default pool
	changed  chan struct{}     // closed when a job may have become ready
	claims   int               // calls of Claim that began
	waiting  chan struct{}     // receives one value when a Claim begins to wait
	requeued int
	held     chan struct{} // if set: Counts and Purge wait until it is closed
	holding  atomic.Int64  // calls that wait so
}

// missing is what no request of lmstfy asks for.
type missing struct{ job.Reads }

func newFake(t testing.TB, names ...string) *fakeQueues {
	t.Helper()
	policies := map[string]job.Policy{}
	for _, name := range names {
		policies[name] = job.DefaultPolicy()
	}
	f := &fakeQueues{
		Store: jobtest.New(t, policies), pools: map[string]string{}, changed: make(chan struct{}), waiting: make(chan struct{}, 16),
	}
	f.Frozen = 1_700_000_000_000
	return f
}

// sleep moves the clock.
func (f *fakeQueues) sleep(d time.Duration) {
	f.Move(d)
	f.wake()
}

// fail makes every call fail, until it is told nil.
func (f *fakeQueues) fail(err error) {
	f.With(func() {
		f.Down = err
		f.Fail = func(*job.Batch) error { return err }
	})
}

// hold waits where a test lets calls of the store hang.
func (f *fakeQueues) hold() {
	if f.held != nil {
		f.holding.Add(1)
		<-f.held
	}
}

func (f *fakeQueues) wake() {
	f.With(func() {
		close(f.changed)
		f.changed = make(chan struct{})
	})
}

// of are the jobs of a queue of the namespace ns.
func (f *fakeQueues) of(queue string) []*jobtest.Job { return f.Jobs(f.Store.Namespace("ns"), queue) }

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
	return p.Store.Namespace(name)
}

func (f *fakeQueues) run(b *job.Batch) { f.Run(context.Background(), nil, b) }

func (f *fakeQueues) Publish(publishes ...*job.Publish) {
	for _, p := range publishes {
		p.Shard = p.Namespace.Shards(p.Queue)[0]
	}
	f.run(&job.Batch{Publishes: publishes})
	f.wake()
}

func (f *fakeQueues) Ack(acks ...*job.Ack) { f.run(&job.Batch{Acks: acks}) }

func (f *fakeQueues) Claim(c *jobs.Claim) ([]job.Job, error) {
	deadline := time.Now().Add(c.Wait)
	f.With(func() { f.claims++ })
	for first := true; ; first = false {
		f.Mu.Lock()
		changed := f.changed
		f.Mu.Unlock()
		var found []job.Job
		for _, name := range c.Queues {
			one := &job.Claim{Namespace: c.Namespace, Shard: c.Namespace.Shards(name)[0], Queues: []string{name}, TTR: c.TTR, Count: c.Count - len(found)}
			if one.Count == 0 {
				break
			}
			if f.run(&job.Batch{Claims: []*job.Claim{one}}); one.Err != nil {
				return nil, one.Err
			}
			found = append(found, one.Jobs...)
		}
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
	var b job.Batch
	for _, j := range claimed {
		b.Settles = append(b.Settles, &job.Settle{Namespace: ns, Queue: j.Queue, Ref: j.Ref, Attempt: j.Attempt, Verb: job.Requeue})
	}
	f.run(&b)
	f.With(func() { f.requeued += len(claimed) })
}

func (f *fakeQueues) Purge(ctx context.Context, ns *job.Namespace, queue string, all bool) (int64, error) {
	f.hold()
	return f.Store.Purge(ctx, ns, queue, all)
}

func (f *fakeQueues) Counts(ctx context.Context, ns *job.Namespace, queue string) (job.Counts, error) {
	f.hold()
	return f.Store.Counts(ctx, ns, queue)
}

func (f *fakeQueues) ActOnDead(ctx context.Context, a *job.DeadAct) (int, error) {
	defer f.wake()
	return f.Store.ActOnDead(ctx, a)
}

var errDown = errors.Join(partition.ErrUnavailable, errors.New("dial tcp 10.0.0.1:6379: connection refused"))
