package clienttest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// await shows a job, once it has ended where the request says so.
func (s *Queues) await(r *http.Request, name, id string) (*http.Response, error) {
	wait, _ := time.ParseDuration(cmp.Or(r.URL.Query().Get("wait"), "0s"))
	var shown queueJob
	for end := time.Now().Add(wait); ; {
		s.mu.Lock()
		next, changed := s.tick(), s.changed
		switch i := s.find(name, id); {
		case i >= 0:
			shown = *s.jobs[i]
		case shown.ID == "":
			s.mu.Unlock()
			return Answer(404, `{"error":"no_such_job","message":"m"}`), nil
		default:
			shown.State = "gone"
		}
		s.mu.Unlock()
		if !time.Now().Before(end) || shown.State == "gone" || shown.State == "acked" || shown.State == "dead" {
			break
		}
		if err := pause(r.Context(), changed, next, end); err != nil {
			return nil, err
		}
	}
	if shown.State == "dead" {
		shown.Attempt = 0 // the service does not know it of all
	}
	text, _ := json.Marshal(shown)
	return Answer(200, string(text)), nil
}

// pause waits for a change, for next where that is a time, and until end at the longest.
func pause(ctx context.Context, changed chan struct{}, next, end time.Time) error {
	if next.IsZero() || next.After(end) {
		next = end
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// A queueEvent is what streams tell of a job.
type queueEvent struct{ path, text string }

// tell tells what happened to a job; s.mu is held, and what changes then wakes the streams.
func (s *Queues) tell(j *queueJob, event string) {
	text, _ := json.Marshal(map[string]any{"event": event, "queue": j.Queue, "id": j.ID, "attempt": j.Attempt, "at_ms": time.Now().UnixMilli(), "result": j.Result})
	s.events = append(s.events, queueEvent{j.path, fmt.Sprintf("event: %s\ndata: %s\n\n", event, text)})
}

// listen streams events from now on.
func (s *Queues) listen(r *http.Request, space string) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &feed{s: s, ctx: r.Context(), at: len(s.events), rest: []byte(": \n\nevent: ready\ndata: {\"event\":\"ready\"}\n\n")}
	if queues := r.URL.Query().Get("queues"); queues != "" {
		for queue := range strings.SplitSeq(queues, ",") {
			f.of = append(f.of, space+"/"+queue)
		}
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: f}
}

// A feed is the body of a stream of events.
type feed struct {
	s    *Queues
	ctx  context.Context // of the request
	of   []string        // queues; none: all
	at   int             // the next event
	rest []byte          // of the last
}

func (f *feed) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		f.s.mu.Lock()
		for ; f.at < len(f.s.events) && len(f.rest) == 0; f.at++ {
			if e := f.s.events[f.at]; f.of == nil || slices.Contains(f.of, e.path) {
				f.rest = []byte(e.text)
			}
		}
		changed := f.s.changed
		f.s.mu.Unlock()
		if len(f.rest) > 0 {
			break
		}
		select {
		case <-changed:
		case <-f.ctx.Done():
			return 0, f.ctx.Err()
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *feed) Close() error { return nil }
