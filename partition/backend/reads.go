package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/share"
)

// ErrTooManyReads is ErrUnavailable because the maximum number of reads is under way.
// It says nothing about the store.
var ErrTooManyReads = fmt.Errorf("too many reads at once: %w", ErrUnavailable)

// A ReadLimit bounds how many reads are on the wire at once. Those of a tenant take turns
// with those of others: see share.As.
type ReadLimit struct {
	turns    *share.Turns
	maxWait  time.Duration // how long a read waits for a slot
	rejected prometheus.Counter
}

// maxQueue is how many reads, or paced calls, of a tenant may wait for their turn.
const maxQueue = 128

// NewReadLimit is a limit of n reads. A further one waits for maxWait at most; rejected
// counts those that waited in vain.
func NewReadLimit(n int, maxWait time.Duration, rejected prometheus.Counter) ReadLimit {
	return ReadLimit{share.NewTurns(n, maxQueue), maxWait, rejected}
}

// Do runs read once it is its turn.
func (l ReadLimit) Do(ctx context.Context, read func() error) (err error) {
	turn, cancel := context.WithTimeout(ctx, l.maxWait)
	defer cancel()
	if !l.turns.Do(turn, func() { err = read() }) {
		l.rejected.Inc()
		return ErrTooManyReads
	}
	return err
}

// Pipes are pipelines that run at once, one for each client.
type Pipes map[redis.Cmdable]redis.Pipeliner

// To is the pipeline of a client.
func (p Pipes) To(client redis.Cmdable) redis.Pipeliner {
	if p[client] == nil {
		p[client] = client.Pipeline()
	}
	return p[client]
}

// Exec runs them. Each command has its own error; err is one of those that are not redis.Nil.
func (p Pipes) Exec(ctx context.Context) (err error) {
	errs := make(chan error, len(p))
	for _, pipe := range p {
		go func() {
			_, err := pipe.Exec(ctx)
			errs <- err
		}()
	}
	for range p {
		if failed := <-errs; err == nil && !errors.Is(failed, redis.Nil) {
			err = failed
		}
	}
	return err
}
