package spillway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Job is a job of a queue.
type Job struct {
	Queue, ID  string
	Attempt    int // deliveries so far, with this one; 0 of a dead job where the service does not know
	Tries      int // deliveries at most
	Payload    []byte
	Attributes map[string]string
	PHP        *PHPFacts     // of a queue of PHP's: what the payload says of itself; else nil
	Published  time.Time     // by the service's clock; zero: a payload of PHP's that does not say it
	Expires    time.Time     // by the service's clock; zero: never
	Left       time.Duration // of Claim: how long it lived still when it was claimed, 0 for ever
	OnEnd      string        // of Get, and where ClaimOptions.OnEnd asks: the queue that gets a job when it ends
	// State is that of Get, Peek and Wait: ready, prepared, delayed, leased, dead; acked where a rule keeps
	// such jobs; gone where it ended during a Wait, and none does.
	State    string
	Acked    time.Time       // by the service's clock; zero: it is not
	Result   json.RawMessage // what its ack said; for an Ack to say, or a handler by Result: JSON, 4 KiB at most
	Errors   []JobError      // of Get: why attempts failed, the newest first, the last three
	Progress *int            // of Get: percent, that its worker said with Progress; nil: nothing
	Note     string          // and beside it
	Reason   string          // of Get, why it is dead: nacked, lapsed, buried or undecided; empty where the service does not know

	deadlineMS int64         // of the lease that Claim got
	ttr        time.Duration // that it was claimed for
	moved      *atomic.Bool  // of a handler: a touch may have moved the deadline
}

// A JobError is why an attempt failed, as its worker said.
type JobError struct {
	Attempt int
	AtMS    int64 `json:"at_ms"` // Unix ms on the service's clock
	Error   string
}

// jobForm is a job as the service writes it.
type jobForm struct {
	Queue, ID, State, Reason string
	OnEnd                    string `json:"on_end"`
	Note                     string
	Progress                 *int
	Attempt, Tries           int
	Data                     []byte // base64 in JSON
	Attributes               map[string]string
	PHP                      *PHPFacts
	Errors                   []JobError
	Published                int64 `json:"published_ms"`
	Expires                  int64 `json:"expires_ms"`
	Acked                    int64 `json:"acked_ms"`
	Result                   json.RawMessage
	Deadline                 int64 `json:"deadline_ms"`
	TTR                      int64 `json:"ttr_ms"`
}

func (f *jobForm) job() Job {
	j := Job{
		Queue:      f.Queue,
		ID:         f.ID,
		Attempt:    f.Attempt,
		Tries:      f.Tries,
		Payload:    f.Data,
		Attributes: f.Attributes,
		PHP:        f.PHP,
		State:      f.State,
		OnEnd:      f.OnEnd,
		Reason:     f.Reason,
		Errors:     f.Errors,
		Progress:   f.Progress,
		Note:       f.Note,
		Result:     f.Result,
		deadlineMS: f.Deadline,
		ttr:        time.Duration(f.TTR) * time.Millisecond,
	}
	if f.Published != 0 {
		j.Published = time.UnixMilli(f.Published)
	}
	if f.Acked != 0 {
		j.Acked = time.UnixMilli(f.Acked)
	}
	if f.Expires != 0 {
		j.Expires = time.UnixMilli(f.Expires)
		if f.Deadline != 0 {
			j.Left = max(time.Millisecond, j.Expires.Sub(time.UnixMilli(f.Deadline-f.TTR)))
		}
	}
	return j
}

// ClaimOptions are what a claim may say. A zero field means its default.
type ClaimOptions struct {
	Count int           // jobs at most, 1 to 1000; default 1
	TTR   time.Duration // how long they are leased; default as a rule for the queue says, or 1m
	Wait  time.Duration // how long to wait for the first job, 10m at most; default not at all
	OnEnd bool          // tell Job.OnEnd
}

// Claim leases ready jobs of queues, the most wanted queue first; with weights, as in "urgent*5",
// "welcome", their order is drawn for each claim. It returns none when there
// are none until Wait is over. Each job is to be given to one of Ack, Nack, Bury and Requeue
// before its TTR is over, or it comes again, until its tries are used up. Work does all
// this.
func (q *Queues) Claim(ctx context.Context, queues []string, o ClaimOptions) ([]Job, error) {
	return q.claim(ctx, queues, o, 0)
}

func (q *Queues) claim(ctx context.Context, queues []string, o ClaimOptions,
	attempts int) ([]Job, error) {
	if len(queues) == 0 {
		return nil, checkQueue("")
	}
	names := queueNames(queues)
	if err := checkQueue(names...); err != nil {
		return nil, err
	}
	r := jobRequest{
		method:   http.MethodPost,
		path:     strings.Join(queues, ",") + "/claim",
		query:    url.Values{},
		wait:     o.Wait,
		attempts: attempts,
	}
	if o.Count != 0 {
		r.query.Set("count", strconv.Itoa(o.Count))
	}
	if o.TTR != 0 {
		r.query.Set("ttr", o.TTR.String())
	}
	if o.Wait != 0 {
		r.query.Set("wait", o.Wait.String())
	}
	if o.OnEnd {
		r.query.Set("on_end", "1")
	}
	var said struct{ Jobs []jobForm }
	if _, err := q.do(ctx, r, &said); err != nil {
		return nil, err
	}
	if said.Jobs == nil || slices.ContainsFunc(said.Jobs,
		func(f jobForm) bool { return f.ID == "" || !slices.Contains(names, f.Queue) }) {
		return nil, errForeign
	}
	if len(said.Jobs) > max(o.Count, 1) {
		return nil, &Error{
			Message: "an answer with more jobs than were asked for",
			Unknown: true,
			is:      ErrUnknown,
		}
	}
	jobs := make([]Job, len(said.Jobs))
	for i := range said.Jobs {
		jobs[i] = said.Jobs[i].job()
		jobs[i].ttr = cmp.Or(jobs[i].ttr, o.TTR, time.Minute)
	}
	return jobs, nil
}

// Ack says that a job is done: it does not come again, even if its lease is over. ErrGone: it
// was acked or deleted before, or it expired.
func (q *Queues) Ack(ctx context.Context, job Job) error {
	return q.settle(ctx, job, "ack", 0, nil, 0)
}

// Moved says that a job was published in another queue, with all that is to come of it: here it ends, and neither its
// OnEnd, nor kept results, nor its schedule take it for done.
func (q *Queues) Moved(ctx context.Context, job Job) error {
	return q.settle(ctx, job, "move", 0, nil, 0)
}

// Nack gives a job back, to be ready again after a while, 0 to 30 days; one beyond is taken for
// the nearest. When its tries are used up, it is dead. cause is why, which Get shows: 1 KiB of its
// text; nil says nothing. ErrGone: the lease was over, so it comes again, or has come, anyway.
func (q *Queues) Nack(ctx context.Context, job Job, after time.Duration, cause error) error {
	return q.settle(ctx, job, "nack", after, cause, 0)
}

// Bury gives a job up: it is dead, and stays to be looked at, respawned or deleted. cause is as in Nack.
func (q *Queues) Bury(ctx context.Context, job Job, cause error) error {
	return q.settle(ctx, job, "bury", 0, cause, 0)
}

// Release gives a job of a queue of PHP's back, to be ready again after a while, whatever its try: for
// handlers in which PHP's library decides. Elsewhere it is ErrInvalid.
func (q *Queues) Release(ctx context.Context, job Job, after time.Duration) error {
	return q.settle(ctx, job, "release", after, nil, 0)
}

// Touch leases a job for ttr from now on. ErrGone: the lease was over.
func (q *Queues) Touch(ctx context.Context, job Job, ttr time.Duration) error {
	return q.settle(ctx, job, "touch", ttr, nil, 0)
}

// Progress is Touch, and says how far the work got, in percent, and a note of which 200 bytes are kept.
// Get and List show it. A ttr of 0 is that of its Claim, or a minute where that says none. ErrGone: the lease was over.
func (q *Queues) Progress(ctx context.Context, job Job, ttr time.Duration, percent int, note string) error {
	line := newSettlement(job, "touch", cmp.Or(ttr, job.ttr, time.Minute), nil)
	line.Progress, line.Note = &percent, note
	return q.settleOne(ctx, job.Queue, line, 0)
}

// Defer leases a job for ttr from now on, and notes that somebody else will settle it, who has
// its queue, id and attempt. ErrGone: the lease was over.
func (q *Queues) Defer(ctx context.Context, job Job, ttr time.Duration) error {
	return q.settle(ctx, job, "defer", ttr, nil, 0)
}

// Requeue gives a job back to the head of its queue, as if it had not been claimed. It is sent
// once: the next delivery has the same attempt, and a repeat could take the job from it.
func (q *Queues) Requeue(ctx context.Context, job Job) error {
	job.deadlineMS = 0 // a Touch may have moved it
	return q.settle(ctx, job, "requeue", 0, nil, 1)
}

// maxAfter is the longest time that a nack may give.
const maxAfter = 30 * 24 * time.Hour

// A settlement is a line of a settle: what became of one delivery. It can be repeated: it changes
// only the delivery that it names. After a requeue the next delivery has the same attempt, so
// a requeue names the deadline of the lease, too, unless the lease was prolonged.
type settlement struct {
	ID         string          `json:"id"`
	Attempt    int             `json:"attempt"`
	Do         string          `json:"do"`
	MS         int64           `json:"ms,omitempty"`
	DeadlineMS int64           `json:"deadline_ms,omitempty"`
	Error      string          `json:"error,omitempty"`
	Progress   *int            `json:"progress,omitempty"`
	Note       string          `json:"note,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
}

// maxError is how much of an error is sent, in bytes. The service cuts it at a character.
const maxError = 1 << 10

func newSettlement(job Job, do string, after time.Duration, cause error) settlement {
	if do == "nack" || do == "release" || do == "defer" {
		after = min(max(after, 0), maxAfter)
	}
	s := settlement{
		ID:      job.ID,
		Attempt: job.Attempt,
		Do:      do,
		MS:      (after + time.Millisecond - 1).Milliseconds(),
	}
	if do == "ack" {
		s.Result = job.Result
	}
	if do == "requeue" && (job.moved == nil || !job.moved.Load()) {
		s.DeadlineMS = job.deadlineMS
	}
	if job.moved != nil && (do == "touch" || do == "defer") {
		job.moved.Store(true)
	}
	if cause != nil {
		text := cause.Error()
		s.Error = strings.ToValidUTF8(text[:min(len(text), maxError)], "")
	}
	return s
}

// settle sends one settlement, in that many attempts; 0: as configured.
func (q *Queues) settle(ctx context.Context, job Job, do string, after time.Duration, cause error,
	attempts int) error {
	return q.settleOne(ctx, job.Queue, newSettlement(job, do, after, cause), attempts)
}

func (q *Queues) settleOne(ctx context.Context, queue string, line settlement, attempts int) error {
	if err := checkQueue(queue); err != nil {
		return err
	}
	errs, err := q.settleAll(ctx, queue, []settlement{line}, attempts)
	if err != nil {
		return err
	}
	return errs[0]
}

// settleAll sends settlements of one queue together. errs has what became of each: nil, ErrGone or
// an *Error.
func (q *Queues) settleAll(ctx context.Context, queue string, lines []settlement,
	attempts int) (errs []error, err error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	for i := range lines {
		if err := encoder.Encode(&lines[i]); err != nil {
			return nil, fmt.Errorf("spillway: write a settlement: %w", err)
		}
	}
	var said struct {
		Results []struct{ State, Error, Message string }
	}
	r := jobRequest{
		method:      http.MethodPost,
		path:        queue + "/settle",
		contentType: "application/x-ndjson",
		body:        body.Bytes(),
		attempts:    attempts,
	}
	maybe, err := q.do(ctx, r, &said)
	if err != nil {
		return nil, err
	}
	if len(said.Results) != len(lines) {
		return nil, errForeign
	}
	errs = make([]error, len(lines))
	for i, r := range said.Results {
		switch {
		case r.Error != "":
			is := cmp.Or(codes[r.Error], ErrInvalid)
			errs[i] = &Error{
				Status:  http.StatusOK,
				Code:    r.Error,
				Message: r.Message,
				Unknown: is == ErrUnknown,
				is:      is,
			}
		case r.State == "gone" && !maybe: // otherwise most likely because of an attempt whose answer was lost
			errs[i] = ErrGone
		case r.State == "":
			return nil, errForeign
		}
	}
	return errs, nil
}

// Get returns a job, in whatever state it is, or ErrNoJob.
func (q *Queues) Get(ctx context.Context, queue, id string) (Job, error) {
	return q.Wait(ctx, queue, id, 0)
}

// Wait returns a job once it has ended: acked where a rule keeps it, gone where none does, dead; after
// wait, 10m at most, in the state that it is in; or ErrNoJob, also of one that ended unkept before. So
// look at Job.State first.
func (q *Queues) Wait(ctx context.Context, queue, id string, wait time.Duration) (Job, error) {
	return q.read(ctx, queue, "/jobs/"+url.PathEscape(id), wait)
}

// Peek returns the job that is claimed next, without claiming it, or ErrNoJob.
func (q *Queues) Peek(ctx context.Context, queue string) (Job, error) {
	return q.read(ctx, queue, "/peek", 0)
}

func (q *Queues) read(ctx context.Context, queue, path string, wait time.Duration) (Job, error) {
	if err := checkQueue(queue); err != nil {
		return Job{}, err
	}
	var said jobForm
	r := jobRequest{method: http.MethodGet, path: queue + path, wait: wait}
	if wait > 0 {
		r.query = url.Values{"wait": {wait.String()}}
	}
	if _, err := q.do(ctx, r, &said); err != nil {
		return Job{}, err
	}
	if said.ID == "" {
		return Job{}, errForeign
	}
	return said.job(), nil
}

// Counts are the jobs of a queue.
type Counts struct {
	Ready, Dead int64
	// Delayed and Leased are -1 where the service has too many of both to tell them apart.
	// Pending is their sum.
	Delayed, Leased, Pending int64
	OldestAge                time.Duration // of the oldest ready job; 0: none
	Reserved                 int64         // of a queue of PHP's: held by its own workers
}

// Counts counts the jobs of a queue.
func (q *Queues) Counts(ctx context.Context, queue string) (Counts, error) {
	if err := checkQueue(queue); err != nil {
		return Counts{}, err
	}
	said := struct {
		Ready, Dead, Delayed, Leased, Pending int64
		OldestAge                             int64 `json:"oldest_age_ms"`
		Reserved                              int64
	}{Ready: -1, Delayed: -1, Leased: -1}
	if _, err := q.do(ctx, jobRequest{method: http.MethodGet, path: queue}, &said); err != nil {
		return Counts{}, err
	}
	if said.Ready < 0 {
		return Counts{}, errForeign
	}
	return Counts{
		Ready:     said.Ready,
		Dead:      said.Dead,
		Delayed:   said.Delayed,
		Leased:    said.Leased,
		Pending:   said.Pending,
		OldestAge: time.Duration(said.OldestAge) * time.Millisecond,
		Reserved:  said.Reserved,
	}, nil
}
