package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Stats, Overview and Audit are limited, so that no number of readers slows down
// produce and drain. Overview and Audit have a limit of their own: a flood of Stats on
// the data port must not block operators.
const (
	statsAtOnce    = 4
	statsMaxWait   = 50 * time.Millisecond
	ledgersAtOnce  = 2
	ledgersMaxWait = time.Second
)

// ErrTooManyReads is ErrUnavailable because the maximum number of reads is under way.
// It says nothing about the store.
var ErrTooManyReads = fmt.Errorf("too many reads at once: %w", ErrUnavailable)

// A readLimit bounds how many reads are on the wire at once.
type readLimit struct {
	slots   chan struct{}
	maxWait time.Duration // how long a read waits for a slot
	refused prometheus.Counter
}

// do runs read once a slot is free.
func (l readLimit) do(ctx context.Context, read func() error) error {
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
