package backend

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrTooManyReads is ErrUnavailable because the maximum number of reads is under way.
// It says nothing about the store.
var ErrTooManyReads = fmt.Errorf("too many reads at once: %w", ErrUnavailable)

// A ReadLimit bounds how many reads are on the wire at once.
type ReadLimit struct {
	slots   chan struct{}
	maxWait time.Duration // how long a read waits for a slot
	refused prometheus.Counter
}

// NewReadLimit is a limit of n reads. A further one waits for maxWait at most; refused
// counts those that waited in vain.
func NewReadLimit(n int, maxWait time.Duration, refused prometheus.Counter) ReadLimit {
	return ReadLimit{make(chan struct{}, n), maxWait, refused}
}

// Do runs read once a slot is free.
func (l ReadLimit) Do(ctx context.Context, read func() error) error {
	turn, cancel := context.WithTimeout(ctx, l.maxWait)
	defer cancel()
	select {
	case l.slots <- struct{}{}:
	case <-turn.Done():
		l.refused.Inc()
		return ErrTooManyReads
	}
	defer func() { <-l.slots }()
	return read()
}
