package spillway

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// A TraceEvent is what happened to a job. What does not apply to it is empty.
type TraceEvent struct {
	At      time.Time
	Event   string        // such as published, claimed, written, acked
	By      string        // a token, push, on_end, or schedule and its name
	Attempt int           // of a claim, and of what came of it
	Reason  string        // why it is dead
	Sink    string        // that push wrote to
	Outcome string        // of that: accepted, rejected or retried
	Status  int           // that a webhook answered
	Took    time.Duration // the write, in ms
	Error   string        // the first 256 bytes of that of a nack or bury
}

// Trace returns what happened to a job, which may be gone since, the oldest event first; or
// ErrNoTrace, where no rule of its queue keeps it. It is best effort: it may lack events.
func (q *Queues) Trace(ctx context.Context, queue, id string) ([]TraceEvent, error) {
	if err := checkQueue(queue); err != nil {
		return nil, err
	}
	var said struct {
		Events []struct {
			TraceEvent
			AtMS int64 `json:"at_ms"`
			MS   int64 `json:"ms"`
		}
	}
	path := queue + "/jobs/" + url.PathEscape(id) + "/trace"
	if _, err := q.do(ctx, jobRequest{method: http.MethodGet, path: path}, &said); err != nil {
		return nil, err
	}
	events := make([]TraceEvent, len(said.Events))
	for i, e := range said.Events {
		events[i] = e.TraceEvent
		events[i].At, events[i].Took = time.UnixMilli(e.AtMS), time.Duration(e.MS)*time.Millisecond
	}
	return events, nil
}
