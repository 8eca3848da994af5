package clienttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// schedule is a schedule of Queues, which keeps it and knows no times: what runs is triggered.
type schedule struct {
	Queue string          `json:"queue"`
	Name  string          `json:"name"`
	State string          `json:"state"`
	Rev   int             `json:"rev"`
	Spec  json.RawMessage `json:"spec"`

	path string // namespace and queue
}

// serveSchedules serves the routes of schedules; s.mu is held. rest is the path behind schedules/.
func (s *Queues) serveSchedules(r *http.Request, path, queue, rest string,
	body []byte) *http.Response {
	name, verb, _ := strings.Cut(rest, "/")
	at := slices.IndexFunc(s.schedules, func(x *schedule) bool { return x.path == path && x.Name == name })
	switch {
	case r.Method == "GET" && name == "":
		list := []*schedule{}
		for _, x := range s.schedules {
			if x.path == path {
				list = append(list, x)
			}
		}
		text, _ := json.Marshal(map[string]any{"schedules": list})
		return Answer(200, string(text))
	case r.Method == "PUT" && at < 0:
		s.schedules = append(s.schedules, &schedule{queue, name, "active", 1, body, path})
		slices.SortFunc(s.schedules, func(a, b *schedule) int { return strings.Compare(a.Name, b.Name) })
		return Answer(201, `{"result":"created","rev":1,"next":[]}`)
	case at < 0:
		return Answer(404, `{"error":"no_such_schedule","message":"m"}`)
	}
	x := s.schedules[at]
	switch {
	case r.Method == "PUT":
		if match := r.Header.Get("If-Match"); match != "" && match != fmt.Sprint(x.Rev) {
			return Answer(412, `{"error":"revision_mismatch","message":"m"}`)
		}
		x.Spec, x.State = body, "active"
		x.Rev++
		return Answer(200, fmt.Sprintf(`{"result":"replaced","rev":%d,"next":[]}`, x.Rev))
	case r.Method == "DELETE":
		s.schedules = slices.Delete(s.schedules, at, at+1)
		return Answer(200, `{"result":"deleted"}`)
	case verb == "pause", verb == "resume":
		x.State = map[string]string{"pause": "paused", "resume": "active"}[verb]
		return Answer(200, fmt.Sprintf(`{"state":%q,"changed":true,"rev":%d}`, x.State, x.Rev))
	case verb == "trigger":
		var spec struct {
			Data   json.RawMessage
			Base64 []byte            `json:"data_base64"`
			Attrs  map[string]string `json:"attributes"`
		}
		_ = json.Unmarshal(x.Spec, &spec)
		answer := s.publish(r, path, queue, append(spec.Base64, spec.Data...))
		job := s.jobs[len(s.jobs)-1]
		job.Attrs = map[string]string{"schedule": name,
			"tick": time.Now().UTC().Format(time.RFC3339), "cause": "triggered"}
		for key, value := range spec.Attrs {
			job.Attrs[key] = value
		}
		return answer
	}
	text, _ := json.Marshal(x)
	return Answer(200, string(text))
}
