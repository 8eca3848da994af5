package clienttest

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Start starts a program that reads commands and writes answers by PROTOCOL.md, a line each. Each
// Write to in is one line.
type Start func(t testing.TB) (in io.Writer, out io.Reader)

// RunQueues tries a library's queues and its worker with every case, in parallel, but for those that
// it leaves out.
func RunQueues(t *testing.T, start Start, except ...string) {
	t.Helper()
	each(t, jobCases, except, func(t *testing.T, try func(*jobBench)) {
		in, out := start(t)
		try(&jobBench{T: t, server: newJobServer(t), driver: lines{in: in, out: bufio.NewReader(out)}})
	})
}

// jobBench is what a case of jobs works on.
type jobBench struct {
	*testing.T
	server *jobServer
	driver lines
}

// quickJobs are options of queues under which a case takes little time.
func quickJobs() map[string]any {
	return map[string]any{"namespace": "mail", "timeout": 10_000, "backoff_base": 1, "backoff_max": 20}
}

// quickWork are those of a worker.
func quickWork() map[string]any {
	return map[string]any{"ttr": 60_000, "wait": 5_000, "backoff_base": 1, "backoff_max": 5, "stop_timeout": 20_000}
}

// with is options and one more.
func with(o map[string]any, name string, value any) map[string]any {
	o[name] = value
	return o
}

// jobCommand is a line of the suite.
type jobCommand struct {
	Op       string         `json:"op"`
	URL      string         `json:"url,omitempty"`
	Options  map[string]any `json:"options,omitempty"`
	Queue    string         `json:"queue,omitempty"`
	Queues   []string       `json:"queues,omitempty"`
	Payloads []string       `json:"payloads,omitempty"` // base64
	ID       string         `json:"id,omitempty"`
	Attempt  int            `json:"attempt,omitempty"`
	Do       string         `json:"do,omitempty"`
	MS       int64          `json:"ms,omitempty"`
	Error    string         `json:"error,omitempty"`
	Progress int            `json:"progress,omitempty"`
	Note     string         `json:"note,omitempty"`
	Result   any            `json:"result,omitempty"`
}

// jobReply is a line of the program.
type jobReply struct {
	Error            string
	IDs              []string
	Repeated, Exists bool
	Changed          bool
	Jobs             []saidJob

	Ready, Delayed, Leased, Dead int

	Handled               []handled
	Running, Most, Errors int
	RequestErrors         int `json:"request_errors"`
}

type saidJob struct {
	Queue, ID, State string
	Attempt, Tries   int
	Payload          string // base64
	Progress         int
	Note             string
	Result           any
}

// payload is the job's own.
func (j saidJob) payload() string {
	text, _ := base64.StdEncoding.DecodeString(j.Payload)
	return string(text)
}

// handled is a handler that has ended.
type handled struct {
	Queue, ID, Cause string
	Attempt          int
}

func (b *jobBench) ask(c jobCommand) (r jobReply) {
	b.Helper()
	if err := b.driver.ask(c, &r); err != nil {
		b.Errorf("%s: %v", c.Op, err)
	}
	return r
}

// open opens the queues.
func (b *jobBench) open(o map[string]any) {
	b.Helper()
	b.want("", jobCommand{Op: "queues", URL: b.server.url, Options: o})
}

// want asks, and checks the error.
func (b *jobBench) want(failed string, c jobCommand) jobReply {
	b.Helper()
	r := b.ask(c)
	if r.Error != failed {
		b.Errorf("%s %s: got the error %q, want %q", c.Op, c.Do, r.Error, failed)
	}
	return r
}

// publish publishes payloads with the library.
func (b *jobBench) publish(o map[string]any, payloads ...string) jobReply {
	b.Helper()
	return b.want("", publishCommand(o, payloads...))
}

func publishCommand(o map[string]any, payloads ...string) jobCommand {
	c := jobCommand{Op: "publish", Queue: "welcome", Options: o}
	for _, p := range payloads {
		c.Payloads = append(c.Payloads, base64.StdEncoding.EncodeToString([]byte(p)))
	}
	return c
}

// claim claims so many jobs of welcome with the library.
func (b *jobBench) claim(n int, o map[string]any) []saidJob {
	b.Helper()
	r := b.want("", jobCommand{Op: "claim", Queues: []string{"urgent", "welcome"}, Options: o})
	if len(r.Jobs) != n {
		b.Fatalf("claimed %d jobs, want %d", len(r.Jobs), n)
	}
	return r.Jobs
}

// settle settles a job with the library.
func (b *jobBench) settle(failed, do string, j saidJob, ms int64, text string) {
	b.Helper()
	b.want(failed, jobCommand{Op: "settle", Do: do, Queue: j.Queue, ID: j.ID, Attempt: j.Attempt, MS: ms, Error: text})
}

// work starts a worker whose handlers do what payloads say. A driver that has none is waited for no further.
func (b *jobBench) work(o map[string]any) {
	b.Helper()
	if r := b.want("", jobCommand{Op: "work", Queues: []string{"urgent", "welcome"}, Options: o}); r.Error != "" {
		b.FailNow()
	}
}

// stop stops the worker, and returns its account.
func (b *jobBench) stop(failed string) jobReply {
	b.Helper()
	b.want(failed, jobCommand{Op: "stop"})
	return b.worked()
}

// worked is the account of the worker.
func (b *jobBench) worked() jobReply { return b.ask(jobCommand{Op: "worked"}) }

// put stores a job of three tries without the library, and returns its id.
func (b *jobBench) put(queue, payload string) string {
	b.Helper()
	status, body := b.server.do(http.MethodPost, queue+"?tries=3", payload)
	var said jobReply
	if err := json.Unmarshal(body, &said); err != nil || status != http.StatusOK || len(said.IDs) != 1 {
		b.Fatalf("publish: %d %s", status, body)
	}
	return said.IDs[0]
}

// state asks the service, without the library, for a job of welcome; the zero value: it is gone.
func (b *jobBench) state(id string) (j saidJob) {
	b.Helper()
	if status, body := b.server.do(http.MethodGet, "welcome/jobs/"+id, ""); status == http.StatusOK {
		if err := json.Unmarshal(body, &j); err != nil {
			b.Errorf("get: %s", body)
		}
	}
	return j
}

func (b *jobBench) wantState(id, want string) {
	b.Helper()
	if j := b.state(id); j.State != want {
		b.Errorf("the job is %q, want %q", j.State, want)
	}
}

// until waits for something to become true.
func (b *jobBench) until(what string, true func() bool) {
	b.Helper()
	end := time.Now().Add(jobPatience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; !true(); <-tick.C {
		if time.Now().After(end) {
			b.Fatalf("%s: not within %v; %+v, requests %v", what, jobPatience, b.worked(), b.server.paths())
		}
	}
}

// jobPatience bounds whatever a case waits for.
const jobPatience = time.Minute

// jobServer is a Spillway with queues in memory that follows a script a route.
type jobServer struct {
	url     string
	service *Queues
	gone    chan struct{}

	mu       sync.Mutex
	scripts  map[string][]Step
	requests []jobRequest
	open     int
}

// jobRequest is a request as it came.
type jobRequest struct {
	route, path, body string
	query             map[string]string
	key, token        string
	at                time.Time
}

func newJobServer(t testing.TB) *jobServer {
	s := &jobServer{service: NewQueues(), gone: make(chan struct{}), scripts: map[string][]Step{}}
	s.url = serveHTTP(t, s.gone, http.HandlerFunc(s.serve)).URL
	return s
}

// script sets what becomes of the requests of a route from now on: publish, claim, settle or get.
func (s *jobServer) script(route string, steps ...Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts[route] = steps
}

// of are the requests of a route.
func (s *jobServer) of(route string) (list []jobRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.route == route {
			list = append(list, r)
		}
	}
	return list
}

func (s *jobServer) paths() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		list = append(list, r.path)
	}
	return list[max(0, len(list)-20):]
}

// idle reports whether no request is under way.
func (s *jobServer) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open == 0
}

// do asks the service itself.
func (s *jobServer) do(method, path, body string) (status int, answer []byte) {
	r, err := http.NewRequest(method, "http://service/v1/mail/"+path, strings.NewReader(body))
	if err != nil {
		return 0, []byte(err.Error())
	}
	return s.pass(r)
}

func (s *jobServer) pass(r *http.Request) (status int, answer []byte) {
	response, err := s.service.RoundTrip(r)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, answer
}

// enter notes a request, and returns what becomes of it.
func (s *jobServer) enter(r *http.Request, body []byte) (step Step) {
	q := jobRequest{
		path: strings.TrimPrefix(r.URL.Path, "/v1/mail/"), body: string(body), at: time.Now(), query: map[string]string{},
		key: r.Header.Get("Idempotency-Key"), token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
	}
	for name, values := range r.URL.Query() {
		q.query[name] = values[0]
	}
	switch _, tail, _ := strings.Cut(q.path, "/"); {
	case tail == "claim", tail == "settle":
		q.route = tail
	case r.Method == http.MethodPost:
		q.route = "publish"
	default:
		q.route = "get"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	s.requests = append(s.requests, q)
	steps := s.scripts[q.route]
	if len(steps) == 0 {
		return Step{}
	}
	if len(steps) > 1 {
		s.scripts[q.route] = steps[1:]
	}
	return steps[0]
}

func (s *jobServer) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	step := s.enter(r, body)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}()
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	if step.Delay > 0 {
		select {
		case <-time.After(step.Delay):
		case <-r.Context().Done():
		case <-s.gone:
		}
	}
	if step.Hang {
		select {
		case <-r.Context().Done():
		case <-s.gone:
		}
	}
	if step.Hang || step.Cut || r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	status, text := step.Status, []byte(step.Body)
	switch {
	case step.Body != "":
		status = max(status, http.StatusOK)
	case status != 0:
		w.Header().Set("Connection", "close") // as after a body that was not read
		text = fmt.Appendf(nil, `{"error":%q,"message":"as the script says"}`, step.Code)
	default:
		status, text = s.pass(r)
	}
	if status == 0 || step.Lose {
		panic(http.ErrAbortHandler)
	}
	if step.RetryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(step.RetryAfter))
	}
	w.WriteHeader(status)
	_, _ = w.Write(text) // #nosec G705 -- JSON, to a client of tests
}
