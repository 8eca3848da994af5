package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// peer is a server that answers each request with the next of its texts.
type peer struct {
	answers []string
	close   bool // after the last one
	reset   bool // by an RST
}

func (p peer) listen(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = ln.Close(); <-done })
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		in := bufio.NewReader(c)
		for _, text := range p.answers {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
		if len(p.answers) == 0 {
			_, _ = http.ReadRequest(in) // a close with something unread would be a reset
		}
		switch {
		case p.reset:
			_ = c.(*net.TCPConn).SetLinger(0)
		case !p.close:
			_, _ = in.ReadByte() // until the other side leaves
		}
	}()
	return ln.Addr().String()
}
