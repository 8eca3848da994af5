package lmstfy

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/partition/job"
)

// A Pool is one Redis with queues.
type Pool struct {
	Name   string
	Engine *jobs.Engine
	Store  *job.Store
}

// Pools are Queues over the stores of one process. No two have a namespace of the same name.
type Pools []Pool

// Names are the names of the pools, DefaultPool first.
func (p Pools) Names() []string {
	names := make([]string, 0, len(p))
	for i := range p {
		names = append(names, p[i].Name)
	}
	slices.SortFunc(names, func(a, b string) int {
		switch DefaultPool {
		case a:
			return -1
		case b:
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}

// Namespace finds a namespace and the name of its pool.
func (p Pools) Namespace(name string) (*job.Namespace, string) {
	for i := range p {
		if ns := p[i].Store.Namespace(name); ns != nil {
			return ns, p[i].Name
		}
	}
	return nil, ""
}

// HasPool reports whether there is a pool of that name.
func (p Pools) HasPool(name string) bool {
	return slices.ContainsFunc(p, func(of Pool) bool { return of.Name == name })
}

// of is the pool of a namespace. One that was deleted meanwhile is of none; its requests go
// to the first, whose store does not know it.
func (p Pools) of(ns *job.Namespace) *Pool {
	for i := range p {
		if p[i].Store.Namespace(ns.Name) != nil {
			return &p[i]
		}
	}
	return &p[0]
}

// Publish stores messages in one of the shards of their queue.
func (p Pools) Publish(m *job.Publish) error {
	shards := m.Namespace.Shards(m.Queue)
	m.Shard = shards[0]
	if len(shards) > 1 {
		m.Shard = shards[rand.IntN(len(shards))]
	}
	p.of(m.Namespace).Engine.Publish(m)
	return m.Err
}

// Ack ends a job.
func (p Pools) Ack(a *job.Ack) error {
	p.of(a.Namespace).Engine.Ack(a)
	return a.Err
}

// Claim takes jobs, and waits for the first.
func (p Pools) Claim(c *jobs.Claim) ([]job.Job, error) { return p.of(c.Namespace).Engine.Claim(c) }

// GiveBack undoes a claim.
func (p Pools) GiveBack(ns *job.Namespace, claimed []job.Job) {
	p.of(ns).Engine.GiveBack(ns, claimed)
}

// Peek returns the next ready job of a queue, or job.ErrNoJob.
func (p Pools) Peek(ctx context.Context, ns *job.Namespace, queue string) (job.Job, error) {
	return p.of(ns).Store.Peek(ctx, ns, queue)
}

// Get returns a job and its state, or job.ErrNoJob.
func (p Pools) Get(ctx context.Context, ns *job.Namespace, queue string,
	ref job.Ref) (job.Job, job.State, error) {
	return p.of(ns).Store.Get(ctx, ns, queue, ref)
}

// Counts counts the jobs of a queue.
func (p Pools) Counts(ctx context.Context, ns *job.Namespace, queue string) (job.Counts, error) {
	return p.of(ns).Store.Counts(ctx, ns, queue)
}

// Dead lists dead letters, oldest first.
func (p Pools) Dead(ctx context.Context, ns *job.Namespace, queue string, offset,
	limit int) ([]job.Job, int64, error) {
	return p.of(ns).Store.Dead(ctx, ns, queue, offset, limit)
}

// Respawn makes the oldest dead letters ready again.
func (p Pools) Respawn(ctx context.Context, ns *job.Namespace, queue string, limit int,
	ttl time.Duration) (int, error) {
	return p.of(ns).Store.Respawn(ctx, ns, queue, limit, ttl)
}

// DeleteDead deletes the oldest dead letters.
func (p Pools) DeleteDead(ctx context.Context, ns *job.Namespace, queue string, limit int) (int, error) {
	return p.of(ns).Store.DeleteDead(ctx, ns, queue, limit)
}

// Purge deletes the ready jobs of a queue; with all the delayed and dead ones, too.
func (p Pools) Purge(ctx context.Context, ns *job.Namespace, queue string, all bool) (int64, error) {
	return p.of(ns).Store.Purge(ctx, ns, queue, all)
}

// Queues lists the queues of a namespace that have jobs; none for one that does not exist.
func (p Pools) Queues(ctx context.Context, namespace string) ([]string, error) {
	ns, _ := p.Namespace(namespace)
	if ns == nil {
		return nil, nil
	}
	return p.of(ns).Store.Queues(ctx, ns)
}
