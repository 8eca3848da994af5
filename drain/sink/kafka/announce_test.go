package kafka

import (
	"context"
	"errors"
	"net"
	"net/url"
	"testing"
	"time"
)

// A peer that accepts connections and never says a word must not hold up a Stop.
func TestOpenEndsWithItsContextWhereNobodyAnswers(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s, err := New(&url.URL{Scheme: "kafka", Host: listener.Addr().String(), Path: "/events"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := s.Open(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 5*time.Second {
		t.Errorf("got %v after %v, want an end after 500ms", err, time.Since(start))
	}
	start = time.Now()
	if err := s.Close(t.Context()); err != nil || time.Since(start) > 5*time.Second {
		t.Errorf("close: %v after %v", err, time.Since(start))
	}
}

// A broker that announces 90 MB and sends nothing must not make the sink reserve them.
func TestALongAnswerIsRejectedWhenItIsAnnounced(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 4096)) // a request
			_, _ = conn.Write([]byte{0x05, 0x5d, 0x4a, 0x80})
		}
	}()
	s, err := New(&url.URL{Scheme: "kafka", Host: listener.Addr().String(), Path: "/events"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.Open(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an error at once", err)
	}
}
