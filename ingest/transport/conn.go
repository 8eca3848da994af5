package transport

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/share"
)

// conn is a counted connection. It lets a client read the last answer although
// the client is still sending.
type conn struct {
	net.Conn
	listener *Listener
	addr     netip.Addr    // of the client, of IPv6 its /64; not valid: it has none
	place    *list.Element // in listener.strangers; nil: it is no stranger, or closed. The listener's lock guards it
	known    atomic.Bool   // a request on it was admitted
	closed   atomic.Bool
	linger   atomic.Bool
	used     atomic.Bool    // the client has sent something
	answer   atomic.Int64   // bytes reserved for a large answer that is being sent
	reserved *share.Account // of the tenant that pays for it

	sending sync.Mutex // a server that stops closes TLS, with an alert, while the handler may run
	unsent  []unsent   // in the order of the requests: a client may send the next before it has the answer
}

// unsent is an answer that the client may not get.
type unsent struct {
	bytes int // of its body, less what the system has taken since
	lost  func()
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
	c.sending.Lock()
	for left := n; left > 0 && len(c.unsent) > 0; {
		first := &c.unsent[0]
		took := min(left, first.bytes)
		if left, first.bytes = left-took, first.bytes-took; first.bytes > 0 {
			break
		}
		c.unsent = slices.Delete(c.unsent, 0, 1)
	}
	c.sending.Unlock()
	if err != nil {
		c.answersLost()
	}
	return n, err
}

// onLost has lost called if the connection ends before the system has taken n more bytes.
func (c *conn) onLost(n int, lost func()) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.unsent = append(c.unsent, unsent{n, lost})
}

// answersLost tells who asked that the client cannot get the whole answer.
func (c *conn) answersLost() {
	c.sending.Lock()
	all := c.unsent
	c.unsent = nil
	c.sending.Unlock()
	for _, a := range all {
		a.lost()
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
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger.Load() &&
		half.CloseWrite() == nil {
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	return c.Conn.Close()
}

// releaseAnswer gives back what a large answer had reserved.
func (c *conn) releaseAnswer() {
	if c.answer.Load() != 0 {
		c.reserved.Give(c.answer.Swap(0))
	}
}

// StateChanged is called by fasthttp, on the goroutine that serves the connection. A
// connection is idle when its answer has been sent, or lies behind another request.
func StateChanged(c net.Conn, state fasthttp.ConnState) {
	switch counted := connOf(c); {
	case counted == nil:
	case state == fasthttp.StateIdle:
		counted.releaseAnswer()
	case state == fasthttp.StateClosed:
		counted.answersLost()
	}
}

// connOf is the conn below a connection of fasthttp's; nil for one that did not
// come through a Listener.
func connOf(c net.Conn) *conn {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	counted, _ := c.(*conn)
	return counted
}

// Keep notes that the client of a request was admitted to a namespace.
func Keep(ctx *fasthttp.RequestCtx) {
	if c := connOf(ctx.Conn()); c != nil && !c.known.Swap(true) {
		c.listener.keep(c)
	}
}

// Linger sets linger on the connection of a request.
func Linger(ctx *fasthttp.RequestCtx) {
	if c := connOf(ctx.Conn()); c != nil {
		c.linger.Store(true)
	}
}

// OnLost, after an answer, has lost called once if the connection ends before the system has
// taken as many bytes as the body has.
func OnLost(ctx *fasthttp.RequestCtx, lost func()) {
	if c := connOf(ctx.Conn()); c != nil {
		c.onLost(len(ctx.Response.Body()), lost)
	}
}

// Raw is the connection to the client, below TLS; nil: it is none of the system.
func Raw(ctx *fasthttp.RequestCtx) syscall.RawConn {
	c := connOf(ctx.Conn())
	if c == nil {
		return nil
	}
	of, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// Plain is the connection of a client that spoke plain HTTP to a port with TLS, by the
// error of the handshake; nil: err is another one. It lingers.
func Plain(err error) net.Conn {
	var first tls.RecordHeaderError
	if !errors.As(err, &first) {
		return nil
	}
	c, ok := first.Conn.(*conn)
	if !ok {
		return nil
	}
	c.linger.Store(true)
	return c
}

// ReadError says why a request could not be read to its end.
func ReadError(err error) *wire.Rejection {
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &small):
		return wire.Reject(wire.CodeHeadersTooLarge).Closing()
	case timedOut(err):
		return wire.Reject(wire.CodeRequestTimeout)
	}
	return wire.Reject(wire.CodeBadRequest).Closing()
}

// timedOut also looks at the text: fasthttp's ErrBrokenChunk hides its cause.
// fasthttp's ErrTimeout, returned for a trailer, is no net.Error.
func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout() || errors.Is(err, fasthttp.ErrTimeout) ||
		strings.HasSuffix(err.Error(), os.ErrDeadlineExceeded.Error())
}

// SmallAnswer, in bytes, is the largest answer that is copied into a buffer of
// the connection. A larger one is reserved until the client has taken it.
const SmallAnswer = 4 << 10

// Send sets the body of an answer. A large one is kept, and reserved of pays until the
// client has taken it; a small one needs no account.
func Send(ctx *fasthttp.RequestCtx, pays *share.Account, body []byte) (kept bool) {
	if len(body) <= SmallAnswer {
		ctx.Response.SetBody(body) // copied
		return false
	}
	if c := connOf(ctx.Conn()); c != nil {
		if c.reserved != pays {
			c.releaseAnswer()
			c.reserved = pays
		}
		c.answer.Add(int64(cap(body)))
		c.reserved.Give(-int64(cap(body)))
	}
	ctx.Response.SetBodyRaw(body)
	return true
}
