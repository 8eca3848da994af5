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
// of a prepared job. What is unique stays so, and of acked jobs it keeps those with a result. Schedules
// run only when they are triggered.
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
	uniques   map[string]string // ids, by queue and unique key
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
	Deadline  int64             `json:"deadline_ms,omitempty"` // of a claim, with TTR
	TTR       int64             `json:"ttr_ms,omitempty"`
	Progress  *int              `json:"progress,omitempty"` // with Note, that its attempt said last
	Note      string            `json:"note,omitempty"`
	Acked     int64             `json:"acked_ms,omitempty"`
	Result    json.RawMessage   `json:"result,omitempty"`

	path  string    // namespace and queue
	until time.Time // of a delayed or leased job
}

// NewQueues returns a service without jobs.
func NewQueues() *Queues {
	return &Queues{
		keys:    map[string][]byte{},
		uniques: map[string]string{},
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
	if id, is := strings.CutPrefix(tail, "jobs/"); is && r.Method == http.MethodGet {
		return s.await(r, space+"/"+queue, id)
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
	case "GET peek", "DELETE jobs":
		for i, j := range s.jobs {
			if j.path != name || tail != "jobs/"+j.ID && (tail != "peek" || j.State != "ready") {
				continue
			}
			text, _ := json.Marshal(j)
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

// find is where a job is among all, or -1; s.mu is held.
func (s *Queues) find(name, id string) int {
	return slices.IndexFunc(s.jobs, func(j *queueJob) bool { return j.path == name && j.ID == id })
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
	tries, _ := strconv.Atoi(cmp.Or(q.Get("tries"), "25"))
	id, unique := q.Get("id"), ""
	if q.Get("unique") != "" {
		unique = name + " " + cmp.Or(q.Get("unique_key"), id)
		if i := s.find(name, s.uniques[unique]); i >= 0 {
			return s.double(s.jobs[i], q.Get("on_conflict"), body, delay)
		}
	}
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
				if old.path == name && old.State != "acked" && strings.HasSuffix(old.ID, "-"+id) {
					return s.double(old, "", nil, 0)
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
	if unique != "" {
		s.uniques[unique] = ids[0]
	}
	text, _ := json.Marshal(map[string]any{"accepted": len(ids), "ids": ids})
	s.keys[name+" "+key] = text
	s.change()
	return Answer(200, string(text))
}

// double answers a publish that meets a job, and changes that as the publish says.
func (s *Queues) double(j *queueJob, conflict string, payload []byte, delay time.Duration) *http.Response {
	changed := (conflict == "replace" || conflict == "extend") && j.State == "delayed" && j.Attempt == 0
	if changed {
		j.until = time.Now().Add(delay)
	}
	if changed && conflict == "replace" {
		j.Data = payload
	}
	s.change()
	return Answer(200, strings.Replace(fmt.Sprintf(`{"accepted":0,"exists":true,"changed":%t,"ids":[%q]}`, changed, j.ID), `"changed":false,`, "", 1))
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
					taken.State, taken.Deadline, taken.TTR = "", j.until.UnixMilli(), ttr.Milliseconds()
					jobs = append(jobs, &taken)
				}
			}
		}
		changed := s.changed
		if len(jobs) > 0 {
			s.change()
		}
		s.mu.Unlock()
		if len(jobs) > 0 || !time.Now().Before(end) {
			text, _ := json.Marshal(map[string]any{"jobs": jobs})
			return Answer(200, string(text)), nil
		}
		if err := pause(r.Context(), changed, next, end); err != nil {
			return nil, err
		}
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
		Result   json.RawMessage
	}
	if err := json.Unmarshal(text, &line); err != nil || line.MS < 0 || line.MS > 30*24*3600*1000 || len(line.Result) > 4096 {
		return "bad_item"
	}
	i := s.find(name, line.ID)
	if i < 0 || s.jobs[i].State == "acked" {
		return "gone"
	}
	j := s.jobs[i]
	if line.Do == "ack" {
		j.State, j.Result, j.Acked = "acked", line.Result, time.Now().UnixMilli()
		if line.Result == nil {
			s.jobs = slices.Delete(s.jobs, i, i+1)
		}
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
	i := s.find(name, id)
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
