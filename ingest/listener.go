package ingest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// boundedListener keeps a server alive that runs out of descriptors, and
// rejects connections past a bound in our own words: fasthttp's rejection is
// neither JSON nor carries Retry-After.
type boundedListener struct {
	net.Listener
	max       int
	tls       *tls.Config // nil: plain HTTP
	metrics   *metrics
	rejection []byte
	closed    chan struct{}
	closeOnce sync.Once
	closeErr  error

	mu    sync.Mutex
	conns map[*conn]struct{}
	open  *atomic.Int64 // how many, for the metric
	bytes *atomic.Int64 // of the budget, which answers are part of
	empty chan struct{} // closed when the last one is, once drain asks
}

func newBoundedListener(ln net.Listener, open, bytes *atomic.Int64, cfg Config, m *metrics) *boundedListener {
	l := &boundedListener{
		Listener: ln, max: cfg.MaxConns, tls: cfg.TLS, metrics: m,
		rejection: rawRejection(wire.CodeOverloaded, failures[wire.CodeOverloaded].message),
		closed:    make(chan struct{}),
		conns:     make(map[*conn]struct{}), open: open, bytes: bytes,
	}
	if l.tls != nil {
		l.rejection = nil // nobody could read it; a handshake costs more than the request rejected
	}
	return l
}

// Accept waits for a connection within the bound.
func (l *boundedListener) Accept() (net.Conn, error) {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			if admitted := l.admit(c); admitted != nil {
				if l.tls != nil {
					// The handshake is left to the connection's own worker.
					return tls.Server(admitted, l.tls), nil
				}
				return admitted, nil
			}
			l.metrics.rejections[wire.CodeOverloaded].Inc()
			// A full send buffer is no reason to hold up the next connection.
			_ = c.SetWriteDeadline(time.Now().Add(shortest))
			_, _ = c.Write(l.rejection)
			_ = c.Close()
		case isTemporary(err):
			l.metrics.acceptErrors.Inc()
			select {
			case <-time.After(pause):
				pause = min(2*pause, longest)
			case <-l.closed:
				return nil, net.ErrClosed
			}
		default:
			return nil, err
		}
	}
}

// Close may be called twice: by Shutdown, and by fasthttp's own.
func (l *boundedListener) Close() error {
	l.closeOnce.Do(func() {
		close(l.closed)
		l.closeErr = l.Listener.Close()
	})
	return l.closeErr
}

// admit counts a connection in; nil when there are as many as may be.
func (l *boundedListener) admit(c net.Conn) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.max {
		return nil
	}
	admitted := &conn{Conn: c, listener: l}
	l.conns[admitted] = struct{}{}
	l.open.Add(1)
	return admitted
}

func (l *boundedListener) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.open.Add(-1)
	if len(l.conns) == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
}

// drain waits until all connections are closed, after the listener is. When
// ctx ends first it cuts off the rest and returns the context's error.
func (l *boundedListener) drain(ctx context.Context) error {
	l.mu.Lock()
	if len(l.conns) == 0 {
		l.mu.Unlock()
		return nil
	}
	if l.empty == nil {
		l.empty = make(chan struct{})
	}
	empty := l.empty
	l.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	for c := range l.conns {
		_ = c.Conn.Close() // its worker notices, and closes c
	}
	l.mu.Unlock()
	<-empty
	return ctx.Err()
}

// passing reports whether accept failed for want of something that will be
// free again; fasthttp would end the server.
func isTemporary(err error) bool {
	for _, e := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// rawRejection is a whole HTTP response, for a connection that no handler sees.
func rawRejection(code wire.Code, message string) []byte {
	f := failures[code]
	body := (&wire.Failure{Code: code, Message: message}).Append(nil)
	head := "HTTP/1.1 " + strconv.Itoa(f.status) + " " + fasthttp.StatusMessage(f.status) + "\r\nConnection: close"
	if f.retryAfter != "" {
		head += "\r\nRetry-After: " + f.retryAfter
	}
	head += "\r\nContent-Type: " + jsonType + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	return append([]byte(head), body...)
}

// conn is a counted connection that can let its last answer through.
type conn struct {
	net.Conn
	listener *boundedListener
	closed   atomic.Bool
	linger   atomic.Bool
	answer   atomic.Int64 // bytes reserved for a large answer that is being sent
}

// What a client may still send after an answer that it did not wait for.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 16 << 20
)

// Close may be called twice. With linger, what the client is still sending is
// read and dropped for a while: closing a socket with unread bytes resets it,
// and a client that is reset while it writes never reads why it was rejected.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	defer c.listener.remove(c)
	defer c.answered()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger.Load() && half.CloseWrite() == nil {
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	return c.Conn.Close()
}

// answered gives back what an answer had reserved.
func (c *conn) answered() {
	if c.answer.Load() != 0 {
		c.listener.bytes.Add(-c.answer.Swap(0))
	}
}

// connOf is our part of a connection of fasthttp's; nil for one that did not
// come through a boundedListener.
func connOf(c net.Conn) *conn {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	ours, _ := c.(*conn)
	return ours
}

// lingering asks for it, on the connection of a request.
func lingerOnClose(ctx *fasthttp.RequestCtx) {
	if c := connOf(ctx.Conn()); c != nil {
		c.linger.Store(true)
	}
}
