package spillway

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-io/spillway/partition/adaptive"
)

// Concurrency is how many handlers run at once: a number such as 8, or what Auto returns. As
// os.FileMode does, it keeps more in its upper bits, so that a number can be written as it is.
type Concurrency int64

const (
	autoBits = 15 // for each of the two bounds; above them the target in µs
	autoMost = 1<<autoBits - 1
	maxTake  = 1000 // jobs that one request asks for
)

// Auto makes Work find how many handlers may run at once, from least to most, by how long they
// take. It begins with the least. Each second, but after ten handlers at the earliest, there
// may be a tenth more (one at least) if there were jobs for more and nine of ten handlers ended
// within target. There may be a fifth fewer if they did not, or once a handler returns RetryIn
// or an error that is context.DeadlineExceeded: whoever it calls throttles or does not answer.
// Other errors count for neither, unless they are Permanent.
//
// Each call of Work, in each process, finds a number of its own. least is 1 or more, most is
// above it and 32767 at most, target is 1ms to 1h.
func Auto(least, most int, target time.Duration) Concurrency {
	if least < 1 || most <= least || most > autoMost || target < time.Millisecond || target > time.Hour {
		return -1 // Work says so
	}
	return Concurrency(target.Microseconds())<<(2*autoBits) | Concurrency(least)<<autoBits | Concurrency(most)
}

// limit is the limit, and the most that it can be.
func (c Concurrency) limit() (l *adaptive.Limit, most int) {
	target := time.Duration(c>>(2*autoBits)) * time.Microsecond
	if target == 0 {
		return adaptive.New(int(c), int(c), int(c), 0), int(c)
	}
	least, most := int(c>>autoBits&autoMost), int(c&autoMost)
	return adaptive.New(least, least, most, target), most
}

// learn tells the limit of a handler that began then and ended now. cause is why its context ended,
// if it did.
func (w *worker) learn(began time.Time, err, cause error) {
	var permanent *permanentError
	var retry *retryError
	switch {
	case cause != nil: // it was cut off
	case err == nil, errors.As(err, &permanent):
		w.limit.Answered(began)
	case errors.As(err, &retry), errors.Is(err, context.DeadlineExceeded):
		w.limit.Overloaded(began)
	}
}

// hold waits until a handler may run, and counts all that may run now as running: so many jobs are
// asked for. full: no further one may. 0: ctx has ended.
func (w *worker) hold(ctx context.Context) (held int, full bool) {
	for {
		if ctx.Err() != nil {
			return 0, false
		}
		free := w.limit.Get() - int(w.busy.Load())
		if free > 0 {
			if held = min(free, maxTake); w.cfg.Places != nil { // free bounds those that are not settled
				w.unused = w.cfg.Places(ctx, w.unused)
				held = min(held, w.unused)
			}
			w.busy.Add(int64(held))
			return held, held == free
		}
		select {
		case <-w.freed:
		case <-ctx.Done():
		}
	}
}

// free ends n handlers, or jobs that were asked for and did not come.
func (w *worker) free(n int) {
	w.busy.Add(int64(-n))
	select {
	case w.freed <- struct{}{}:
	default:
	}
}
