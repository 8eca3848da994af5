package partition

import (
	"time"

	"github.com/spillway-io/spillway/partition/backend"
)

// Stats, Overview and Audit are limited, so that no number of readers slows down
// produce and drain. Overview and Audit have a limit of their own: a flood of Stats on
// the data port must not block operators.
const (
	statsAtOnce    = 4
	statsMaxWait   = 500 * time.Millisecond
	ledgersAtOnce  = 3 // two of operators, who are one tenant
	ledgersMaxWait = time.Second
)

// ErrTooManyReads is ErrUnavailable because the maximum number of reads is under way.
// It says nothing about the store.
var ErrTooManyReads = backend.ErrTooManyReads
