package spillway_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most of them wait for a time
	os.Exit(m.Run())
}

func TestConformanceOfQueues(t *testing.T) {
	t.Parallel()
	clienttest.RunQueues(t, func(t testing.TB) (io.Writer, io.Reader) {
		commands, in := io.Pipe()
		out, answers := io.Pipe()
		d := &driver{ctx: t.Context(), calls: map[string]int{}}
		go func() {
			for lines := json.NewDecoder(commands); ; {
				var c driverCommand
				if lines.Decode(&c) != nil || json.NewEncoder(answers).Encode(d.run(c)) != nil {
					return
				}
			}
		}()
		t.Cleanup(func() { _, _ = in.Close(), out.Close() })
		return said{in, len(slogged.Said())}, out
	})
}

// slogged is what slog's default logger wrote, whichever test did so.
var slogged = func() *clienttest.Log {
	l := new(clienttest.Log)
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	return l
}()

// said has what was logged since a driver began: others had servers of the same address before.
type said struct {
	io.Writer
	before int
}

func (s said) Said() string { return slogged.Said()[s.before:] }

// driver drives Queues as PROTOCOL.md says.
type driver struct {
	ctx    context.Context // of the test
	queues *spillway.Queues
	cancel context.CancelFunc
	ended  chan error // of Work

	mu    sync.Mutex
	calls map[string]int // of handlers, by job
	now   driverReply
}

type driverCommand struct {
	Op, URL, Queue, ID, Do, Error string
	Note                          string
	Queues                        []string
	Payloads                      [][]byte
	Attempt, Progress             int
	MS                            int64
	Result                        json.RawMessage
	Options                       struct {
		Namespace, Token, ID, Key             string
		Attempts, Tries, Count, Concurrency   int
		At                                    int64
		Shards                                int
		Timeout, Delay, TTL, Dedup, TTR, Wait ms
		Unique                                ms
		UniqueKey                             string `json:"unique_key"`
		OnConflict                            string `json:"on_conflict"`
		Attributes                            map[string]string
		OnEnd                                 string `json:"on_end"`
		BackoffBase                           ms     `json:"backoff_base"`
		BackoffMax                            ms     `json:"backoff_max"`
		StopTimeout                           ms     `json:"stop_timeout"`
		NoHook                                bool   `json:"no_hook"`
		ThrowHooks                            bool   `json:"throw_hooks"`
		GiveUpAfter                           ms     `json:"give_up_after"`
	}
}

// unspeakable is an error that has no text.
type unspeakable struct{}

func (unspeakable) Error() string { panic("no text") }

type ms int64

func (m ms) d() time.Duration { return time.Duration(m) * time.Millisecond }

type driverJob struct {
	Queue, ID, State string
	Attempt, Tries   int
	Payload          []byte
	Progress         *int
	Note             string
	Result           json.RawMessage `json:"result,omitempty"`
}

func shown(j spillway.Job) driverJob {
	return driverJob{j.Queue, j.ID, j.State, j.Attempt, j.Tries, j.Payload, j.Progress, j.Note, j.Result}
}

type driverReply struct {
	Error            string        `json:"error,omitempty"`
	IDs              []string      `json:"ids,omitempty"`
	Repeated, Exists bool          `json:",omitempty"`
	Changed          bool          `json:",omitempty"`
	Jobs             []driverJob   `json:"jobs,omitempty"`
	Handled          []driverEnded `json:"handled,omitempty"`

	Ready, Delayed, Leased, Dead int64
	Running, Most, Errors        int
	RequestErrors                int `json:"request_errors"`
}

type driverEnded struct {
	Queue, ID, Cause string
	Attempt          int
}

// word is the error's word in the protocol.
func word(err error) string {
	for is, word := range map[error]string{
		spillway.ErrNoJob: "no_job", spillway.ErrGone: "gone", spillway.ErrEmpty: "empty", spillway.ErrTooLarge: "too_large", spillway.ErrTooManyJobs: "too_many_jobs",
		spillway.ErrInvalid: "invalid", spillway.ErrUnauthorized: "unauthorized", spillway.ErrNoNamespace: "no_namespace", spillway.ErrRateLimited: "rate_limited",
		spillway.ErrUnavailable: "unavailable", spillway.ErrUnknown: "unknown",
	} {
		if errors.Is(err, is) {
			return word
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func (d *driver) run(c driverCommand) (r driverReply) {
	var err error
	o := c.Options
	job := spillway.Job{Queue: c.Queue, ID: c.ID, Attempt: c.Attempt, Result: c.Result}
	switch c.Op {
	case "queues":
		d.queues, err = spillway.NewQueues(c.URL, spillway.QueuesConfig{
			Namespace: o.Namespace, Token: o.Token, Timeout: o.Timeout.d(), Attempts: o.Attempts,
			BackoffBase: o.BackoffBase.d(), BackoffMax: o.BackoffMax.d(),
		})
	case "publish":
		p, options := spillway.Published{}, spillway.PublishOptions{
			Delay: o.Delay.d(), TTL: o.TTL.d(), Tries: o.Tries, ID: o.ID, Key: o.Key, Dedup: o.Dedup.d(), OnEnd: o.OnEnd,
			Unique: o.Unique.d(), UniqueKey: o.UniqueKey, OnConflict: o.OnConflict, Attributes: o.Attributes,
		}
		if options.Shards = o.Shards; o.At > 0 {
			options.At = time.UnixMilli(o.At)
		}
		if len(c.Payloads) == 1 {
			p, err = d.queues.Publish(d.ctx, c.Queue, c.Payloads[0], options)
		} else {
			p, err = d.queues.PublishMany(d.ctx, c.Queue, c.Payloads, options)
		}
		r.IDs, r.Repeated, r.Exists, r.Changed = p.IDs, p.Repeated, p.Exists, p.Changed
	case "claim":
		var jobs []spillway.Job
		jobs, err = d.queues.Claim(d.ctx, c.Queues, spillway.ClaimOptions{Count: o.Count, TTR: o.TTR.d(), Wait: o.Wait.d()})
		for _, j := range jobs {
			r.Jobs = append(r.Jobs, shown(j))
		}
	case "settle":
		err = d.settle(c, job)
	case "get":
		job, err = d.queues.Wait(d.ctx, c.Queue, c.ID, o.Wait.d())
		r.Jobs = []driverJob{shown(job)}
	case "delete":
		err = d.queues.Delete(d.ctx, c.Queue, c.ID)
	case "counts":
		var n spillway.Counts
		n, err = d.queues.Counts(d.ctx, c.Queue)
		r.Ready, r.Delayed, r.Leased, r.Dead = n.Ready, n.Delayed, n.Leased, n.Dead
	case "work":
		d.work(c)
	case "stop", "wait":
		if c.Op == "stop" {
			d.cancel()
		}
		err = <-d.ended
		d.cancel()
	case "worked":
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.now
	}
	r.Error = word(err)
	return r
}

func (d *driver) settle(c driverCommand, job spillway.Job) error {
	var cause error
	if c.Error != "" {
		cause = errors.New(c.Error)
	}
	switch after := ms(c.MS).d(); c.Do {
	case "ack":
		return d.queues.Ack(d.ctx, job)
	case "nack":
		return d.queues.Nack(d.ctx, job, after, cause)
	case "bury":
		return d.queues.Bury(d.ctx, job, cause)
	case "requeue":
		return d.queues.Requeue(d.ctx, job)
	case "progress":
		return d.queues.Progress(d.ctx, job, after, c.Progress, c.Note)
	default:
		return d.queues.Touch(d.ctx, job, after)
	}
}

func (d *driver) work(c driverCommand) {
	o := c.Options
	ctx, cancel := context.WithCancel(d.ctx)
	d.cancel, d.ended = cancel, make(chan error, 1)
	count := func(n *int, hook string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if *n++; o.ThrowHooks {
			panic(fmt.Sprintf("fault %d of %s", *n, hook))
		}
	}
	cfg := spillway.WorkerConfig{
		Concurrency: spillway.Concurrency(o.Concurrency), TTR: o.TTR.d(), Wait: o.Wait.d(), BackoffBase: o.BackoffBase.d(), BackoffMax: o.BackoffMax.d(),
		StopTimeout: o.StopTimeout.d(), GiveUpAfter: o.GiveUpAfter.d(),
		OnError:        func(spillway.Job, error) { count(&d.now.Errors, "job_hook") },
		OnRequestError: func(error) { count(&d.now.RequestErrors, "claim_hook") },
	}
	if o.NoHook {
		cfg.OnRequestError = nil
	}
	go func() { d.ended <- d.queues.Work(ctx, c.Queues, d.handle, cfg) }()
}

func (d *driver) handle(ctx context.Context, job spillway.Job) error {
	var act struct {
		Do       string
		MS       ms
		Attempts int
		Not      func() // JSON
	}
	if err := json.Unmarshal(job.Payload, &act); err != nil {
		return err
	}
	d.mu.Lock()
	d.now.Running++
	d.now.Most = max(d.now.Most, d.now.Running)
	if d.calls[job.ID]++; d.calls[job.ID] > act.Attempts {
		act.Do = "ok"
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.now.Running--
		cause := map[error]string{spillway.ErrLeaseLost: "lease_lost", spillway.ErrStopped: "stopped"}[context.Cause(ctx)]
		d.now.Handled = append(d.now.Handled, driverEnded{job.Queue, job.ID, cause, job.Attempt})
	}()
	switch failed := errors.New("as the payload says"); act.Do {
	case "result":
		return spillway.Result(map[string]bool{"done": true})
	case "bad_result":
		return spillway.Result(act)
	case "big_result":
		return spillway.Result(make([]bool, 1000))
	case "fail":
		return failed
	case "throw":
		return unspeakable{}
	case "permanent":
		return spillway.Permanent(failed)
	case "retry":
		return spillway.RetryIn(failed, act.MS.d())
	case "not_begun", "sleep":
		time.Sleep(act.MS.d()) // PROTOCOL.md has a handler that works so long, whatever becomes of its lease
		if act.Do == "not_begun" {
			return spillway.ErrNotBegun
		}
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}
