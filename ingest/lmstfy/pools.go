package lmstfy

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/partition/job"
)

// A Pool is one Redis with queues.
type Pool struct {
	Name   string
	Engine Engine
	Store  Store
}

// Engine is what runs in shared calls; *jobs.Engine is one. An error is in what was given.
type Engine interface {
	Publish(publishes ...*job.Publish)
	Ack(acks ...*job.Ack)
	Claim(c *jobs.Claim) ([]job.Job, error)
	GiveBack(ns *job.Namespace, claimed []job.Job)
}

// Store is what else a pool does; *job.Store is one.
type Store interface {
	Namespace(name string) *job.Namespace
	Peek(ctx context.Context, ns *job.Namespace, queue string) (job.Job, error)
	Get(ctx context.Context, ns *job.Namespace, queue string, ref job.Ref) (job.Job, job.State, error)
	Counts(ctx context.Context, ns *job.Namespace, queue string) (job.Counts, error)
	Dead(ctx context.Context, ns *job.Namespace, queue string, offset,
		limit int) (dead []job.Job, total int64, err error)
	Respawn(ctx context.Context, ns *job.Namespace, queue string, limit int, ttl time.Duration) (int, error)
	DeleteDead(ctx context.Context, ns *job.Namespace, queue string, limit int) (int, error)
	Purge(ctx context.Context, ns *job.Namespace, queue string, all bool) (int64, error)
}

// Pools are those of one process, one at least. No two have a namespace of the same name.
type Pools []Pool

// Of is the pool of a namespace, nil where there is no such namespace.
func (p Pools) Of(namespace string) *Pool {
	for i := range p {
		if p[i].Store.Namespace(namespace) != nil {
			return &p[i]
		}
	}
	return nil
}
