package spillway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// PrepareOptions are what a Prepare may say, beside what a publish may.
type PrepareOptions struct {
	PublishOptions
	// Check is the queue that gets a job when nobody decides:
	// {"event":"prepared","queue","id",…}. Its worker decides by Queues.Prepared. Default none:
	// the job is dead after CheckAfter.
	Check string
	// CheckAfter is how long the publisher has until it is asked, 1s to 24h; default 1m. Each
	// further question waits twice as long, an hour at most.
	CheckAfter time.Duration
	// Checks is how often it is asked before the job is dead, to 100; default 15.
	Checks int
}

// A Prepared is a job that waits for its publisher.
type Prepared struct {
	Queue, ID string
	jobs      *Queues
}

// Prepare stores a job that nobody claims before its Commit: do what shall happen together with
// it, such as a transaction of your database, and then commit it or roll it back. Its errors
// are those of Publish. A publish with the same Key or ID returns the same job.
func (q *Queues) Prepare(ctx context.Context, queue string, payload []byte,
	o PrepareOptions) (Prepared, error) {
	if len(payload) == 0 {
		return Prepared{}, ErrEmpty
	}
	query := url.Values{"prepare": {"1"}}
	if o.Check != "" {
		query.Set("check", o.Check)
	}
	if o.CheckAfter != 0 {
		query.Set("check_after", o.CheckAfter.String())
	}
	if o.Checks != 0 {
		query.Set("checks", strconv.Itoa(o.Checks))
	}
	p, err := q.publish(ctx, queue, "application/octet-stream", payload, o.PublishOptions, query)
	if err != nil {
		return Prepared{}, err
	}
	return q.Prepared(queue, p.IDs[0]), nil
}

// Prepared names a prepared job, such as one that a question is about.
func (q *Queues) Prepared(queue, id string) Prepared { return Prepared{queue, id, q} }

// Commit lets the job be claimed, once its delay, which counts from the publish, is over. It can
// be repeated. ErrDecided: it was rolled back. ErrNotPrepared: nobody decided in time, and it
// is dead. ErrNoJob: there is none, or it ended more than a day after its commit.
func (p Prepared) Commit(ctx context.Context) error { return p.decide(ctx, "/commit") }

// Rollback deletes the job. It can be repeated. Its errors are those of Commit; ErrDecided: it
// was committed.
func (p Prepared) Rollback(ctx context.Context) error { return p.decide(ctx, "/rollback") }

func (p Prepared) decide(ctx context.Context, verb string) error {
	if err := checkQueue(p.Queue); err != nil {
		return err
	}
	var said struct{ Result string }
	_, err := p.jobs.do(ctx, jobRequest{method: http.MethodPost,
		path: p.Queue + "/jobs/" + url.PathEscape(p.ID) + verb}, &said)
	if err == nil && said.Result == "" {
		return errForeign
	}
	return err
}

// A Change is another time or payload for a delayed job. A zero field changes nothing.
type Change struct {
	Delay   time.Duration // from now on
	At      time.Time     // instead of Delay
	Payload []byte
}

// Reschedule changes a delayed job that was never claimed. ErrNotDelayed: it is another.
func (q *Queues) Reschedule(ctx context.Context, queue, id string, c Change) error {
	if err := checkQueue(queue); err != nil {
		return err
	}
	body, err := json.Marshal(struct {
		DelayMS int64     `json:"delay_ms,omitempty"`
		At      time.Time `json:"at,omitzero"`
		Base64  []byte    `json:"data_base64,omitempty"`
	}{(c.Delay + time.Millisecond - 1).Milliseconds(), c.At, c.Payload})
	if err != nil {
		return fmt.Errorf("spillway: write a change: %w", err)
	}
	var said struct{ State string }
	_, err = q.do(ctx, jobRequest{
		method:      http.MethodPatch,
		path:        queue + "/jobs/" + url.PathEscape(id),
		contentType: "application/json",
		body:        body,
	}, &said)
	if err == nil && said.State == "" {
		return errForeign
	}
	return err
}
