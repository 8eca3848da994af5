package partition

import (
	"errors"

	"github.com/spillway-io/spillway/partition/backend"
)

// The errors of store operations. Every error of the store Is one of the first three,
// which say what the caller may do next; the others are more precise.
var (
	// ErrUnavailable: the store did not run the operation, for certain. Retry.
	ErrUnavailable = backend.ErrUnavailable
	// ErrUnknown: the operation may or may not have run. Never repeat a produce
	// then; claim, commit and release are safe to repeat.
	ErrUnknown = backend.ErrUnknown
	// ErrBroken: a foreign value under one of the store's keys, a script error or a
	// missing right. A person has to look.
	ErrBroken = backend.ErrBroken

	// ErrUnconfirmed goes with ErrUnknown: the primary has the entries, but fewer
	// replicas than Config.Replicas confirmed them in time.
	ErrUnconfirmed = backend.ErrUnconfirmed
	// ErrFull is ErrUnavailable because the store is out of memory.
	ErrFull = backend.ErrFull
	// ErrIncompatible is ErrBroken because the data or the setup of the store does not
	// match this program or its configuration.
	ErrIncompatible = backend.ErrIncompatible
	// ErrTooManyPartitions: a new partition beyond Policy.MaxPartitions.
	ErrTooManyPartitions = errors.New("too many partitions")
	// ErrTooManyKeys: a new idempotency key beyond Policy.MaxKeys.
	ErrTooManyKeys = errors.New("too many idempotency keys")
	// ErrNoPartition: the partition has no entries.
	ErrNoPartition = errors.New("no such partition")
	// ErrGone: the caller no longer holds the lease, or its partition ended. Stop.
	ErrGone = errors.New("lease is gone")
)
