package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/partition/adaptive"
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
// head of its queue, as if it had not been taken.
var ErrNotBegun = errors.New("client: the job was not begun")

// Deferred is a handler's error that is none: the work goes on elsewhere, and whoever does it
// settles the job by its queue, id and attempt within ttr, 30 days at most, with Ack of a Job
// that has them. If nobody does, the job comes again.
func Deferred(ttr time.Duration) error { return &deferredError{ttr} }

type deferredError struct{ ttr time.Duration }

func (e *deferredError) Error() string { return "deferred for " + e.ttr.String() }

// A Mux has a handler for each queue:
//
//	m := client.Mux{"welcome": welcome, "invoice": invoice}
//	err := jobs.Work(ctx, []string{"invoice", "welcome"}, m.Handle, client.WorkerConfig{})
type Mux map[string]func(ctx context.Context, job Job) error

// Handle calls the handler of the job's queue. A job without one fails, and comes again.
func (m Mux) Handle(ctx context.Context, job Job) error {
	handle := m[job.Queue]
	if handle == nil {
		return fmt.Errorf("client: no handler for the queue %q", job.Queue)
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

// WorkerConfig is how Work works. A zero field means its default.
type WorkerConfig struct {
	// Concurrency is how many handlers run at once: a number, or Auto; default 1.
	Concurrency Concurrency
	// Places, if set, says how many more handlers may begin; Concurrency then bounds those of which
	// the service has not heard yet. It waits until one may, and returns 0 only when ctx has ended.
	// It is called by one goroutine at a time, each time with how many of the last places got no job.
	Places func(ctx context.Context, unused int) int
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
	if c.Concurrency < 0 || c.TTR < time.Millisecond || c.Wait < 0 || c.StopTimeout < 0 ||
		c.BackoffBase < 0 || c.BackoffMax < c.BackoffBase {
		return errors.New("client: the concurrency or a duration is negative, the longest back-off is less than the " +
			"first, or Auto does not get 1 to 32767 handlers and a target from 1ms to 1h")
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
//	ReleaseIn(err, d) release, the same of PHP's jobs
//	ErrNotBegun       requeue
//	any other error   nack with a back-off
//	a panic, Goexit   the same
//
// The context of a handler ends when the lease is lost (ErrLeaseLost), or StopTimeout after ctx
// (ErrStopped). A handler that never returns keeps its job and its slot, and Work from
// returning: give what it waits for a timeout. Once Work has run out of patience, the job comes
// again elsewhere when its lease ends. While the service cannot be reached Work waits with a
// back-off. It returns an error only if the service rejects its requests, or the configuration
// is wrong.
func (j *Jobs) Work(ctx context.Context, queues []string,
	handle func(ctx context.Context, job Job) error,
	cfg WorkerConfig) error {
	cfg.fill()
	if err := cfg.check(); err != nil {
		return err
	}
	limit, most := cfg.Concurrency.limit()
	w := &worker{
		jobs:    j,
		cfg:     cfg,
		handle:  handle,
		limit:   limit,
		freed:   make(chan struct{}, 1),
		endings: map[string]chan *ending{},
	}
	// What handlers and settlements may use once ctx has ended.
	var stop context.CancelCauseFunc
	w.running, stop = context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var settlers sync.WaitGroup
	for _, queue := range queues {
		if w.endings[queue] == nil {
			endings := make(chan *ending, most)
			w.endings[queue] = endings
			settlers.Go(func() { w.settler(queue, endings) })
		}
	}
	err := w.take(ctx, queues)
	defer time.AfterFunc(cfg.StopTimeout, func() { stop(ErrStopped) }).Stop()
	w.handlers.Wait()
	for _, endings := range w.endings {
		close(endings)
	}
	settlers.Wait()
	return err
}

// settleTimeout is how long a request that settles jobs may take when Work has run out of
// patience.
const settleTimeout = 2 * time.Second

type worker struct {
	jobs     *Jobs
	cfg      WorkerConfig
	handle   func(ctx context.Context, job Job) error
	running  context.Context
	limit    *adaptive.Limit
	busy     atomic.Int64            // handlers that run, and jobs that were asked for
	freed    chan struct{}           // holds one: busy fell
	unused   int                     // of the last places
	endings  map[string]chan *ending // by queue, to its settler
	handlers sync.WaitGroup
}

// take takes jobs as long as handlers may run, one request at a time.
func (w *worker) take(ctx context.Context, queues []string) error {
	for failures := 0; ; {
		held, full := w.hold(ctx)
		if held == 0 {
			return nil
		}
		jobs, err := w.jobs.take(ctx, queues, TakeOptions{Count: held, TTR: w.cfg.TTR,
			Wait: w.cfg.Wait}, 1)
		leased := time.Now()
		w.unused -= len(jobs)
		if w.free(held - len(jobs)); full && len(jobs) == held {
			w.limit.Wanted()
		}
		for _, job := range jobs {
			w.handlers.Go(func() {
				defer w.free(1)
				if ctx.Err() != nil { // it came with the last answer
					w.settle(job, "requeue", 0, nil)
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
		sleep(ctx, max(backoff(w.jobs.cfg.BackoffBase, w.jobs.cfg.BackoffMax,
			failures), e.RetryAfter))
	}
}

// work gives a job to its handler, and tells the service what became of it.
func (w *worker) work(job Job, leased time.Time) {
	l := &lease{w: w, job: job, end: leased.Add(w.cfg.TTR)}
	l.ctx, l.cancel = context.WithCancelCause(w.running)
	l.mu.Lock()
	l.timer = time.AfterFunc(w.cfg.TTR/3, l.touch)
	l.mu.Unlock()
	began, err := time.Now(), errGoexit
	// Deferred, for a handler may end its goroutine, as t.FailNow does.
	defer func() {
		cause := context.Cause(l.ctx)
		l.cancel(nil)
		l.mu.Lock() // a touch under way ends first
		l.timer.Stop()
		l.mu.Unlock()
		w.learn(began, err, cause)
		w.ended(job, err, cause)
	}()
	err = w.call(l.ctx, job)
}

// ended tells the service what became of a job. cause is why the handler's context ended, if
// it did.
func (w *worker) ended(job Job, err, cause error) {
	var permanent *permanentError
	var retry *retryError
	var deferred *deferredError
	var release *releaseError
	if err != nil && err != ErrNotBegun && !errors.As(err, &deferred) {
		w.cfg.OnError(job, err)
	}
	switch {
	case err == nil:
		w.settle(job, "ack", 0, nil) // which counts after the lease, too
	case cause == ErrLeaseLost:
	case err == ErrNotBegun:
		w.settle(job, "requeue", 0, nil)
	case errors.As(err, &release):
		w.settle(job, "release", release.after, nil)
	case deferred != nil:
		w.settle(job, "defer", deferred.ttr, nil)
	case errors.As(err, &permanent):
		w.settle(job, "bury", 0, err)
	case errors.As(err, &retry):
		w.settle(job, "nack", retry.after, err)
	case cause == ErrStopped: // which is not the job's fault
		w.settle(job, "nack", 0, err)
	default:
		after := backoff(w.cfg.BackoffBase, w.cfg.BackoffMax, job.Attempt)
		w.settle(job, "nack", after, err)
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

// A lease is that of a job whose handler runs. A timer prolongs it until the handler has ended.
type lease struct {
	w      *worker
	job    Job
	ctx    context.Context // of the handler
	cancel context.CancelCauseFunc

	mu       sync.Mutex // held during a touch
	timer    *time.Timer
	end      time.Time // of the lease, at the latest
	failures int
}

// touch prolongs the lease. When it is lost, the handler's context ends.
func (l *lease) touch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return
	}
	sent, ttr := time.Now(), l.w.cfg.TTR
	if !sent.Before(l.end) {
		l.cancel(ErrLeaseLost)
		return
	}
	// One request that hangs must not take the time of all.
	limited, cancel := context.WithTimeout(l.ctx, min(l.end.Sub(sent), ttr/3))
	defer cancel()
	switch err := l.w.jobs.settle(limited, l.job, "touch", ttr, nil, 1); {
	case err == nil:
		l.failures, l.end = 0, sent.Add(ttr)
		l.timer.Reset(ttr/3 - time.Since(sent))
	case errors.Is(err, ErrGone):
		l.cancel(ErrLeaseLost)
	default:
		l.failures++
		wait := max(backoff(l.w.jobs.cfg.BackoffBase, l.w.jobs.cfg.BackoffMax,
			l.failures), time.Millisecond)
		l.timer.Reset(min(wait, max(0, time.Until(l.end))))
	}
}

// An ending is what became of a job.
type ending struct {
	job     Job
	line    settlement
	settled chan struct{} // closes when the service has answered, or nobody asks again
}

// settle returns when the service has answered, or Work has run out of patience. An ack counts
// after the lease, too, and the others do no harm then.
func (w *worker) settle(job Job, do string, after time.Duration, cause error) {
	e := &ending{
		job:     job,
		line:    newSettlement(job, do, after, cause),
		settled: make(chan struct{}),
	}
	w.endings[job.Queue] <- e
	<-e.settled
}

// settler tells the service what became of the jobs of one queue, in one request at a time: what
// ends during one goes together in the next.
func (w *worker) settler(queue string, endings <-chan *ending) {
	var waiting []*ending
	for failures := 0; ; {
		if len(waiting) == 0 {
			e, open := <-endings
			if !open {
				return
			}
			waiting = append(waiting, e)
		}
		for range len(endings) {
			waiting = append(waiting, <-endings)
		}
		if waiting = w.send(queue, waiting); len(waiting) == 0 {
			failures = 0
			continue
		}
		failures++
		sleep(w.running, backoff(w.jobs.cfg.BackoffBase, w.jobs.cfg.BackoffMax,
			failures)+rand.N(time.Millisecond))
	}
}

// send sends endings once, and returns those to be sent again.
func (w *worker) send(queue string, batch []*ending) (again []*ending) {
	ctx := w.running
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
	}
	lines := make([]settlement, len(batch))
	for i, e := range batch {
		lines[i] = e.line
	}
	errs, err := w.jobs.settleAll(ctx, queue, lines, 0)
	if half := len(batch) / 2; half > 0 && errors.Is(err, ErrTooLarge) {
		return append(w.send(queue, batch[:half]), w.send(queue, batch[half:])...)
	}
	for i, e := range batch {
		failed := err
		if err == nil {
			failed = errs[i]
		}
		if failed != nil && failed != ErrGone {
			w.cfg.OnError(e.job, fmt.Errorf("%s: %w", e.line.Do, failed))
			var said *Error
			if ctx == w.running && (!errors.As(failed, &said) || said.temporary()) {
				again = append(again, e)
				continue
			}
		}
		close(e.settled)
	}
	return again
}
