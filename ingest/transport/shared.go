package transport

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Shared lets servers that follow one another take connections from one socket,
// which stays open, so no connection is rejected in between.
type Shared struct {
	*net.TCPListener
	accepting chan struct{} // full while a server accepts
}

// ListenShared opens a socket for servers that follow one another.
func ListenShared(address string) (*Shared, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &Shared{TCPListener: l.(*net.TCPListener), accepting: make(chan struct{}, 1)}, nil
}

// Lease is the listener of the next server. It accepts once the lease before is closed.
func (s *Shared) Lease() net.Listener {
	return &leasedListener{shared: s, closed: make(chan struct{})}
}

// leasedListener accepts until it is closed, which leaves the socket open.
type leasedListener struct {
	shared *Shared
	once   sync.Once
	closed chan struct{}
}

func (l *leasedListener) Accept() (net.Conn, error) {
	select {
	case l.shared.accepting <- struct{}{}:
		defer func() { <-l.shared.accepting }()
	case <-l.closed: // the next lease may have been faster
		return nil, net.ErrClosed
	}
	for {
		// In this order: a Close after the look at closed ends the Accept below.
		if err := l.shared.SetDeadline(time.Time{}); err != nil || l.isClosed() {
			return nil, net.ErrClosed
		}
		c, err := l.shared.TCPListener.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
	}
}

func (l *leasedListener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Close ends an Accept that waits. One of the next lease begins again.
func (l *leasedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	if err := l.shared.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) { // at the stop of them all
		return err
	}
	return nil
}

func (l *leasedListener) Addr() net.Addr { return l.shared.TCPListener.Addr() }
