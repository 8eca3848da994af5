package job

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
)

// What a fault connection does to one exchange, a pipeline and its replies.
const (
	passes        = iota
	losesRequest  // closes, and the server never hears of it
	cutsRequest   // the server hears the beginning: whole commands of it run
	losesReply    // the server ran it, and the reply is lost
	cutsReply     // some replies arrive
	stallsRequest // the server hears of it when the caller has given up
	stallsReply   // the replies never come
	slicesReply   // a few bytes at a time, and all of them
	faultKinds
)

// faultLine listens for clients and puts a fault connection between each of
// them and the target. plan says what to do with the next exchange of scripts,
// and where to cut it: a number from 0 to 1.
type faultLine struct {
	net.Listener
	target string

	mu   sync.Mutex
	plan func() (kind int, at float64)
	only string // the digest of the script whose exchanges are meant; empty: of every script
	seen [faultKinds]int
}

func startFaultLine(t *testing.T, target string) *faultLine {
	t.Helper()
	l, err := net.Listen("tcp", redistest.FreeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	f := &faultLine{Listener: l, target: target}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			c := &faultConn{line: f, client: client, server: server}
			context.AfterFunc(ctx, c.close)
			serving.Go(c.requests)
			serving.Go(c.replies)
		}
	})
	t.Cleanup(func() { stop(); _ = l.Close(); serving.Wait() })
	return f
}

func (f *faultLine) set(plan func() (int, float64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

func (f *faultLine) next(request []byte) (int, float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.plan == nil || !bytes.Contains(request[:min(len(request), 64)], []byte("\r\nevalsha\r\n")) || !bytes.Contains(request, []byte(f.only)) {
		return passes, 0
	}
	kind, at := f.plan()
	f.seen[kind]++
	return kind, at
}

// faultConn is one connection. A client writes a pipeline, then reads all of its
// replies, so an exchange begins with the first bytes after a reply.
type faultConn struct {
	line           *faultLine
	client, server net.Conn

	mu      sync.Mutex
	replied bool // bytes came back since the exchange began
	asked   bool // an exchange is under way
	kind    int
	at      float64
}

func (c *faultConn) close() { _, _ = c.client.Close(), c.server.Close() }

// begin says what to do with bytes from the client.
func (c *faultConn) begin(request []byte) (kind int, at float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked || c.replied {
		c.kind, c.at = c.line.next(request)
		c.asked, c.replied = true, false
	}
	return c.kind, c.at
}

// answer says what to do with bytes from the server.
func (c *faultConn) answer() (kind int, at float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replied = true
	return c.kind, c.at
}

func (c *faultConn) requests() {
	defer c.close()
	buf := make([]byte, 1<<20)
	for {
		n, err := c.client.Read(buf)
		if n > 0 {
			switch kind, at := c.begin(buf[:n]); kind {
			case losesRequest:
				return
			case cutsRequest:
				_, _ = c.server.Write(buf[:int(float64(n)*at)])
				return
			case stallsRequest:
				_, _ = io.Copy(io.Discard, c.client) // until the caller has given up
				_, _ = c.server.Write(buf[:n])
				return
			}
			if _, err := c.server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *faultConn) replies() {
	buf := make([]byte, 1<<20)
	for {
		n, err := c.server.Read(buf)
		if n > 0 {
			switch kind, at := c.answer(); kind {
			case losesReply:
				c.close()
				return
			case cutsReply:
				_, _ = c.client.Write(buf[:int(float64(n)*at)])
				c.close()
				return
			case stallsReply:
				_, _ = io.Copy(io.Discard, c.server) // until the caller has given up
				return
			case slicesReply:
				for i := 0; i < n && err == nil; i += 7 {
					_, err = c.client.Write(buf[i:min(i+7, n)])
				}
			default:
				_, err = c.client.Write(buf[:n])
			}
		}
		if err != nil {
			_ = c.client.Close() // requests, which may stall, ends the rest
			return
		}
	}
}
