package beanstalk

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

// A server is as much of a beanstalkd as the suite needs. Where you can, start the
// real one.
type server struct {
	listener net.Listener

	mu     sync.Mutex
	answer string        // to each job
	gate   chan struct{} // closed: jobs are answered
	jobs   []byte        // the bodies that were inserted, a line each
}

func startServer(t testing.TB) *server {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{listener: listener, answer: "INSERTED 1", gate: make(chan struct{})}
	close(s.gate)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		var size int
		if _, err := fmt.Fscanf(in, "put 0 0 60 %d\r\n", &size); err != nil {
			return
		}
		body := make([]byte, size+2)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		s.mu.Lock()
		gate := s.gate
		s.mu.Unlock()
		<-gate
		s.mu.Lock()
		answer := s.answer
		if answer == "INSERTED 1" {
			s.jobs = append(append(s.jobs, body[:size]...), '\n')
		}
		s.mu.Unlock()
		if answer == "" {
			return // hangs up
		}
		fmt.Fprintf(conn, "%s\r\n", answer)
	}
}

func (s *server) received() ([]sinktest.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sinktest.ParseLines(s.jobs)
}

// stall makes the server take jobs and not answer, until release.
func (s *server) stall() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return func() { close(gate) }
}

// answers changes what the server says to each job.
func (s *server) answers(text string) func() (stop func()) {
	set := func(text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answer = text
	}
	return func() func() {
		set(text)
		return func() { set("INSERTED 1") }
	}
}
