package postgres

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// A server that announces 900 MB and sends nothing must not make the sink reserve them.
func TestALongAnswerIsRefusedWhenItIsAnnounced(t *testing.T) {
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
			_, _ = conn.Read(make([]byte, 4096)) // its startup message
			_, _ = conn.Write([]byte{'E', 0x35, 0xa4, 0xe9, 0x00})
		}
	}()
	s := newSink(t, "postgres://u@"+listener.Addr().String()+"/db?table=t&sslmode=disable")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := s.Open(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an error at once", err)
	}
}
