package ingest

import (
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// conn is a counted connection. It lets a client read the last answer although
// the client is still sending.
type conn struct {
	net.Conn
	listener *boundedListener
	closed   atomic.Bool
	linger   atomic.Bool
	used     atomic.Bool   // the client has sent something
	answer   atomic.Int64  // bytes reserved for a large answer that is being sent
	reserved *atomic.Int64 // where: Server.inflight of the server that answered

	// The rest belongs to the goroutine that serves the connection.
	unsent int    // bytes of the answer's body, less what the system has taken since
	lost   func() // called when the connection ends before unsent is 0; nil: nobody asks
}

// What a client may send after an answer that it did not wait for.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 16 << 20
)

// Read notes that the client has sent something.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.used.Load() {
		c.used.Store(true)
	}
	return n, err
}

// Write counts what the system takes. Heads of answers and TLS are counted as if they were
// body, so an answer that may have been taken whole never counts as lost.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.lost != nil {
		if c.unsent -= n; c.unsent <= 0 {
			c.lost = nil
		} else if err != nil {
			c.answerLost()
		}
	}
	return n, err
}

// answerLost tells who asked that the client cannot get the whole answer.
func (c *conn) answerLost() {
	if lost := c.lost; lost != nil {
		c.lost = nil
		lost()
	}
}

// Close may be called twice. With linger it first reads and drops what the
// client is still sending. Closing a socket with unread bytes resets it, and a
// client that is reset while it writes never reads why it was rejected.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	defer c.listener.remove(c)
	defer c.releaseAnswer()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger.Load() && half.CloseWrite() == nil {
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	return c.Conn.Close()
}

// releaseAnswer gives back what a large answer had reserved.
func (c *conn) releaseAnswer() {
	if c.answer.Load() != 0 {
		c.reserved.Add(-c.answer.Swap(0))
	}
}

// connStateChanged is called by fasthttp, on the goroutine that serves the connection. A
// connection is idle when its answer has been sent, or lies behind another request.
func connStateChanged(c net.Conn, state fasthttp.ConnState) {
	switch counted := connOf(c); {
	case counted == nil:
	case state == fasthttp.StateIdle:
		counted.releaseAnswer()
	case state == fasthttp.StateClosed:
		counted.answerLost()
	}
}

// connOf is the conn below a connection of fasthttp's; nil for one that did not
// come through a boundedListener.
func connOf(c net.Conn) *conn {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	counted, _ := c.(*conn)
	return counted
}

// lingerOnClose sets linger on the connection of a request.
func lingerOnClose(ctx *fasthttp.RequestCtx) {
	if c := connOf(ctx.Conn()); c != nil {
		c.linger.Store(true)
	}
}
