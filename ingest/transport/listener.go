// Package transport accepts the connections of the data port, within bounds, and checks what
// fasthttp does not of how requests are framed. The certificates are those of both ports. It knows
// neither routes nor bodies.
package transport

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Listener keeps a server running that has no file descriptors left, and
// rejects connections beyond the bound with the documented answer. fasthttp's own
// answer is not JSON and carries no Retry-After.
type Listener struct {
	net.Listener
	cfg       Config
	closed    chan struct{}
	closeOnce sync.Once
	closeErr  error

	mu    sync.Mutex
	conns map[*conn]struct{}
	byIP  map[netip.Addr]int
	// strangers are the conns on which no request was admitted, the oldest first.
	strangers list.List
	evicted   int           // conns that were closed for others, and whose workers have not ended
	empty     chan struct{} // made by Drain, closed when the last connection closes
}

// Config says what a Listener admits, and counts.
type Config struct {
	MaxConns, MaxConnsPerIP int
	TLS                     *tls.Config   // nil: plain HTTP
	Full                    []byte        // what a connection beyond gets, unless it speaks TLS
	Open                    *atomic.Int64 // number of connections

	Rejected, AcceptErrors, Evicted prometheus.Counter
}

// Listen makes the Listener of one that listens.
func Listen(ln net.Listener, cfg Config) *Listener {
	if cfg.TLS != nil {
		cfg.Full = nil // only after a handshake, which costs more than the request
	}
	return &Listener{
		Listener: ln,
		cfg:      cfg,
		closed:   make(chan struct{}),
		conns:    make(map[*conn]struct{}),
		byIP:     make(map[netip.Addr]int),
	}
}

// Accept returns the next connection within the bound.
func (l *Listener) Accept() (net.Conn, error) {
	const minPause, maxPause = 5 * time.Millisecond, time.Second
	pause := minPause
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			if added := l.add(c); added != nil {
				if l.cfg.TLS != nil {
					// The connection's own worker runs the handshake.
					return tls.Server(added, l.cfg.TLS), nil
				}
				return added, nil
			}
			l.cfg.Rejected.Inc()
			// A full send buffer must not delay the next connection.
			_ = c.SetWriteDeadline(time.Now().Add(minPause))
			_, _ = c.Write(l.cfg.Full)
			_ = c.Close()
		case isTemporary(err):
			l.cfg.AcceptErrors.Inc()
			select {
			case <-time.After(pause):
				pause = min(2*pause, maxPause)
			case <-l.closed:
				return nil, net.ErrClosed
			}
		default:
			return nil, err
		}
	}
}

// Close may be called twice: by Stop and by fasthttp.
func (l *Listener) Close() error {
	l.closeOnce.Do(func() {
		close(l.closed)
		l.closeErr = l.Listener.Close()
	})
	return l.closeErr
}

// add counts a connection; it returns nil when max connections are open, or perIP of its
// address. It closes the oldest stranger when there is no other room: silent connections
// must not keep clients out.
func (l *Listener) add(c net.Conn) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	added := &conn{Conn: c, listener: l, addr: addrOf(c)}
	if added.addr.IsValid() && l.byIP[added.addr] >= l.cfg.MaxConnsPerIP {
		return nil
	}
	if len(l.conns) >= l.cfg.MaxConns {
		oldest := l.strangers.Front()
		if oldest == nil || l.evicted >= maxEvicted(l.cfg.MaxConns) {
			return nil
		}
		evicted := oldest.Value.(*conn)
		l.evicted++
		_ = evicted.Conn.Close() // its worker ends
		l.forget(evicted)
		l.cfg.Evicted.Inc()
	}
	l.conns[added] = struct{}{}
	l.byIP[added.addr]++
	added.place = l.strangers.PushBack(added)
	l.cfg.Open.Add(1)
	return added
}

// Workers is how many goroutines serve the connections of a listener. One is free a moment
// after its connection has closed, so there are more than connections.
func Workers(maxConns int) int { return 2*maxConns + 64 + maxEvicted(maxConns) }

// maxEvicted bounds the workers of connections that were closed for others.
func maxEvicted(maxConns int) int { return maxConns + 512 }

// addrOf is the address of a client, of IPv6 its /64, which is what a host gets.
func addrOf(c net.Conn) netip.Addr {
	tcp, _ := c.RemoteAddr().(*net.TCPAddr)
	if tcp == nil {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	if addr.Is6() {
		network, _ := addr.Prefix(64)
		return network.Addr()
	}
	return addr
}

// keep notes that a connection is no stranger's any more.
func (l *Listener) keep(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(c)
}

func (l *Listener) leave(c *conn) {
	if c.place != nil {
		l.strangers.Remove(c.place)
		c.place = nil
	}
}

// forget counts an open connection no more. The lock is held.
func (l *Listener) forget(c *conn) {
	delete(l.conns, c)
	if l.byIP[c.addr]--; l.byIP[c.addr] == 0 {
		delete(l.byIP, c.addr)
	}
	l.leave(c)
	l.cfg.Open.Add(-1)
}

func (l *Listener) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.conns[c]; !open { // add forgot it for another
		l.evicted--
		return
	}
	l.forget(c)
	if len(l.conns) == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
}

// CloseUnused closes connections on which nothing was sent. Browsers open some for later,
// and fasthttp waits ReadTimeout for their first request.
func (l *Listener) CloseUnused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if !c.used.Load() {
			_ = c.Conn.Close() // its worker then closes and removes c
		}
	}
}

// Drain waits until all connections are closed. The listener is closed before.
// When ctx ends first, Drain closes the connections and returns ctx's error.
func (l *Listener) Drain(ctx context.Context) error {
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
		_ = c.Conn.Close() // its worker then closes and removes c
	}
	l.mu.Unlock()
	<-empty
	return ctx.Err()
}

// isTemporary reports whether accept failed for lack of a resource that will be
// free again. fasthttp would end the server.
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
