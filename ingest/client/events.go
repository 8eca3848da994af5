package spillway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strings"
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
	Error   string        // of a nack or bury; traces keep its first 256 bytes
}

// eventTimes are those of an event, as the service writes them.
type eventTimes struct {
	AtMS int64 `json:"at_ms"`
	MS   int64 `json:"ms"`
}

func (t eventTimes) fill(e *TraceEvent) {
	e.Took = time.Duration(t.MS) * time.Millisecond
	if t.AtMS != 0 {
		e.At = time.UnixMilli(t.AtMS)
	}
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
			eventTimes
		}
	}
	path := queue + "/jobs/" + url.PathEscape(id) + "/trace"
	if _, err := q.do(ctx, jobRequest{method: http.MethodGet, path: path}, &said); err != nil {
		return nil, err
	}
	events := make([]TraceEvent, len(said.Events))
	for i := range said.Events {
		events[i] = said.Events[i].TraceEvent
		said.Events[i].fill(&events[i])
	}
	return events, nil
}

// A QueueEvent is what happened to a job, or to several. What does not apply to it is empty.
type QueueEvent struct {
	TraceEvent
	Queue    string
	ID       string
	IDBegins string `json:"id_begins"` // the first 13 characters of the id, where the rest is not known
	Count    int64  // of jobs without their ids; of dropped: the events that are missing, 0: nobody knows how many
	Progress *int
	Note     string
	Result   json.RawMessage
	Data     json.RawMessage `json:"-"` // all of it, as the service wrote it
}

// dropped stands for the events between two streams.
var dropped = QueueEvent{TraceEvent: TraceEvent{Event: "dropped"}, Data: []byte(`{"event":"dropped"}`)}

// maxEventLine is thirty times what an event of the service takes, in bytes.
const maxEventLine = 1 << 20

// maxSilence is how long a stream may say nothing. The service sends a comment each 15 s.
const maxSilence = 45 * time.Second

// Events tells what happens to the jobs of some queues, or of all where none is named, from now on, until the
// loop or ctx ends. It is best effort, and replays nothing: from the event "ready" on all processes tell, and
// "dropped" says that events are missing here. A stream that breaks is opened again, for as long as
// that may help, and also a dropped. An error, also of a token that was removed, is the last of the loop.
func (q *Queues) Events(ctx context.Context, queues ...string) iter.Seq2[QueueEvent, error] {
	return func(yield func(QueueEvent, error) bool) {
		opened := false
		for attempt := 1; ; attempt++ {
			began := time.Now()
			more, err := q.stream(ctx, queues, func(e QueueEvent) bool { return yield(e, nil) })
			if err == nil && time.Since(began) > q.cfg.BackoffMax {
				attempt = 1 // it lasted
			}
			failed := new(Error)
			errors.As(err, &failed)
			switch {
			case !more || ctx.Err() != nil:
				return
			case err == nil:
				opened = true
				if !yield(dropped, nil) {
					return
				}
			case !failed.temporary() || !opened && attempt >= q.cfg.Attempts:
				yield(QueueEvent{}, err)
				return
			}
			if !sleep(ctx, max(backoff(q.cfg.BackoffBase, q.cfg.BackoffMax, attempt), failed.RetryAfter)) {
				return
			}
		}
	}
}

// stream opens a stream and tells its events until it ends, or tell wants no more. Once it was open, its end is
// no error.
func (q *Queues) stream(ctx context.Context, queues []string, tell func(QueueEvent) bool) (more bool, err error) {
	if err := checkQueue(queues...); err != nil {
		return true, err
	}
	r := jobRequest{method: http.MethodGet, path: "_events"}
	if len(queues) > 0 {
		r.query = url.Values{"queues": {strings.Join(queues, ",")}}
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(q.cfg.Timeout, func() { cancel(context.DeadlineExceeded) })
	defer silence.Stop()
	response, err := q.send(limited, r)
	if err != nil {
		return true, err
	}
	defer func() { _ = response.Body.Close() }()
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return true, errForeign
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEventLine)
	for silence.Reset(maxSilence); lines.Scan(); silence.Reset(maxSilence) {
		silence.Stop() // the time of tell is not the service's
		data, is := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !is { // the word, which data has, or a comment
			continue
		}
		var said struct {
			QueueEvent
			eventTimes
		}
		if json.Unmarshal(data, &said) != nil {
			return true, nil // it broke here
		}
		said.fill(&said.TraceEvent)
		said.Data = bytes.Clone(data)
		if !tell(said.QueueEvent) {
			return false, nil
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return true, errForeign
	}
	return true, nil
}
