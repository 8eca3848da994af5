package clienttest

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Step is what the server does with one request. The script's last step is for all
// requests behind it.
type Step struct {
	Status     int           // answered; 0: 200, by the rules of the contract
	RetryAfter int           // seconds, said with it
	Code       string        // of the error body
	Delay      time.Duration // before the answer
	Hang       bool          // never answer; until the client goes away
	Cut        bool          // close the connection without an answer
	Lose       bool          // store what came, then cut
	Verdict    string        // "drop" of every second entry; of every second partition "retry", or "unknown": a retry of what may be stored
	All        bool          // of every one
	Body       string        // 200, with this body
}

// An Entry is one that the server was sent.
type Entry struct {
	Partition, ID string
	Data          string
	TS            int64 // ms of the client's clock; 0: none
	SentAt        int64 // X-Sent-At of the attempt that brought it
}

// Server is a service by the wire contract, as far as clients see it, that follows a
// script. It remembers idempotency keys as the service does.
type Server struct {
	URL string

	web    *httptest.Server // nil: without a network
	gone   chan struct{}
	mu     sync.Mutex
	script []Step
	stored []Entry           // in the order in which they were stored
	bodies map[string]string // by key: the body of the first attempt
	known  map[string]bool   // by key and partition: stored
	busy   map[string]int    // by partition: requests that carry it now
	told   map[string]int64  // discards, of requests that were answered 2xx
	calls  int
	faults []string
	times  []time.Time
}

func newServer(script []Step) *Server {
	return &Server{
		script: script, gone: make(chan struct{}),
		bodies: map[string]string{}, known: map[string]bool{}, busy: map[string]int{}, told: map[string]int64{},
	}
}

// NewServer starts a server that follows the script and stops with the test, which
// fails if a request broke the contract.
func NewServer(t testing.TB, script ...Step) *Server {
	t.Helper()
	s := newServer(script)
	t.Cleanup(func() {
		for _, fault := range s.faults {
			t.Error(fault)
		}
	})
	s.web = serveHTTP(t, s.gone, http.HandlerFunc(s.serve))
	s.URL = s.web.URL
	return s
}

// serveHTTP serves until the test ends; gone closes first.
func serveHTTP(t testing.TB, gone chan struct{}, handler http.Handler) *httptest.Server {
	web := httptest.NewServer(handler)
	t.Cleanup(func() {
		close(gone)
		web.CloseClientConnections()
		web.Close()
	})
	return web
}

// Restart ends the server's connections, and takes others after a while.
func (s *Server) Restart(t testing.TB, after time.Duration) {
	_ = s.web.Listener.Close()
	s.web.CloseClientConnections()
	again, ended := &http.Server{Handler: s.web.Config.Handler, ReadHeaderTimeout: time.Minute}, make(chan struct{})
	timer := time.AfterFunc(after, func() {
		defer close(ended)
		listener, err := net.Listen("tcp", s.web.Listener.Addr().String())
		if err != nil {
			s.fault("listen again: %v", err)
			return
		}
		_ = again.Serve(listener)
	})
	t.Cleanup(func() {
		_ = again.Close()
		if !timer.Stop() {
			<-ended
		}
	})
}

// Script sets what happens from now on.
func (s *Server) Script(script ...Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

func (s *Server) next() Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.times = append(s.times, time.Now())
	if len(s.script) == 0 {
		return Step{}
	}
	step := s.script[0]
	if len(s.script) > 1 {
		s.script = s.script[1:]
	}
	return step
}

// Calls is how many requests came.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Keys is how many idempotency keys they had.
func (s *Server) Keys() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies)
}

// Times is when they came.
func (s *Server) Times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.times...)
}

// Stored is what the server has, in the order in which it came.
func (s *Server) Stored() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Entry(nil), s.stored...)
}

// Discards is what clients said in X-Client-Discards.
func (s *Server) Discards() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := map[string]int64{}
	for why, n := range s.told {
		told[why] = n
	}
	return told
}

func (s *Server) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) < 20 {
		s.faults = append(s.faults, fmt.Sprintf("the server saw: "+format, args...))
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "" { // a page: cors_origins: "*"
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
	}
	if r.Method == http.MethodOptions {
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Encoding, Content-Type, Idempotency-Key, X-Client-Discards, X-Event-Ts, X-Sent-At")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	step := s.next()
	entries, key := s.read(r)
	if entries == nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	release := s.enter(entries)
	defer release()
	if step.Delay > 0 {
		timer := time.NewTimer(step.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.gone:
		}
	}
	switch {
	case step.Hang:
		release() // a client that gave up may try again while this one hangs
		select {
		case <-r.Context().Done():
		case <-s.gone:
		}
		panic(http.ErrAbortHandler)
	case step.Lose:
		s.store(entries, key, Step{})
		release()
		panic(http.ErrAbortHandler)
	case step.Cut:
		release()
		panic(http.ErrAbortHandler)
	case step.Body != "":
		_, _ = io.WriteString(w, step.Body)
	case step.Status != 0:
		if step.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(step.RetryAfter))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(step.Status)
		if step.Status >= 400 {
			_, _ = fmt.Fprintf(w, `{"error":%q,"message":"as the script says"}`+"\n", step.Code)
		}
	default:
		answer := s.store(entries, key, step)
		s.hear(r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}
}

// enter notes which partitions a request carries: two at once may be stored in any order.
func (s *Server) enter(entries []Entry) (release func()) {
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Partition] = true
	}
	s.mu.Lock()
	for name := range names {
		if s.busy[name]++; s.busy[name] > 1 {
			s.faults = append(s.faults, "the server saw: two requests at once that carry partition "+name)
		}
	}
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for name := range names {
			s.busy[name]--
		}
	})
}

// read decodes a request; nil when it breaks the contract.
func (s *Server) read(r *http.Request) (entries []Entry, key string) {
	bad := func(format string, args ...any) ([]Entry, string) {
		if r.Context().Err() == nil {
			s.fault(format, args...)
		}
		return nil, ""
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzip, err := gzip.NewReader(body)
		if err != nil {
			return bad("gzip: %v", err)
		}
		body = unzip
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return bad("a body that ends early: %v", err)
	}
	key = r.Header.Get("Idempotency-Key")
	if key == "" || len(key) > 128 {
		return bad("the key %q", key)
	}
	s.mu.Lock()
	first, repeated := s.bodies[key]
	if !repeated {
		s.bodies[key] = string(text)
	}
	s.mu.Unlock()
	if repeated && first != string(text) {
		return bad("another body under the key %q", key)
	}
	sentAt, err := strconv.ParseInt(r.Header.Get("X-Sent-At"), 10, 64)
	if err != nil {
		return bad("X-Sent-At %q", r.Header.Get("X-Sent-At"))
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	if kind := r.Header.Get("Content-Type"); kind == "application/json" && depthOf(text) > maxDepth {
		return bad("JSON of %d levels", depthOf(text))
	}
	switch kind := r.Header.Get("Content-Type"); {
	case r.Method != http.MethodPost:
		return bad("%s", r.Method)
	case len(path) == 1 && kind == "application/json":
		entries, err = items(text)
	case len(path) == 1 && strings.HasSuffix(kind, "ndjson"):
		for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
			more, wrong := items([]byte("[" + line + "]"))
			entries, err = append(entries, more...), wrong
		}
	case len(path) == 2 && kind == "application/octet-stream":
		ts, _ := strconv.ParseInt(r.Header.Get("X-Event-Ts"), 10, 64)
		entries = []Entry{{Partition: path[1], Data: string(text), TS: ts}}
	default:
		return bad("%s with type %q", r.URL.Path, kind)
	}
	if err != nil || len(entries) == 0 || len(entries) > 1000 {
		return bad("a body of %d entries: %v", len(entries), err)
	}
	for i := range entries {
		entries[i].SentAt = sentAt
	}
	return entries, key
}

// maxDepth is how deep the service lets a JSON body nest.
const maxDepth = 512

// depthOf is how deep JSON nests.
func depthOf(text []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

func items(text []byte) (entries []Entry, err error) {
	var list []struct {
		Partition string          `json:"partition"`
		ID        string          `json:"id"`
		TS        int64           `json:"ts"`
		Data      json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	for _, e := range list {
		entries = append(entries, Entry{
			Partition: e.Partition,
			ID:        e.ID,
			Data:      string(e.Data),
			TS:        e.TS,
		})
	}
	return entries, nil
}

// store keeps the entries, by the step's verdicts, and returns the answer. A partition whose
// entries it has stored under the key before is stored again by no verdict.
func (s *Server) store(entries []Entry, key string, step Step) (answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := map[string]int{} // of the request's partitions, in their order
	had := map[string]bool{}
	for _, e := range entries {
		if _, ok := rows[e.Partition]; !ok {
			rows[e.Partition], had[e.Partition] = len(rows), s.known[key+" "+e.Partition]
		}
	}
	var results []string
	for i, e := range entries {
		row, verdict := rows[e.Partition], ""
		switch {
		case had[e.Partition]:
			continue
		case step.Verdict == "drop" && (step.All || i%2 == 1):
			results = append(results, fmt.Sprintf(`{"i":%d,"result":"drop","reason":"stale"}`, i))
			continue
		case step.Verdict == "retry" && (step.All || row%2 == 1):
			verdict = "store_unavailable"
		case step.Verdict == "unknown" && (step.All || row%2 == 1):
			verdict = "unknown"
		}
		if verdict != "" {
			results = append(results, fmt.Sprintf(`{"i":%d,"result":"retry","reason":%q}`, i, verdict))
		}
		if verdict == "" || verdict == "unknown" && row%4 == 1 { // of those that may be stored every second one is
			s.stored = append(s.stored, e)
			s.known[key+" "+e.Partition] = true
		}
	}
	return fmt.Sprintf(`{"accepted":%d,"evicted":0,"rejected":%d,"results":[%s]}`+"\n",
		len(entries)-len(results), len(results), strings.Join(results, ","))
}

func (s *Server) hear(r *http.Request) {
	header := r.Header.Get("X-Client-Discards")
	if header == "" {
		return
	}
	for term := range strings.SplitSeq(header, ",") {
		why, digits, _ := strings.Cut(strings.TrimSpace(term), "=")
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || why == "" {
			s.fault("X-Client-Discards %q", header)
			return
		}
		s.mu.Lock()
		s.told[why] += n
		s.mu.Unlock()
	}
}
