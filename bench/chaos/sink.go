package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
)

// sinkMode is how the sink treats what it is given.
type sinkMode int

const (
	sinkTakes     sinkMode = iota
	sinkFails              // 500
	sinkThrottles          // 429, come back in a second
	sinkIsSlow             // 50 to 250 ms
	sinkHangs              // longer than the sink timeout; it has the entries all the same
	sinkHangsUp            // closes the connection, having kept the entries
)

// sink is the webhook that batches go to: http://addr/<worker>. It fences
// nothing off and remembers everything; the checks read what it received. A
// batch with a poisoned entry is rejected for good.
type sink struct {
	addr   string
	server *http.Server
	ended  chan struct{}

	mu    sync.Mutex
	mode  sinkMode
	posts []*check.Post
	sides map[string][]*check.Post // those of namespaces that are no worker's, by name
}

func newSink() (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{addr: l.Addr().String(), ended: make(chan struct{}), sides: map[string][]*check.Post{}}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.ended)
		_ = s.server.Serve(l) // ErrServerClosed
	}()
	return s, nil
}

// close ends it and returns what it saw.
func (s *sink) close() []check.Post {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	return values(s.posts)
}

func values(posts []*check.Post) (all []check.Post) {
	for _, p := range posts {
		all = append(all, *p)
	}
	return all
}

func (s *sink) set(m sinkMode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = m
}

func (s *sink) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if strings.HasPrefix(req.URL.Query().Get("query"), "SELECT") { // which settings ClickHouse knows
		_, _ = io.WriteString(w, "max_insert_block_size\n")
		return
	}
	stream, err := io.Reader(req.Body), error(nil)
	if req.Header.Get("Content-Encoding") == "gzip" {
		stream, err = gzip.NewReader(req.Body)
	}
	var body []byte
	if err == nil {
		body, err = io.ReadAll(stream)
	}
	if err != nil {
		return // it did not arrive
	}
	p := &check.Post{Worker: req.URL.Path[1:], Batch: req.Header.Get("Idempotency-Key"), Partition: req.Header.Get("X-Partition")}
	p.Attempt, _ = strconv.Atoi(req.Header.Get("X-Attempt"))
	poisoned := false
	for raw := range bytes.Lines(body) {
		line := parseLine(raw)
		poisoned = poisoned || line.Data.Poison
		p.Lines = append(p.Lines, line)
	}

	s.mu.Lock()
	mode := s.mode
	p.At = time.Now()
	var wait time.Duration
	switch {
	case mode == sinkFails:
		p.Status = http.StatusInternalServerError
	case mode == sinkThrottles:
		p.Status = http.StatusTooManyRequests
	case poisoned:
		p.Status = http.StatusUnprocessableEntity
	case mode == sinkHangsUp:
		p.Kept = true
	default:
		p.Status, p.Kept = http.StatusOK, true
		if mode == sinkIsSlow {
			wait = time.Duration(50+len(s.posts)%5*50) * time.Millisecond
		} else if mode == sinkHangs {
			wait = sinkTimeout + 500*time.Millisecond
		}
	}
	if p.Worker = cmp.Or(p.Worker, bulkNamespace); slices.Contains(sideNamespaces, p.Worker) {
		s.sides[p.Worker] = append(s.sides[p.Worker], p)
	} else {
		s.posts = append(s.posts, p)
	}
	s.mu.Unlock()

	rig.Sleep(req.Context(), wait)
	s.mu.Lock()
	p.Answered = time.Now()
	s.mu.Unlock()
	switch p.Status {
	case 0:
		panic(http.ErrAbortHandler) // how net/http is told to close
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
}

// parseLine reads a line of the webhook. One that is not of that form has
// nothing intact in it.
func parseLine(raw []byte) check.Line {
	var l struct {
		Seq  int64
		TS   int64
		Data json.RawMessage
	}
	if json.Unmarshal(raw, &l) != nil {
		return check.Line{}
	}
	if text := ""; json.Unmarshal(l.Data, &text) == nil { // as ClickHouse has it
		l.Data = json.RawMessage(text)
	}
	return check.Line{Seq: l.Seq, TS: l.TS, Data: check.ParsePayload(l.Data)}
}
