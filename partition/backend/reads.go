package backend

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
