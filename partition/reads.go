package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reads that nobody's entries wait for are limited, so that no number of people
// and checks who ask can slow down producing and draining. Overview and Audit
// have a limit of their own: who floods the data port must not blind operators.
const (
	statsAtOnce    = 4
	statsMaxWait   = 50 * time.Millisecond
	ledgersAtOnce  = 2
	ledgersMaxWait = time.Second
)

// ErrTooManyReads is ErrUnavailable because as many reads are under way as may
// be at once. It says nothing about the store.
var ErrTooManyReads = fmt.Errorf("too many reads at once: %w", ErrUnavailable)

// A readLimit bounds how many reads are on the wire at once.
type readLimit struct {
	slots   chan struct{}
	maxWait time.Duration // how long a read waits for its turn
	refused prometheus.Counter
}

// do runs read when its turn comes.
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
