package app

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// sharedListener lets servers that follow one another take connections from one socket,
// which stays open, so no connection is refused in between.
type sharedListener struct {
	*net.TCPListener
	accepting sync.Mutex // held by the server that accepts
}

func listenShared(address string) (*sharedListener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &sharedListener{TCPListener: l.(*net.TCPListener)}, nil
}

// lease is the listener of the next server. It accepts once the lease before is closed.
func (s *sharedListener) lease() net.Listener { return &leasedListener{shared: s} }

// leasedListener accepts until it is closed, which leaves the socket open.
type leasedListener struct {
	shared *sharedListener
	closed atomic.Bool
}

func (l *leasedListener) Accept() (net.Conn, error) {
	l.shared.accepting.Lock()
	defer l.shared.accepting.Unlock()
	for {
		// In this order: a Close after the look at closed ends the Accept below.
		if err := l.shared.SetDeadline(time.Time{}); err != nil || l.closed.Load() {
			return nil, net.ErrClosed
		}
		c, err := l.shared.TCPListener.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
	}
}

// Close ends an Accept that waits. One of the next lease begins again.
func (l *leasedListener) Close() error {
	l.closed.Store(true)
	if err := l.shared.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) { // at the App's stop
		return err
	}
	return nil
}

func (l *leasedListener) Addr() net.Addr { return l.shared.TCPListener.Addr() }
