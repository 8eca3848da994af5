package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"
)

// ErrLeaseLost is the cause of a handler's context that ends because the job is leased to it
// no more: it comes again, or has come, elsewhere.
var ErrLeaseLost = errors.New("client: the lease of the job is lost")

// ErrStopped is the cause of a handler's context that ends because Work stops.
var ErrStopped = errors.New("client: the worker stops")

// Permanent marks an error of a handler as one that no other delivery mends: the job is
// buried.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// RetryIn marks an error of a handler with the time after which the job comes again.
func RetryIn(err error, after time.Duration) error { return &retryError{err, after} }

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// A PanicError is a panic of a handler.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

var errGoexit = errors.New("handler called runtime.Goexit")

// WorkerConfig is how Work works. A zero field means its default.
type WorkerConfig struct {
	// Concurrency is how many handlers run at once; default 1.
	Concurrency int
	// TTR is how long a job is leased; default 1m. While its handler runs the lease is
	// prolonged each TTR/3, so it bounds how late the job comes again when the process ends
	// in between, not how long a handler may take.
	TTR time.Duration
	// Wait is how long a request waits for jobs; default 30s.
	Wait time.Duration
	// BackoffBase and BackoffMax bound how long a job waits after its handler failed: a
	// random time between 0 and min(BackoffMax, BackoffBase·2^(attempt−1)); default 1s and
	// 10m.
	BackoffBase, BackoffMax time.Duration
	// StopTimeout is how long handlers may go on when ctx has ended; default 30s. Then
	// their contexts end.
	StopTimeout time.Duration
	// OnError is called for each handler that failed, with its job, and for each request
	// that failed, with a zero Job. It is called from several goroutines.
	OnError func(job Job, err error)
}

func (c *WorkerConfig) fill() {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.TTR, time.Minute}, {&c.Wait, 30 * time.Second}, {&c.StopTimeout, 30 * time.Second},
		{&c.BackoffBase, time.Second}, {&c.BackoffMax, 10 * time.Minute},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if c.Concurrency == 0 {
		c.Concurrency = 1
	}
	if c.OnError == nil {
		c.OnError = func(Job, error) {}
	}
}

func (c *WorkerConfig) check() error {
	if c.Concurrency < 0 || c.TTR < time.Millisecond || c.Wait < 0 || c.StopTimeout < 0 || c.BackoffBase < 0 || c.BackoffMax < c.BackoffBase {
		return errors.New("client: the concurrency or a duration is negative, or the longest back-off is less than the first")
	}
	return nil
}

// Work takes jobs of queues, the most wanted queue first, and gives each to handle, until ctx
// ends. Then it takes no more, waits for the handlers, and returns nil. What handle returns
// decides:
//
//	nil               ack
//	Permanent(err)    bury
//	RetryIn(err, d)   nack, ready again after d
//	any other error   nack with a back-off
//	a panic, Goexit   the same
//
// The context of a handler ends when the lease is lost (ErrLeaseLost), or StopTimeout after
// ctx (ErrStopped). A handler that never returns keeps its job and its slot, and Work from
// returning: give what it waits for a timeout. Once Work has run out of patience, the job
// comes again elsewhere when its lease ends. While the service cannot be reached Work waits with a back-off. It
// returns an error only if the service rejects its requests, or the configuration is wrong.
func (j *Jobs) Work(ctx context.Context, queues []string, handle func(ctx context.Context, job Job) error, cfg WorkerConfig) error {
	cfg.fill()
	if err := cfg.check(); err != nil {
		return err
	}
	w := &worker{jobs: j, cfg: cfg, handle: handle, slots: make(chan struct{}, cfg.Concurrency)}
	// What handlers and settlements may use once ctx has ended.
	var stop context.CancelCauseFunc
	w.running, stop = context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	err := w.take(ctx, queues)
	defer time.AfterFunc(cfg.StopTimeout, func() { stop(ErrStopped) }).Stop()
	w.handlers.Wait()
	return err
}

// settleTimeout is how long the settlement of a job may take when Work has run out of
// patience.
const settleTimeout = 2 * time.Second

type worker struct {
	jobs     *Jobs
	cfg      WorkerConfig
	handle   func(ctx context.Context, job Job) error
	running  context.Context
	slots    chan struct{} // one for each handler that runs
	handlers sync.WaitGroup
}

// take takes jobs as long as there are slots for handlers, one request at a time.
func (w *worker) take(ctx context.Context, queues []string) error {
	for failures := 0; ; {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		held := 1
		for more := true; more && held < 1000; {
			select {
			case w.slots <- struct{}{}:
				held++
			default:
				more = false
			}
		}
		jobs, err := w.jobs.take(ctx, queues, TakeOptions{Count: held, TTR: w.cfg.TTR, Wait: w.cfg.Wait}, 1)
		leased := time.Now()
		for range held - len(jobs) {
			<-w.slots
		}
		for _, job := range jobs {
			w.handlers.Go(func() {
				defer func() { <-w.slots }()
				if ctx.Err() != nil { // it came with the last answer
					w.settle(job, "requeue", 0)
					return
				}
				w.work(job, leased)
			})
		}
		if err == nil {
			failures = 0
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		w.cfg.OnError(Job{}, err)
		var e *Error
		if !errors.As(err, &e) || !e.temporary() {
			return err
		}
		failures++
		sleep(ctx, max(backoff(w.jobs.cfg.BackoffBase, w.jobs.cfg.BackoffMax, failures), e.RetryAfter))
	}
}

// work gives a job to its handler, and tells the service what became of it.
func (w *worker) work(job Job, leased time.Time) {
	ctx, cancel := context.WithCancelCause(w.running)
	beating := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() { w.heartbeat(ctx, cancel, job, leased, beating) })
	err := errGoexit
	// Deferred, for a handler may end its goroutine, as t.FailNow does.
	defer func() {
		close(beating)
		cause := context.Cause(ctx)
		cancel(nil)
		beats.Wait()
		w.ended(job, err, cause)
	}()
	err = w.call(ctx, job)
}

// ended tells the service what became of a job. cause is why the handler's context ended, if
// it did.
func (w *worker) ended(job Job, err, cause error) {
	var permanent *permanentError
	var retry *retryError
	if err != nil {
		w.cfg.OnError(job, err)
	}
	switch {
	case err == nil:
		w.settle(job, "ack", 0) // which counts after the lease, too
	case cause == ErrLeaseLost:
	case errors.As(err, &permanent):
		w.settle(job, "bury", 0)
	case errors.As(err, &retry):
		w.settle(job, "nack", retry.after)
	case cause == ErrStopped: // which is not the job's fault
		w.settle(job, "nack", 0)
	default:
		w.settle(job, "nack", backoff(w.cfg.BackoffBase, w.cfg.BackoffMax, job.Attempt))
	}
}

// call calls the handler.
func (w *worker) call(ctx context.Context, job Job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return w.handle(ctx, job)
}

// heartbeat prolongs the lease until the handler has ended. When the lease is lost, it ends
// the handler's context.
func (w *worker) heartbeat(ctx context.Context, lost context.CancelCauseFunc, job Job, leased time.Time, ended <-chan struct{}) {
	end := leased.Add(w.cfg.TTR) // of the lease, at the latest
	timer := time.NewTimer(w.cfg.TTR / 3)
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		sent := time.Now()
		if !sent.Before(end) {
			lost(ErrLeaseLost)
			return
		}
		// One request that hangs must not take the time of all.
		limited, cancel := context.WithTimeout(ctx, min(time.Until(end), w.cfg.TTR/3))
		err := w.jobs.settle(limited, job, "touch", w.cfg.TTR, 1)
		cancel()
		switch {
		case err == nil:
			failures, end = 0, sent.Add(w.cfg.TTR)
			timer.Reset(w.cfg.TTR/3 - time.Since(sent))
		case errors.Is(err, ErrGone):
			lost(ErrLeaseLost)
			return
		default:
			failures++
			wait := max(backoff(w.jobs.cfg.BackoffBase, w.jobs.cfg.BackoffMax, failures), time.Millisecond)
			timer.Reset(min(wait, max(0, time.Until(end))))
		}
	}
}

// settle tells the service what became of a job, until it answers or Work has run out of
// patience. An ack counts after the lease, too, and the others do no harm then.
func (w *worker) settle(job Job, do string, after time.Duration) {
	for failures := 1; ; failures++ {
		ctx, cancel := w.running, context.CancelFunc(func() {})
		if ctx.Err() != nil {
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		}
		err := w.jobs.settle(ctx, job, do, after, 0)
		cancel()
		if err == nil || errors.Is(err, ErrGone) {
			return
		}
		w.cfg.OnError(job, fmt.Errorf("%s: %w", do, err))
		var e *Error
		if errors.As(err, &e) && !e.temporary() || ctx != w.running {
			return
		}
		sleep(w.running, backoff(w.jobs.cfg.BackoffBase, w.jobs.cfg.BackoffMax, failures)+rand.N(time.Millisecond))
	}
}
