package transport

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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

func TestLeasesOfAListenerLoseNoConnection(t *testing.T) {
	t.Parallel()
	shared, err := ListenShared("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	const leases, clients, each = 200, 4, 100
	var accepted, running sync.WaitGroup
	accepted.Add(clients * each)
	serve := func(l net.Listener) {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close()
			accepted.Done()
		}
	}
	last := shared.Lease()
	first := last
	running.Go(func() { serve(first) })
	var dialing sync.WaitGroup
	for range clients {
		dialing.Go(func() {
			for range each {
				c, err := net.Dial("tcp", shared.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = c.Read(make([]byte, 1)) // until the server closes it
				_ = c.Close()
			}
		})
	}
	for range leases {
		next := shared.Lease()
		running.Go(func() { serve(next) })
		if err := last.Close(); err != nil {
			t.Error(err)
		}
		last = next
	}
	dialing.Wait()
	accepted.Wait()
	_ = last.Close()
	running.Wait()
	if _, err := last.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// The accept of a server may come to run after that of its successor.
func TestALeaseThatNeverAcceptedCloses(t *testing.T) {
	t.Parallel()
	l, err := ListenShared("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	before, next := l.Lease(), l.Lease()
	ended := make(chan error, 2)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		c, err := next.Accept()
		if err == nil {
			_ = c.Close()
		}
	})
	for len(l.accepting) == 0 {
		runtime.Gosched()
	}
	go func() {
		_, err := before.Accept()
		ended <- err
	}()
	if err := before.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the closed lease waits for a connection of the next")
	}
	if err := errors.Join(next.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	accepting.Wait()
}
