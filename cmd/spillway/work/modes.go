package work

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/process"
	spillway "github.com/spillway-io/spillway/ingest/client"
)

// A line is what a child reads: one job.
type line struct {
	V        int     `json:"v"`
	Seq      string  `json:"seq"`
	Queue    string  `json:"queue"`
	Attempts int     `json:"attempts"`
	Tries    int     `json:"tries"`
	Backoff  float64 `json:"backoff"` // seconds, whole: how long the job is to wait if it fails now
	Timeout  float64 `json:"timeout"` // seconds; 0: none
	// Attributes are those of a job of a schedule, or of a sharded one: schedule, tick, cause, …
	Attributes map[string]string `json:"attributes,omitempty"`
	Payload    *string           `json:"payload,omitempty"`
	// PayloadBase64 is there instead where the payload is not UTF-8.
	PayloadBase64 string `json:"payload_base64,omitempty"`
}

// A child is a process, and the job that it has.
type child struct {
	*process.Member
	ready  chan struct{} // closes when it says so
	answer chan message  // holds one

	mu   sync.Mutex
	task *task // nil: none that it has not answered
	said bool  // it is ready
}

// has notes the job of the child.
func (c *child) has(t *task) {
	c.mu.Lock()
	c.task = t
	c.mu.Unlock()
}

// maxDeaths in jobs are a crash loop.
const maxDeaths = 3

var (
	errNotReady = errors.New(
		`the child did not say that it is ready, by {"do":"ready"} on descriptor 3: a program that knows no such lines runs with --mode each`,
	)
	errDied  = errors.New("the child ended in the job")
	errIdle  = errors.New("the child ended without a job")
	errShort = errors.New("the child ended within a second")
)

// lines is the life of a child that does a job after the other.
func (w *worker) lines(s *process.Slot) error {
	c, err := w.start(s, w.program, true, nil)
	if err != nil {
		return err
	}
	late := time.AfterFunc(w.StartTimeout, func() { c.End("start") })
	defer late.Stop()
	slow := time.AfterFunc(
		w.StartTimeout/10,
		func() { w.noise.Info("a child is not ready yet", zap.Int("child", s.N), zap.Error(errNotReady)) },
	)
	defer slow.Stop()
	select {
	case <-c.ready:
		late.Stop()
		slow.Stop()
	case <-c.Done:
		return errors.Join(errNotReady, c.Err)
	case <-w.stopping.Done():
		c.Finish()
		return nil
	}
	s.Ready()
	w.desk.seat(1)
	defer w.desk.seat(-1)
	for !s.Leaving() {
		if why := c.Due(); why != "" {
			w.recycled(c, why)
			break
		}
		if t := w.desk.next(w.stopping, c.DueEvery(), c.Done); t != nil {
			if err := w.do(c, t); err != nil {
				if s.Deaths++; s.Deaths < maxDeaths || c.Why() != "" && c.Why() != "protocol" {
					return nil
				}
				return err
			}
			s.Deaths = 0
			guard.Sleep(w.stopping, w.Rest)
		}
		select {
		case <-c.Done: // by itself, which it may between jobs
			if c.Uses == 0 {
				return errors.Join(errIdle, c.Err)
			}
			return nil
		default:
		}
		if c.Why() != "" {
			break
		}
	}
	c.Finish()
	return nil
}

// recycled takes note of a child that is due.
func (w *worker) recycled(c *child, why string) {
	if w.metrics.recycled.WithLabelValues(why).Inc(); why == "memory" {
		w.hooks.tell("memory", c.Slot.N, nil, "")
	}
}

// do gives a job to a child. An error says how the child died of it.
func (w *worker) do(c *child, t *task) error {
	timeout, backoff := w.timeout(t), w.backoff(t)
	l := line{
		V:          1,
		Seq:        t.seq(),
		Queue:      t.Queue,
		Attempts:   t.Attempt,
		Tries:      w.tries(t),
		Backoff:    math.Ceil(backoff.Seconds()),
		Timeout:    timeout.Seconds(),
		Attributes: t.Attributes,
	}
	if text := string(t.Payload); utf8.ValidString(text) {
		l.Payload = &text
	} else {
		l.PayloadBase64 = base64.StdEncoding.EncodeToString(t.Payload)
	}
	text, err := json.Marshal(l)
	if err != nil {
		t.done <- spillway.Permanent(err)
		return nil
	}
	text = append(text, '\n')
	end := w.begin(c, t, timeout)
	sent, unheard := c.Stdin.Write(text)
	if unheard != nil {
		c.Deaf()
	}
	var m message
	select {
	case m = <-c.answer:
	case <-c.Done:
		select {
		case m = <-c.answer: // its last word
		default:
		}
	}
	switch {
	case m.Do != "" && (c.Why() != "drain" || m.Do == "delete" || m.Do == "failed"):
		end(w.verdict(t, m, backoff), m.Error)
		return nil
	case c.Unread >= sent && (c.Why() == "" || c.Why() == "protocol"): // it ended before it read a byte
		end(spillway.ErrNotBegun, "")
	default:
		died := fmt.Errorf("%w: %s", errDied, c.ended())
		end(w.death(c, t, backoff, died), died.Error())
	}
	return errors.Join(errDied, c.Err)
}

// ended says how a child ended, and what it was killed for: "timeout: signal: killed".
func (c *child) ended() string {
	why := c.Why()
	if exit := (*exec.ExitError)(nil); why == "protocol" && errors.As(c.Err, &exit) && exit.Exited() {
		why = "" // it closed its pipes as it ended
	}
	if c.Err != nil {
		why = strings.TrimPrefix(why+": "+c.Err.Error(), ": ")
	}
	return cmp.Or(why, "exit status 0")
}

// begin bounds what a child does for a job. end ends that: err is what becomes of the job.
func (w *worker) begin(c *child, t *task, timeout time.Duration) (end func(err error,
	failed string)) {
	began, n := time.Now(), c.Slot.N
	c.has(t)
	c.Uses++
	w.busy.Add(1)
	w.hooks.tell("before_job", n, t, "")
	unlimited := c.Limit(timeout, w.Term)
	unleased := context.AfterFunc(t.ctx, func() {
		if errors.Is(context.Cause(t.ctx), spillway.ErrStopped) {
			c.End("drain")
		} else {
			c.End("gone")
		}
	})
	return func(err error, failed string) {
		unlimited()
		unleased()
		took := time.Since(began)
		w.metrics.seconds.Observe(took.Seconds())
		c.has(nil)
		w.busy.Add(-1)
		if failed == "" {
			w.desk.learn(took)
		} else {
			w.log.Warn("job failed", zap.Int("child", n), zap.String("queue", t.Queue),
				zap.String("seq", t.seq()), zap.String("error",
					failed), zap.String("ended", c.Why()))
			w.hooks.tell("job_failed", n, t, failed)
		}
		w.hooks.tell("after_job", n, t, "")
		t.done <- err
	}
}

// verdict is what becomes of a job that was answered.
func (w *worker) verdict(t *task, m message, backoff time.Duration) error {
	failed := errors.New(m.Error)
	switch m.Do {
	case "delete":
		return nil
	case "failed":
		return spillway.Permanent(failed)
	case "forgot": // PHP would run it again after that time
		backoff = w.TTR
	case "release":
		if m.Delay != nil {
			backoff = time.Duration(min(max(*m.Delay, 0),
				maxDelay.Seconds()) * float64(time.Second))
		}
	}
	return release(t, failed, backoff)
}

// maxDelay is the longest that the service takes.
const maxDelay = 30 * 24 * time.Hour

// release gives a job back. Only those of PHP keep their try.
func release(t *task, err error, after time.Duration) error {
	if t.PHP != nil {
		return spillway.ReleaseIn(err, after)
	}
	return spillway.RetryIn(err, after)
}

// death is what becomes of a job whose child has died. One of PHP's comes again even at its last
// try, so that PHP's code finds its tries used up and says that it failed; one that has killed a
// child even then is buried.
func (w *worker) death(c *child, t *task, backoff time.Duration, died error) error {
	if c.Why() == "drain" {
		return spillway.ErrNotBegun // a stop is not the job's fault: the try that it took comes back
	} else if n := w.tries(t); t.PHP != nil && n > 0 && t.Attempt > n {
		return spillway.Permanent(died)
	}
	return release(t, died, backoff)
}

// exitDataErr is EX_DATAERR of sysexits.h: the job can never be done. Of all others but 0 it comes
// again, of which 75, EX_TEMPFAIL, is there to say so.
const exitDataErr = 65

// each does one job with a process of its own.
func (w *worker) each(s *process.Slot) error {
	w.desk.seat(1)
	t := w.desk.next(w.stopping, time.Second, nil)
	w.desk.seat(-1)
	if t == nil {
		return nil
	}
	timeout, backoff, program := w.timeout(t), w.backoff(t), w.program
	program.Env = append(program.Env[:len(program.Env):len(program.Env)],
		"JOB_QUEUE="+t.Queue, "JOB_ID="+t.ID,
		"JOB_ATTEMPT="+strconv.Itoa(t.Attempt), "JOB_TRIES="+strconv.Itoa(w.tries(t)))
	if len(t.Attributes) > 0 {
		attributes, _ := json.Marshal(t.Attributes) // of texts alone
		program.Env = append(program.Env, "JOB_ATTRIBUTES="+string(attributes))
	}
	if timeout > 0 {
		program.Env = append(program.Env, "JOB_DEADLINE="+strconv.FormatInt(time.Now().Add(timeout).Unix(), 10))
	}
	c, err := w.start(s, program, false, append([]byte{}, t.Payload...))
	if errors.Is(err, syscall.E2BIG) { // of the job's attributes, for the program was started with a larger environment than its own
		w.log.Warn(
			"job failed",
			zap.String("queue", t.Queue),
			zap.String("seq", t.seq()),
			zap.Error(err),
		)
		w.hooks.tell("job_failed", s.N, t, err.Error())
		t.done <- spillway.RetryIn(err, backoff)
		return nil
	}
	if err != nil {
		t.done <- spillway.ErrNotBegun
		return err
	}
	end := w.begin(c, t, timeout)
	<-c.Done
	var exit *exec.ExitError
	switch {
	case c.Err == nil:
		end(nil, "")
	case c.Why() == "drain":
		end(spillway.ErrNotBegun, c.Err.Error())
	case c.Why() == "" && errors.As(c.Err, &exit) && exit.ExitCode() == exitDataErr:
		end(spillway.Permanent(c.Err), c.Err.Error())
	default:
		end(spillway.RetryIn(errors.New(c.ended()), backoff), c.ended())
	}
	guard.Sleep(w.stopping, w.Rest)
	return nil
}

// shortLife of a process that gets its jobs itself is a crash.
const shortLife = time.Second

// self is the life of a process that gets its jobs itself.
func (w *worker) self(s *process.Slot) error {
	c, err := w.start(s, w.program, false, nil)
	if err != nil {
		return err
	}
	s.Ready()
	tick := time.NewTimer(c.DueEvery())
	defer tick.Stop()
	for why := ""; why == "" && !s.Leaving(); {
		select {
		case <-c.Done:
			if time.Since(c.Began) < shortLife {
				return errors.Join(errShort, c.Err)
			}
			return nil
		case <-w.stopping.Done():
		case <-tick.C:
			if why = c.Due(); why != "" {
				w.recycled(c, why)
			}
			tick.Reset(c.DueEvery())
		}
	}
	c.SignalGroup(syscall.SIGTERM)
	defer time.AfterFunc(w.Drain, func() { c.End("drain") }).Stop()
	<-c.Done
	return nil
}
