package clienttest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Queues is a Spillway with namespaces of queues in memory, as the transport of a spillway.Queues.
// Leases lapse, delayed jobs come due and jobs die by the clock of the process, so it also
// serves in a bubble of testing/synctest. It knows no TTL and no rates, and asks no publisher
// of a prepared job. Schedules run only when they are triggered.
type Queues struct {
	// Fail answers a request instead of Queues, before it runs. nil, or a nil answer: none.
	Fail func(r *http.Request) (*http.Response, error)
	// Lose drops the answer of a request that has run. nil: none.
	Lose func(r *http.Request) error

	mu        sync.Mutex
	seq       int
	schedules []*schedule // by name
	decided   map[string]string
	jobs      []*queueJob // in the order in which they became ready, or will
	keys      map[string][]byte
	requests  int
	changed   chan struct{} // closes at the next change
}

type queueJob struct {
	Queue     string            `json:"queue"`
	ID        string            `json:"id"`
	Attempt   int               `json:"attempt,omitempty"`
	Tries     int               `json:"tries"`
	Published int64             `json:"published_ms"`
	Attrs     map[string]string `json:"attributes,omitempty"`
	Data      []byte            `json:"data"`
	State     string            `json:"state,omitempty"`
	Reason    string            `json:"reason,omitempty"`
	Deadline  int64             `json:"deadline_ms,omitempty"` // of a claim
	Progress  *int              `json:"progress,omitempty"`    // with Note, that its attempt said last
	Note      string            `json:"note,omitempty"`

	path  string    // namespace and queue
	until time.Time // of a delayed or leased job
}

// NewQueues returns a service without jobs.
func NewQueues() *Queues {
	return &Queues{
		keys:    map[string][]byte{},
		decided: map[string]string{},
		changed: make(chan struct{}),
	}
}

// Requests is how many requests came.
func (s *Queues) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Serve serves it over HTTP until the test ends.
func (s *Queues) Serve(t testing.TB) (url string) {
	server := newJobServer(t)
	server.service = s
	return server.url
}

// RoundTrip serves a request.
func (s *Queues) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	s.mu.Lock()
	s.requests++
	s.mu.Unlock()
	if s.Fail != nil {
		if answer, err := s.Fail(r); answer != nil || err != nil {
			return answer, err
		}
	}
	answer, err := s.serve(r, body)
	if err == nil && s.Lose != nil {
		err = s.Lose(r)
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (s *Queues) serve(r *http.Request, body []byte) (*http.Response, error) {
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	if len(path) < 2 {
		return Answer(404, `{"error":"no_such_route","message":"m"}`), nil
	}
	space, queue, tail := path[0], path[1], strings.Join(path[2:], "/")
	if tail == "claim" {
		return s.claim(r, space, strings.Split(queue, ","))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick()
	name := space + "/" + queue
	switch route := r.Method + " " + strings.Split(tail, "/")[0]; route {
	case "POST ":
		return s.publish(r, name, queue, body), nil
	case "POST settle":
		return s.settle(name, body), nil
	case "GET ":
		n := map[string]int{}
		for _, j := range s.jobs {
			if j.path == name {
				n[j.State]++
			}
		}
		return Answer(200, fmt.Sprintf(`{"ready":%d,"delayed":%d,"leased":%d,"pending":%d,"dead":%d,"oldest_age_ms":0}`,
			n["ready"], n["delayed"], n["leased"], n["delayed"]+n["leased"], n["dead"])), nil
	case "GET schedules", "PUT schedules", "POST schedules", "DELETE schedules":
		return s.serveSchedules(r, name, queue, strings.TrimPrefix(strings.TrimPrefix(tail,
			"schedules"), "/"), body), nil
	case "POST jobs":
		return s.decide(name, strings.TrimPrefix(tail, "jobs/")), nil
	case "GET peek", "GET jobs", "DELETE jobs":
		for i, j := range s.jobs {
			if j.path != name || tail != "jobs/"+j.ID && (tail != "peek" || j.State != "ready") {
				continue
			}
			shown := *j
			if j.State == "dead" {
				shown.Attempt = 0 // the service does not know it of all
			}
			text, _ := json.Marshal(shown)
			if r.Method == "DELETE" && j.State == "prepared" {
				return Answer(409, `{"error":"prepared","message":"m"}`), nil
			}
			if r.Method == "DELETE" {
				s.jobs = slices.Delete(s.jobs, i, i+1)
				text = []byte(`{"state":"deleted"}`)
			}
			return Answer(200, string(text)), nil
		}
		return Answer(404, `{"error":"no_such_job","message":"m"}`), nil
	}
	return Answer(404, `{"error":"no_such_route","message":"m"}`), nil
}

// Answer makes the answer of a service.
func Answer(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: strconv.Itoa(status) + " " + http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

// change wakes those that wait; s.mu is held.
func (s *Queues) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// tick lets time pass; s.mu is held. next is when a state changes by itself.
func (s *Queues) tick() (next time.Time) {
	now := time.Now()
	for _, j := range slices.Clone(s.jobs) {
		switch {
		case j.State != "delayed" && j.State != "leased":
		case j.until.After(now):
			if next.IsZero() || j.until.Before(next) {
				next = j.until
			}
		case j.State == "leased" && j.Attempt >= j.Tries:
			j.State, j.Reason = "dead", "lapsed"
		default:
			s.ready(j)
		}
	}
	return next
}

// ready puts a job to the tail.
func (s *Queues) ready(j *queueJob) {
	j.State = "ready"
	s.jobs = append(slices.DeleteFunc(s.jobs, func(x *queueJob) bool { return x == j }), j)
}

func (s *Queues) publish(r *http.Request, name, queue string, body []byte) *http.Response {
	q := r.URL.Query()
	key := r.Header.Get("Idempotency-Key")
	if answer, ok := s.keys[name+" "+key]; ok && key != "" {
		return Answer(200, strings.Replace(string(answer), "{", `{"repeated":true,`, 1))
	}
	payloads := [][]byte{body}
	if r.Header.Get("Content-Type") == "application/x-ndjson" {
		payloads = bytes.Split(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"))
	}
	shards, _ := strconv.Atoi(q.Get("shards"))
	for len(payloads) < shards {
		payloads = append(payloads, body)
	}
	delay, _ := time.ParseDuration(cmp.Or(q.Get("delay"), "0s"))
	tries, _ := strconv.Atoi(cmp.Or(q.Get("tries"), "3"))
	id := q.Get("id")
	var ids []string
	for i, payload := range payloads {
		s.seq++
		j := &queueJob{
			Queue: queue, ID: fmt.Sprintf("01JD%022d",
				s.seq), Tries: tries, Published: time.Now().UnixMilli(), Data: payload,
			path: name, State: "ready",
		}
		if id != "" {
			j.ID += "-" + id
			for _, old := range s.jobs {
				if old.path == name && strings.HasSuffix(old.ID, "-"+id) {
					return Answer(200, fmt.Sprintf(`{"accepted":0,"exists":true,"ids":[%q]}`, old.ID))
				}
			}
		}
		if shards > 0 {
			j.Attrs = map[string]string{"shard_index": strconv.Itoa(i), "shard_total": strconv.Itoa(shards)}
		}
		if q.Get("prepare") == "1" {
			j.State, j.until = "prepared", time.Now().Add(delay)
		} else if delay > 0 {
			j.State, j.until = "delayed", time.Now().Add(delay)
		}
		s.jobs = append(s.jobs, j)
		ids = append(ids, j.ID)
	}
	text, _ := json.Marshal(map[string]any{"accepted": len(ids), "ids": ids})
	s.keys[name+" "+key] = text
	s.change()
	return Answer(200, string(text))
}

func (s *Queues) claim(r *http.Request, space string, queues []string) (*http.Response, error) {
	q := r.URL.Query()
	count, _ := strconv.Atoi(cmp.Or(q.Get("count"), "1"))
	ttr, _ := time.ParseDuration(cmp.Or(q.Get("ttr"), "1m"))
	wait, _ := time.ParseDuration(cmp.Or(q.Get("wait"), "0s"))
	end := time.Now().Add(wait)
	for {
		s.mu.Lock()
		next := s.tick()
		jobs := []*queueJob{}
		for _, queue := range queues {
			for _, j := range s.jobs {
				if len(jobs) < count && j.path == space+"/"+queue && j.State == "ready" {
					j.State, j.until = "leased", time.Now().Add(ttr)
					j.Attempt++
					j.Progress, j.Note = nil, ""
					taken := *j
					taken.State, taken.Deadline = "", j.until.UnixMilli()
					jobs = append(jobs, &taken)
				}
			}
		}
		changed := s.changed
		s.mu.Unlock()
		if len(jobs) > 0 || !time.Now().Before(end) {
			text, _ := json.Marshal(map[string]any{"jobs": jobs})
			return Answer(200, string(text)), nil
		}
		if next.IsZero() || next.After(end) {
			next = end
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-changed:
		case <-timer.C:
		case <-r.Context().Done():
			timer.Stop()
			return nil, r.Context().Err()
		}
		timer.Stop()
	}
}

func (s *Queues) settle(name string, body []byte) *http.Response {
	defer s.change()
	var results []string
	for line := range bytes.SplitSeq(bytes.TrimSuffix(body, []byte("\n")), []byte("\n")) {
		result := fmt.Sprintf(`{"i":%d,"state":%q}`, len(results), s.apply(name, line))
		results = append(results, strings.Replace(result, `"state":"bad_item"`, `"error":"bad_item"`, 1))
	}
	return Answer(200, `{"results":[`+strings.Join(results, ",")+`]}`)
}

// apply applies a line of a settle, and returns the state of its job.
func (s *Queues) apply(name string, text []byte) string {
	var line struct {
		ID, Do   string
		Attempt  int
		MS       int64
		Progress *int
		Note     string
		Deadline int64 `json:"deadline_ms"`
	}
	if err := json.Unmarshal(text, &line); err != nil || line.MS < 0 || line.MS > 30*24*3600*1000 {
		return "bad_item"
	}
	i := slices.IndexFunc(s.jobs, func(j *queueJob) bool { return j.path == name && j.ID == line.ID })
	if i < 0 {
		return "gone"
	}
	j := s.jobs[i]
	if line.Do == "ack" {
		s.jobs = slices.Delete(s.jobs, i, i+1)
		return "acked"
	}
	if j.State != "leased" || line.Attempt != 0 && line.Attempt != j.Attempt ||
		line.Deadline != 0 && line.Deadline != j.until.UnixMilli() {
		return "gone"
	}
	after := time.Duration(line.MS) * time.Millisecond
	switch {
	case line.Do == "bury", line.Do == "nack" && j.Attempt >= j.Tries:
		j.State, j.Reason = "dead", map[string]string{"bury": "buried", "nack": "nacked"}[line.Do]
	case line.Do == "touch", line.Do == "defer":
		j.until = time.Now().Add(after)
		if line.Progress != nil {
			j.Progress, j.Note = line.Progress, line.Note
		}
	case line.Do == "requeue":
		j.Attempt--
		j.State = "ready"
		s.jobs = append([]*queueJob{j}, slices.Delete(s.jobs, i, i+1)...)
	case after > 0:
		j.State, j.until = "delayed", time.Now().Add(after)
	default:
		s.ready(j)
	}
	return j.State
}

// decide commits a prepared job, or rolls it back. rest is its id and the verb.
func (s *Queues) decide(name, rest string) *http.Response {
	id, verb, _ := strings.Cut(rest, "/")
	result := map[string]string{"commit": "committed", "rollback": "rolled_back"}[verb]
	i := slices.IndexFunc(s.jobs, func(j *queueJob) bool { return j.path == name && j.ID == id })
	switch before := s.decided[id]; {
	case result == "":
		return Answer(404, `{"error":"no_such_route","message":"m"}`)
	case before != "" && before != result:
		return Answer(409, `{"error":"already_decided","message":"m"}`)
	case before == result:
		return Answer(200, fmt.Sprintf(`{"result":%q}`, result))
	case i < 0:
		return Answer(404, `{"error":"no_such_job","message":"m"}`)
	case s.jobs[i].State != "prepared":
		return Answer(409, `{"error":"not_prepared","message":"m"}`)
	case verb == "rollback":
		s.jobs = slices.Delete(s.jobs, i, i+1)
	default:
		s.jobs[i].State = "delayed" // and ready by the next tick, where its time has come
	}
	s.decided[id] = result
	s.change()
	return Answer(200, fmt.Sprintf(`{"result":%q}`, result))
}
