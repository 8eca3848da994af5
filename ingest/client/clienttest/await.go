package clienttest

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
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
