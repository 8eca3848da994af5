package jobs

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// How long a claim leases jobs. A client that works longer touches them. A lease of years is
// taken for a mistake.
const (
	defaultTTR = time.Minute
	maxTTR     = 30 * 24 * time.Hour
)

// claim leases jobs to the client, and waits for them if it asks so.
func (a *api) claim(c *call) *ingest.Rejection {
	a.workers.hear(c)
	count := c.number("count", 1, 1, job.MaxCount)
	ttr := c.duration("ttr", c.namespace.Lease(defaultTTR, c.queues...), time.Millisecond, maxTTR)
	wait := c.duration("wait", 0, 0, a.cfg.MaxWait)
	text := c.text()
	onEnds := c.flag("on_end", wire.CodeBadOnEnd)
	if c.wrong != nil {
		return c.wrong
	}
	return a.lease(c, count, job.MaxAttempt, ttr, wait, Form{
		OnEnds: onEnds,
		Type:   jsonType,
		Size:   func(j *Job) int { return jobSize(j, text) },
		Append: func(dst []byte, jobs []Job) []byte { return appendJobs(dst, jobs, ttr, text) },
	})
}

// Form is how a protocol shows jobs.
type Form struct {
	OnEnds bool           // they are shown with their OnEnd
	Type   string         // of the content
	Size   func(*Job) int // at least what Append takes for a job, in bytes
	Append func(dst []byte, jobs []Job) []byte
}

// Job is a job as a claim brings it.
type Job = job.Job

// lease claims jobs for the client, waits for them if it asks so, and answers. Jobs that were claimed tries times
// before are buried.
func (a *api) lease(c *call, count, tries int, ttr, wait time.Duration, f Form) *ingest.Rejection {
	if !a.enter() {
		return a.reject(c, ErrStopping)
	}
	defer a.claims.Done()
	// The rate is charged for one job before the wait, so that a token that has used its rate
	// up is told at once, and for the others with the jobs: a wait must not keep what other
	// clients could use.
	taken, rejected := c.take(c.key.Limiters().Consume, 1)
	if rejected != nil {
		return rejected
	}
	of := &Claim{
		Namespace: c.namespace,
		Queues:    c.queues,
		TTR:       ttr,
		Count:     count,
		Wait:      wait,
		By:        c.key.Name(),
		Conn:      c.Conn(),
		Stopping:  c.Stopping(),
		Revoked:   func() bool { return c.Revoked(c.key) },
		Reserve:   func(bytes int) bool { return c.Wait(bytes) == nil },
	}
	until := time.Now().Add(wait)
	jobs, err := a.Claim(of)
	for len(jobs) > 0 {
		if jobs = a.burySpent(c, jobs, tries); len(jobs) > 0 {
			break
		}
		of.Wait = time.Until(until)
		jobs, err = a.Claim(of)
	}
	if c.nothing = len(jobs) == 0; c.nothing {
		taken.Refund()
	}
	if err != nil {
		return a.reject(c, err)
	}
	if of, ok := a.store.(job.Ends); ok && f.OnEnds {
		rejected = a.ask(c, false, func(ctx context.Context) error { return of.OnEnds(ctx, c.namespace, jobs) })
	}
	if rejected == nil {
		rejected = a.answer(c, jobs, f)
	}
	if rejected != nil {
		taken.Refund()
		a.GiveBack(c.namespace, jobs)
		return rejected
	}
	return nil
}

// burySpent buries the jobs that were claimed tries times before, and returns the others. One at its own last try may
// have been respawned.
func (a *api) burySpent(c *call, jobs []job.Job, tries int) (rest []job.Job) {
	spent := func(j job.Job) bool { return j.Attempt > tries && j.Attempt < j.Tries }
	if !slices.ContainsFunc(jobs, spent) {
		return jobs
	}
	var buried []*job.Settle
	for _, j := range jobs {
		if !spent(j) {
			rest = append(rest, j)
			continue
		}
		buried = append(buried, &job.Settle{Namespace: c.namespace, Queue: j.Queue, Ref: j.Ref, Attempt: j.Attempt,
			Verb: job.Bury, By: c.key.Name(), Error: fmt.Sprintf("claimed more than %d times, which its queue allows", tries)})
	}
	a.Settle(buried...) // where that fails, it comes again once its lease is over
	return rest
}

// answer sends jobs, if memory allows it. If the rate of the token allows no more than the
// job that was taken before the wait, it sends that and gives the others back: a client that
// asks for many gets some all the same.
func (a *api) answer(c *call, jobs []job.Job, f Form) *ingest.Rejection {
	size := len(`{"jobs":[]}`) + 1
	for i := range jobs {
		size += f.Size(&jobs[i])
	}
	if rejected := c.Reserve(size); rejected != nil {
		return rejected
	}
	taken, rejected := c.take(c.key.Limiters().Consume, len(jobs)-1)
	switch {
	case rejected == nil:
	case rejected.Code == wire.CodeRateLimited || rejected.Code == wire.CodeTooManyEntries:
		a.GiveBack(c.namespace, jobs[1:])
		jobs = jobs[:1]
	default:
		return rejected
	}
	a.tellRestart(c)
	if rejected = c.Answer(200, f.Type, f.Append(make([]byte, 0, size), jobs)); rejected != nil {
		taken.Refund()
		return rejected
	}
	GiveBackLost(c.Exchange, a, c.namespace, jobs)
	return nil
}

// jobSize is at least the length of the JSON form of a job.
func jobSize(j *job.Job, text bool) int {
	payload := base64.StdEncoding.EncodedLen(len(j.Payload))
	if text {
		payload = 6 * len(j.Payload) // an escaped byte has six at most
	}
	return 256 + len(j.Queue) + len(j.OnEnd) + len(j.ID) + len(j.Attributes) + len(j.PHP) + len(j.Result) + payload
}

func appendJobs(dst []byte, jobs []job.Job, ttr time.Duration, text bool) []byte {
	dst = append(dst, `{"jobs":[`...)
	for i := range jobs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJob(dst, &jobs[i], text)
		dst = strconv.AppendInt(append(dst, `,"deadline_ms":`...), jobs[i].Now+ttr.Milliseconds(), 10)
		dst = strconv.AppendInt(append(dst, `,"ttr_ms":`...), ttr.Milliseconds(), 10)
		dst = append(dst, '}')
	}
	return append(dst, "]}\n"...)
}

// appendJob appends the JSON form of a job, but its closing brace. Payloads are bytes, so
// data is base64: a JSON text cannot hold every byte, and a parser may change payloads that
// are JSON. For people, text is a payload that is UTF-8, in its place.
func appendJob(dst []byte, j *job.Job, text bool) []byte {
	dst = append(append(dst, `{"queue":"`...), j.Queue...)
	dst = append(append(dst, `","id":"`...), j.ID...)
	dst = append(dst, '"')
	if j.Attempt >= 0 {
		dst = strconv.AppendInt(append(dst, `,"attempt":`...), int64(j.Attempt), 10)
	}
	dst = strconv.AppendInt(append(dst, `,"tries":`...), int64(j.Tries), 10)
	if j.Published > 0 {
		dst = strconv.AppendInt(append(dst, `,"published_ms":`...), j.Published, 10)
	}
	if j.Expires > 0 {
		dst = strconv.AppendInt(append(dst, `,"expires_ms":`...), j.Expires, 10)
	}
	if len(j.Attributes) > 0 {
		dst = append(append(dst, `,"attributes":`...), j.Attributes...)
	}
	if j.OnEnd != "" {
		dst = append(append(append(dst, `,"on_end":"`...), j.OnEnd...), '"')
	}
	if len(j.PHP) > 0 {
		dst = append(append(dst, `,"php":`...), j.PHP...)
	}
	if text && utf8.Valid(j.Payload) {
		return appendText(append(dst, `,"text":`...), string(j.Payload))
	}
	dst = base64.StdEncoding.AppendEncode(append(dst, `,"data":"`...), j.Payload)
	return append(dst, '"')
}

// appendText appends a string of JSON in which < > and & are as they are.
func appendText(dst []byte, text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // of a string it cannot fail
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte{'\n'})...)
}

// maxReturn is how long jobs are tried to be given back. Then their lease ends it.
const maxReturn = 10 * time.Minute

// GiveBack puts claimed jobs back to the heads of their queues, as if they had not been
// claimed. It does not wait. While the store does not answer, it tries again.
func (e *Engine) GiveBack(ns *job.Namespace, jobs []job.Job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(jobs) == 0 {
		return
	}
	if e.closed {
		e.metrics.notReturned.Add(float64(len(jobs)))
		return
	}
	settles := make([]job.Settle, len(jobs))
	refs := make([]*job.Settle, len(jobs))
	for i := range jobs {
		j := &jobs[i] // the script keeps their order at the head
		settles[i] = job.Settle{
			Namespace: ns,
			Queue:     j.Queue,
			Ref:       j.Ref,
			Attempt:   j.Attempt,
			Verb:      job.Requeue,
			Deadline:  j.At,
		}
		refs[i] = &settles[i]
	}
	e.returns.Add(1)
	e.giveBack(refs, time.Now(), 0)
}

// GiveBackLost has an Engine, or several, give back the jobs of an answer if the client goes
// away before it is sent whole. It drops the payloads, which the answer holds.
func GiveBackLost(x *ingest.Exchange, to interface {
	GiveBack(ns *job.Namespace, jobs []job.Job)
}, ns *job.Namespace, jobs []job.Job) {
	if len(jobs) == 0 {
		return
	}
	for i := range jobs {
		jobs[i].Payload, jobs[i].Attributes = nil, nil
	}
	x.OnLost(func() { to.GiveBack(ns, jobs) })
}

func (e *Engine) giveBack(settles []*job.Settle, since time.Time, attempt int) {
	w := &work{namespace: settles[0].Namespace.Name, jobs: len(settles)}
	w.batch.Settles = settles
	w.done = func() { e.gaveBack(settles, since, attempt) }
	e.laneOf(settles[0].Namespace, settles[0].Queue).put(w)
}

// gaveBack tries again what the store may not have done.
func (e *Engine) gaveBack(settles []*job.Settle, since time.Time, attempt int) {
	var again []*job.Settle
	for _, s := range settles {
		switch {
		case s.Err == nil:
			e.metrics.returned.Inc()
		case errors.Is(s.Err, partition.ErrBroken) || errors.Is(s.Err, ErrStopping) ||
			time.Since(since) > maxReturn:
			e.metrics.notReturned.Inc()
		default:
			again = append(again, s)
		}
	}
	if len(again) == 0 {
		e.returns.Done()
		return
	}
	pause := min(minPause<<min(attempt, 6), time.Second)
	time.AfterFunc(pause/2+rand.N(pause/2), func() { // #nosec G404 -- spreads load
		for _, s := range again {
			s.Err = nil
		}
		e.giveBack(again, since, attempt+1)
	})
}
