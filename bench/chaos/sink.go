package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
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
// batch with a poisoned entry is refused for good.
type sink struct {
	addr   string
	server *http.Server
	ended  chan struct{}

	mu    sync.Mutex
	mode  sinkMode
	posts []*check.Post
}

func newSink() (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{addr: l.Addr().String(), ended: make(chan struct{})}
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
	posts := make([]check.Post, len(s.posts))
	for i, p := range s.posts {
		posts[i] = *p
	}
	return posts
}

func (s *sink) set(m sinkMode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = m
}

func (s *sink) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
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
	s.posts = append(s.posts, p)
	s.mu.Unlock()

	sleep(req.Context(), wait)
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
	return check.Line{Seq: l.Seq, TS: l.TS, Data: check.ParsePayload(l.Data)}
}
