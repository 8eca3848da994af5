package spillway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrLeaseLost is the cause of a handler's context that ends because the job is leased to it
// no more: it comes again, or has come, elsewhere.
var ErrLeaseLost = errors.New("spillway: the lease of the job is lost")

// ErrStopped is the cause of a handler's context that ends because Work stops.
var ErrStopped = errors.New("spillway: the worker stops")

// Permanent marks an error of a handler as one that no other delivery mends: the job is
// buried.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// RetryIn marks an error of a handler with the time after which the job comes again, as Nack
// takes it.
func RetryIn(err error, after time.Duration) error { return &retryError{err, after} }

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// ReleaseIn marks an error of a handler of PHP's jobs with the time after which the job comes again,
// whatever its try, as Release takes it.
func ReleaseIn(err error, after time.Duration) error { return &releaseError{err, after} }

type releaseError struct {
	error
	after time.Duration
}

// ErrNotBegun is a handler's error that is none: it has done nothing, and the job goes back to the
// head of its queue, as if it had not been claimed.
var ErrNotBegun = errors.New("spillway: the job was not begun")

// Deferred is a handler's error that is none: the work goes on elsewhere, and whoever does it
// settles the job by its queue, id and attempt within ttr, 30 days at most, with Ack of a Job
// that has them. If nobody does, the job comes again.
func Deferred(ttr time.Duration) error { return &deferredError{ttr} }

type deferredError struct{ ttr time.Duration }

func (e *deferredError) Error() string { return "deferred for " + e.ttr.String() }

// Result is a handler's error that is none: the job is acked, and v is its result, JSON of 4 KiB at most.
// What is not is told to OnError, and the job is acked without it.
func Result(v any) error {
	text, err := json.Marshal(v)
	if err == nil && len(text) > maxResult {
		err = fmt.Errorf("it has %d bytes, %d at most", len(text), maxResult)
	}
	if err != nil {
		return &resultError{failed: fmt.Errorf("spillway: the result of the handler is left out: %w", err)}
	}
	return &resultError{result: text}
}

// maxResult is what the service takes, in bytes.
const maxResult = 4 << 10

type resultError struct {
	result json.RawMessage
	failed error // it is not JSON, or too long
}

func (e *resultError) Error() string { return "acked with a result" }

// A Mux has a handler for each queue:
//
//	m := spillway.Mux{"welcome": welcome, "invoice": invoice}
//	err := queues.Work(ctx, []string{"invoice", "welcome"}, m.Handle, spillway.WorkerConfig{})
type Mux map[string]func(ctx context.Context, job Job) error

// Handle calls the handler of the job's queue. A job without one fails, and comes again.
func (m Mux) Handle(ctx context.Context, job Job) error {
	handle := m[job.Queue]
	if handle == nil {
		return fmt.Errorf("spillway: no handler for the queue %q", job.Queue)
	}
	return handle(ctx, job)
}

// A PanicError is a panic of a handler.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

var errGoexit = errors.New("handler called runtime.Goexit")
