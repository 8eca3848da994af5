package spillway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// DeadLetters say which dead letters of a queue are meant: those that IDs names, or the oldest that
// all other fields match.
type DeadLetters struct {
	IDs    []string
	Reason string        // nacked, lapsed, buried or undecided; empty: any
	Error  string        // a part of their last error; empty: any
	Age    time.Duration // since they died, at least
	Limit  int           // at most so many, by requests that are made once each; 0: all
}

// maxDeadLetters is how many one request is about.
const maxDeadLetters = 1000

// Respawn makes dead letters ready again, each for one try more. They live for ttl from then on; 0 is
// for ever. It returns how many: less than were made ready where the answer to an attempt was lost.
func (q *Queues) Respawn(ctx context.Context, queue string, which DeadLetters,
	ttl time.Duration) (n int, err error) {
	return q.actOnDead(ctx, queue, which, url.Values{"do": {"respawn"}, "ttl": {ttl.String()}})
}

// DeleteDead deletes dead letters, and returns how many, as Respawn does.
func (q *Queues) DeleteDead(ctx context.Context, queue string, which DeadLetters) (n int, err error) {
	return q.actOnDead(ctx, queue, which, url.Values{"do": {"delete"}})
}

func (q *Queues) actOnDead(ctx context.Context, queue string, which DeadLetters, query url.Values) (n int, err error) {
	if err := checkQueue(queue); err != nil {
		return 0, err
	}
	if which.IDs != nil {
		return q.actOnNamed(ctx, queue, which, query)
	}
	if which.Reason != "" {
		query.Set("reason", which.Reason)
	}
	if which.Error != "" {
		query.Set("error", which.Error)
	}
	if which.Age > 0 {
		query.Set("age", which.Age.String())
	}
	attempts := 0
	if which.Limit > 0 { // a repeat would be about others
		attempts = 1
	}
	for {
		limit := maxDeadLetters
		if which.Limit > 0 {
			limit = min(limit, which.Limit-n)
		}
		query.Set("limit", strconv.Itoa(limit))
		var said struct {
			Respawned, Deleted int
			Complete           *bool
			Next               string
		}
		_, err := q.do(ctx, jobRequest{method: http.MethodPost, path: queue + "/dead", query: query, attempts: attempts}, &said)
		if err == nil && said.Complete == nil {
			err = errForeign
		}
		if err != nil {
			return n, err
		}
		if query.Del("after"); said.Next != "" {
			query.Set("after", said.Next)
		}
		did := said.Respawned + said.Deleted
		if n += did; n == which.Limit || *said.Complete && did < limit {
			return n, nil
		}
	}
}

func (q *Queues) actOnNamed(ctx context.Context, queue string, which DeadLetters, query url.Values) (n int, err error) {
	if which.Reason != "" || which.Error != "" || which.Age > 0 || which.Limit > 0 {
		return 0, errors.New("spillway: IDs name dead letters, and the other fields select some: give one of both")
	}
	for ids := which.IDs; len(ids) > 0; {
		some := ids[:min(len(ids), maxDeadLetters)]
		body, err := json.Marshal(map[string][]string{"ids": some})
		if err != nil {
			return n, fmt.Errorf("spillway: write ids: %w", err)
		}
		var said struct {
			Results []struct{ State, Error string }
		}
		_, err = q.do(ctx, jobRequest{method: http.MethodPost, path: queue + "/dead", query: query,
			contentType: "application/json", body: body}, &said)
		if err == nil && len(said.Results) != len(some) {
			err = errForeign
		}
		for _, r := range said.Results {
			switch r.State {
			case "ready", "deleted":
				n++
			case "":
				err = &Error{Status: http.StatusOK, Code: r.Error, Message: "some of the dead letters were not reached", is: ErrUnavailable}
			}
		}
		if err != nil {
			return n, err
		}
		ids = ids[len(some):]
	}
	return n, nil
}

// Promote makes a delayed job ready now, also one that waits for another try. ErrNotDelayed: it is
// another.
func (q *Queues) Promote(ctx context.Context, queue, id string) error {
	if err := checkQueue(queue); err != nil {
		return err
	}
	var said struct{ State string }
	maybe, err := q.do(ctx, jobRequest{method: http.MethodPost, path: queue + "/jobs/" + url.PathEscape(id) + "/promote"}, &said)
	if err == nil && said.State == "" {
		return errForeign
	}
	if maybe && errors.Is(err, ErrNotDelayed) {
		return nil // most likely because of an attempt whose answer was lost
	}
	return err
}

// Delete ends a job, in whatever state it is, or returns ErrNoJob.
func (q *Queues) Delete(ctx context.Context, queue, id string) error {
	if err := checkQueue(queue); err != nil {
		return err
	}
	var said struct{ State string }
	maybe, err := q.do(ctx, jobRequest{method: http.MethodDelete,
		path: queue + "/jobs/" + url.PathEscape(id)}, &said)
	if err == nil && said.State == "" {
		return errForeign
	}
	if maybe && errors.Is(err, ErrNoJob) {
		return nil // most likely because of an attempt whose answer was lost
	}
	return err
}

// ListOptions choose a page of the jobs of a queue.
type ListOptions struct {
	State string // ready, prepared, delayed, leased, dead or acked
	Limit int    // 1 to 1000; 0: 100
	After string // Next of the page before; empty: begin
	Data  bool   // with payloads
}

// A JobPage is a page of a list.
type JobPage struct {
	Jobs []ListedJob
	Next string // empty at the end
}

// A ListedJob is a job of a list. Times are Unix ms on the service's clock, 0 where they do not apply.
type ListedJob struct {
	ID, State, Reason string
	Error             string // why its last attempt failed that said so
	Progress          *int   // percent, that its attempt said last; nil: nothing
	Note              string // and beside it
	Attempt, Tries    int
	Bytes             int             // of the payload
	Data              []byte          // with ListOptions.Data
	PublishedMS       int64           `json:"published_ms"`
	DueMS             int64           `json:"due_ms"`
	DeadlineMS        int64           `json:"deadline_ms"`
	DiedMS            int64           `json:"died_ms"`
	AckedMS           int64           `json:"acked_ms"`
	Result            json.RawMessage // what its ack said
}

// List returns a page of the jobs of a queue that are in a state. It may be short, or empty, and have
// a Next. Jobs that move between two pages may be missing or come twice.
func (q *Queues) List(ctx context.Context, queue string, o ListOptions) (page JobPage, err error) {
	if err := checkQueue(queue); err != nil {
		return JobPage{}, err
	}
	query := url.Values{"state": {o.State}}
	if o.Limit != 0 {
		query.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.After != "" {
		query.Set("after", o.After)
	}
	if o.Data {
		query.Set("data", "1")
	}
	_, err = q.do(ctx, jobRequest{method: http.MethodGet, path: queue + "/jobs", query: query}, &page)
	return page, err
}
