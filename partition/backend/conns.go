package backend

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// conns are the open connections of a Backend. Its pools end only the one that read an error; where a
// server became a replica and its name moved, the others would stay there.
type conns struct {
	mu    sync.Mutex
	open  map[net.Conn]struct{}
	ended time.Time
}

// dialer is a dialer of one client, whose connections are kept.
func (s *conns) dialer(o *redis.UniversalOptions) func(context.Context, string, string) (net.Conn, error) {
	dial := redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		var kept net.Conn = &conn{raw, s}
		if sys, ok := raw.(syscall.Conn); ok {
			kept = &sysConn{conn{raw, s}, sys}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open == nil {
			s.open = map[net.Conn]struct{}{}
		}
		s.open[raw] = struct{}{}
		return kept, nil
	}
}

// conn is a connection that is kept until it is closed.
type conn struct {
	net.Conn
	of *conns
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c.Conn)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// sysConn is one whose health the pool can check before it uses it.
type sysConn struct {
	conn
	sys syscall.Conn
}

func (c *sysConn) SyscallConn() (syscall.RawConn, error) { return c.sys.SyscallConn() }

// end closes all, once a second at most: a name may stay with a replica.
func (s *conns) end() {
	s.mu.Lock()
	if time.Since(s.ended) < time.Second {
		s.mu.Unlock()
		return
	}
	s.ended = time.Now()
	var open []net.Conn
	for c := range s.open {
		open = append(open, c)
	}
	clear(s.open)
	s.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

// LeaveReplica ends all connections where an error says that the server is a replica: the name may be
// another server's by now. On a cluster, whose map says who is what, it does nothing. It reports whether the
// server is one.
func (b *Backend) LeaveReplica(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) || !strings.HasPrefix(reply.Error(), "READONLY ") && !strings.HasPrefix(reply.Error(), "MASTERDOWN ") {
		return false
	}
	if !b.cluster {
		b.conns.end()
	}
	return true
}
