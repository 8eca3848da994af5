package transport

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
)

func TestTheAddressOfAClientIsThatOfItsHost(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3::4": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		ip := netip.MustParseAddr(addr)
		if got := addrOf(addressed{addr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 1))}); got.String() != want {
			t.Errorf("%s counts as %s, want %s", addr, got, want)
		}
	}
	if addrOf(addressed{addr: &net.UnixAddr{}}).IsValid() {
		t.Error("a connection of a Unix socket has an address")
	}
}

type addressed struct {
	net.Conn
	addr net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.addr }

// fewConn takes so many bytes, then fails.
type fewConn struct {
	net.Conn
	left int
}

func (c *fewConn) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	if c.left -= n; n < len(p) {
		return n, net.ErrClosed
	}
	return n, nil
}

// A client may send its next request before it has the answer to the last one: both answers may
// be in one Write.
func TestEachAnswerOfPipelinedRequestsIsLostByItself(t *testing.T) {
	t.Parallel()
	for taken, want := range map[int]string{0: "abc", 99: "abc", 100: "bc", 299: "bc", 300: "c", 349: "c", 350: ""} {
		c, lost := &conn{Conn: &fewConn{left: taken}}, ""
		for _, answer := range []struct {
			name string
			size int
		}{{"a", 100}, {"b", 200}, {"c", 50}} {
			c.onLost(answer.size, func() { lost += answer.name })
		}
		_, _ = c.Write(make([]byte, 350))
		c.answersLost()
		if lost != want {
			t.Errorf("of 350 bytes %d were taken: %q are lost, want %q", taken, lost, want)
		}
	}
}

// A server that stops closes idle connections, with an alert over TLS, while a next request may
// have come.
func TestAnAnswerMayBeginWhileItsConnectionIsClosed(t *testing.T) {
	t.Parallel()
	c := &conn{Conn: &fewConn{}}
	var lost atomic.Int32
	var both sync.WaitGroup
	both.Go(func() {
		c.onLost(100, func() { lost.Add(1) })
		c.answersLost()
	})
	both.Go(func() { _, _ = c.Write(make([]byte, 31)) })
	both.Wait()
	if lost.Load() != 1 {
		t.Errorf("it is lost %d times", lost.Load())
	}
}
