package partition

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// What a store operation can fail with. Everything the store returns Is one of
// the first three, which say what the caller may do next; the others refine.
var (
	// ErrUnavailable: the store provably did not run the operation. Retry.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUnknown: the operation may or may not have run. Never repeat a
	// produce on it; claim, commit and release are safe to repeat.
	ErrUnknown = errors.New("outcome unknown")
	// ErrBroken: a foreign value under one of our keys, a script error or
	// missing rights. A person has to look.
	ErrBroken = errors.New("store refuses")

	// ErrUnconfirmed goes with ErrUnknown: the primary has it, but fewer replicas
	// than Config.Replicas confirmed it in time.
	ErrUnconfirmed = errors.New("too few replicas confirmed it in time")
	// ErrFull is ErrUnavailable because the store is out of memory.
	ErrFull = fmt.Errorf("store full: %w", ErrUnavailable)
	// ErrIncompatible is ErrBroken because what the store holds, or how it is
	// set up, does not fit this program or its configuration.
	ErrIncompatible = fmt.Errorf("incompatible: %w", ErrBroken)
	// ErrTooManyPartitions: a new partition beyond Policy.MaxPartitions.
	ErrTooManyPartitions = errors.New("too many partitions")
	// ErrNoPartition: the partition has no entries.
	ErrNoPartition = errors.New("no such partition")
	// ErrGone: the lease is no longer ours, or its partition died. Stop.
	ErrGone = errors.New("lease is gone")
)

// A storeError is what Redis or the network said, in one of the classes above.
type storeError struct {
	class error
	cause error
}

func (e *storeError) Error() string   { return e.class.Error() + ": " + e.cause.Error() }
func (e *storeError) Unwrap() []error { return []error{e.class, e.cause} }

// notExecuted are the beginnings of Redis errors after which a script provably
// did not run, or not beyond its reads: server states are checked before the
// first write, and our scripts write only after all their reads.
var notExecuted = []string{
	"NOSCRIPT ", "READONLY ", "LOADING ", "MISCONF ", "BUSY ", "MOVED ", "ASK ", "TRYAGAIN ",
	"CLUSTERDOWN ", "MASTERDOWN ", "NOREPLICAS ", "ERR max number of clients reached",
}

// These errors of the client, known by text because it has no values for them,
// come before anything was written to a connection.
const (
	noNodes     = "redis: cluster has no nodes"
	noSentinels = "redis: all sentinels specified in configuration are unreachable"
)

// classify puts an error of the client into one of the three classes; nil and
// redis.Nil itself are no errors. Sentinels that answer with redis.Nil know no
// such master: that one is wrapped.
func classify(err error) error {
	var (
		reply redis.Error
		op    *net.OpError
	)
	switch {
	case err == nil, err == redis.Nil: //nolint:errorlint // see above
		return nil
	case errors.As(err, &reply):
		text := reply.Error()
		if strings.HasPrefix(text, "OOM ") {
			return &storeError{ErrFull, err}
		}
		for _, prefix := range notExecuted {
			if strings.HasPrefix(text, prefix) {
				return &storeError{ErrUnavailable, err}
			}
		}
		return &storeError{ErrBroken, err}
	case strings.HasPrefix(err.Error(), noNodes), strings.HasPrefix(err.Error(), noSentinels),
		errors.As(err, &op) && op.Op == "dial",
		errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return &storeError{ErrUnavailable, err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &storeError{ErrUnknown, err}
	}
	return &storeError{ErrUnknown, err}
}
