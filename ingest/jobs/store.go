package jobs

import (
	"context"
	"errors"

	"github.com/spillway-io/spillway/partition/job"
)

// Store is what an Engine needs; *job.Store is one.
type Store interface {
	job.Operations
	job.ScheduleOperations
	job.OwnerOperations
	job.ScheduleForecasts
	Revert(ctx context.Context, l *job.Lane) error
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
