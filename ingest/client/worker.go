package spillway

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

// WorkerConfig is how Work works. A zero field means its default, None a duration of 0.
type WorkerConfig struct {
	// Concurrency is how many handlers run at once: a number, or Auto; default 1.
	Concurrency Concurrency
	// Places, if set, says how many more handlers may begin; Concurrency then bounds those of which
	// the service has not heard yet. It waits until one may, and returns 0 only when ctx has ended.
	// It is called by one goroutine at a time, each time with how many of the last places got no job.
	Places func(ctx context.Context, unused int) int
	// TTR is how long a job is leased; default as a rule for the queue says, or 1m. While its handler runs the lease is
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
	// GiveUpAfter is how long Work goes on while the service rejects its token (ErrUnauthorized)
	// or does not know the namespace (ErrNoNamespace); default for ever, None not at all.
	GiveUpAfter time.Duration
	// OnError is called for each handler, each result and each settlement that failed, from several goroutines.
	OnError func(job Job, err error)
	// OnRequestError is called for each claim that failed; default a warning of slog, of each kind
	// at most once a minute.
	OnRequestError func(err error)
}

func (c *WorkerConfig) fill() {
	fill(&c.Concurrency, 1)
	fill(&c.Wait, 30*time.Second)
	fill(&c.StopTimeout, 30*time.Second)
	fill(&c.BackoffBase, time.Second)
	fill(&c.BackoffMax, 10*time.Minute)
}

// guard makes guests of the callbacks.
func (c *WorkerConfig) guard(url string) {
	onError, onRequestError := c.OnError, c.OnRequestError
	if onError == nil {
		onError = func(Job, error) {}
	}
	if onRequestError == nil {
		onRequestError = newWarner(url).warn
	}
	ofJobs, ofClaims := guest{name: "OnError"}, guest{name: "OnRequestError"}
	c.OnError = func(job Job, err error) { ofJobs.call(func() { onError(job, err) }) }
	c.OnRequestError = func(err error) { ofClaims.call(func() { onRequestError(err) }) }
}

func (c *WorkerConfig) check() error {
	if c.Concurrency < 1 || c.TTR < 0 || c.Wait < time.Millisecond || c.StopTimeout < 0 ||
		c.BackoffBase < 0 || c.BackoffMax < c.BackoffBase {
		return errors.New("spillway: the concurrency or a duration is negative, TTR or Wait is none, the longest back-off is " +
			"less than the first, or Auto does not get 1 to 32767 handlers and a target from 1ms to 1h")
	}
	return nil
}

// Work claims jobs of queues, the most wanted queue first, and gives each to handle, until ctx
// ends. Then it claims no more, waits for the handlers, and returns nil. What handle returns
// decides:
//
//	nil               ack
//	Result(v)         ack, with v as the job's result
//	Permanent(err)    bury
//	RetryIn(err, d)   nack, ready again after d
//	ReleaseIn(err, d) release, the same of PHP's jobs
//	ErrNotBegun       requeue
//	any other error   nack with a back-off
//	a panic, Goexit   the same
//
// The context of a handler ends when the lease is lost (ErrLeaseLost), or StopTimeout after ctx
// (ErrStopped): then any other error requeues. A handler that never returns keeps its job and its slot, and Work from
// returning: give what it waits for a timeout. Once Work has run out of patience, the job comes
// again elsewhere when its lease ends. While the service cannot be reached Work waits with a
// back-off. It returns an error only if the service rejects its requests, those with its token only
// after GiveUpAfter, or the configuration is wrong.
func (q *Queues) Work(ctx context.Context, queues []string,
	handle func(ctx context.Context, job Job) error,
	cfg WorkerConfig) error {
	cfg.fill()
	if err := cfg.check(); err != nil {
		return err
	}
	cfg.guard(q.base)
	limit, most := cfg.Concurrency.limit()
	w := &worker{
		jobs:    q,
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
	for _, queue := range queueNames(queues) {
		if w.endings[queue] == nil {
			endings := make(chan *ending, most)
			w.endings[queue] = endings
			settlers.Go(func() { w.settler(queue, endings) })
		}
	}
	err := w.claim(ctx, queues)
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
	jobs     *Queues
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

// claim claims jobs as long as handlers may run, one request at a time.
func (w *worker) claim(ctx context.Context, queues []string) error {
	var barred time.Time // since when the service has rejected the token or the namespace
	for failures := 0; ; {
		held, full := w.hold(ctx)
		if held == 0 {
			return nil
		}
		jobs, err := w.jobs.claim(ctx, queues, ClaimOptions{Count: held, TTR: w.cfg.TTR,
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
			failures, barred = 0, time.Time{}
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		w.cfg.OnRequestError(err)
		e := new(Error)
		errors.As(err, &e)
		switch {
		case !e.barred():
			barred = time.Time{}
			if !e.temporary() {
				return err
			}
		case barred.IsZero():
			barred = time.Now()
		}
		if limit := w.cfg.GiveUpAfter; !barred.IsZero() && limit != 0 && time.Since(barred) >= limit {
			return err
		}
		failures++
		sleep(ctx, max(backoff(w.jobs.cfg.BackoffBase, w.jobs.cfg.BackoffMax,
			failures), e.RetryAfter, time.Millisecond))
	}
}

// work gives a job to its handler, and tells the service what became of it.
func (w *worker) work(job Job, leased time.Time) {
	l := &lease{w: w, end: leased.Add(job.ttr)}
	job.moved = &l.moved
	l.job = job
	l.ctx, l.cancel = context.WithCancelCause(w.running)
	l.mu.Lock()
	l.timer = time.AfterFunc(job.ttr/3, l.touch)
	l.mu.Unlock()
	began, err := time.Now(), errGoexit
	// Deferred, for a handler may end its goroutine, as t.FailNow does.
	defer func() {
		cause := context.Cause(l.ctx)
		l.cancel(nil)
		l.mu.Lock() // a touch under way ends first
		l.timer.Stop()
		l.mu.Unlock()
		if done, is := err.(*resultError); is { // beside another error it is none
			if err, l.job.Result = nil, done.result; done.failed != nil {
				w.cfg.OnError(job, done.failed)
			}
		}
		w.learn(began, err, cause)
		w.ended(l.job, err, cause)
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
	case cause == ErrStopped: // which is not the job's fault, and would end one at its last try
		w.settle(job, "requeue", 0, nil)
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
	if err = w.handle(ctx, job); err != nil {
		_ = err.Error() // it may panic, too
	}
	return err
}

// A lease is that of a job whose handler runs. A timer prolongs it until the handler has ended.
type lease struct {
	w      *worker
	job    Job
	ctx    context.Context // of the handler
	cancel context.CancelCauseFunc
	moved  atomic.Bool // by a touch, of the handler or the timer

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
	sent, ttr := time.Now(), l.job.ttr
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
			if ctx == w.running && (!errors.As(failed, &said) || said.temporary() || said.barred()) {
				again = append(again, e)
				continue
			}
		}
		close(e.settled)
	}
	return again
}
