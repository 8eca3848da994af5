package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// Store is what an Engine needs; *job.Store is one.
type Store interface {
	Namespace(name string) *job.Namespace
	Now() (ms int64, ok bool)
	NewLane() *job.Lane
	Run(ctx context.Context, l *job.Lane, b *job.Batch)
	Revert(ctx context.Context, l *job.Lane) error

	Peek(ctx context.Context, ns *job.Namespace, queue string) (job.Job, error)
	Get(ctx context.Context, ns *job.Namespace, queue string, ref job.Ref) (job.Job, job.State, error)
	Counts(ctx context.Context, ns *job.Namespace, queue string) (job.Counts, error)
	Forecast(ctx context.Context, ns *job.Namespace, queue string, step time.Duration, n int) ([]int64, error)
	Dead(ctx context.Context, ns *job.Namespace, queue string, offset,
		limit int) (list []job.Job, total int64, err error)
	Purge(ctx context.Context, ns *job.Namespace, queue string, all bool) (int64, error)
	Respawn(ctx context.Context, ns *job.Namespace, queue string, limit int, ttl time.Duration) (int, error)
	DeleteDead(ctx context.Context, ns *job.Namespace, queue string, limit int) (int, error)
}

// Wakes tells when queues have jobs again; *job.Wakes is one. A job.WakeSubscribed follows
// each Want. Events come one at a time, on any goroutine, and under no lock that Want or
// Unwant takes.
type Wakes interface {
	Want(ns *job.Namespace, shard int, queue string)
	Unwant(ns *job.Namespace, shard int, queue string)
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// zoned is a store over several Redis masters, in zones of slots.
type zoned interface {
	Zones() int
	ZoneOf(ns *job.Namespace, shard int) int
}

// Errors of an Engine, beside the store's. After each of them nothing is stored or claimed.
var (
	ErrOverloaded = errors.New("waited too long for a flush")
	ErrStopping   = errors.New("shutting down")
	// ErrHungUp: the client closed its connection, or its half of it.
	ErrHungUp = errors.New("the client went away")
	// ErrNoNamespace: the namespace was deleted while the client waited.
	ErrNoNamespace = errors.New("the namespace was deleted")
	// ErrRevoked: the client's token was removed while it waited.
	ErrRevoked = errors.New("the token was revoked")
)
