package ingest

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/valyala/fasthttp/fasthttputil"
	"go.uber.org/zap"
)

// brokenListener fails its first Accepts with errs, and then works.
type brokenListener struct {
	net.Listener
	errs []error
}

func (l *brokenListener) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		return l.Listener.Accept()
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: err}
}

func TestTheServerSurvivesRunningOutOfFileDescriptors(t *testing.T) {
	t.Parallel()
	ln := fasthttputil.NewInmemoryListener()
	p := listenOn(t, newFake(), nil, &brokenListener{ln, []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED}}, ln.Dial, zap.NewNop())
	p.post("/v1/default/p", "x").expect(t, 200, "")
	if got := p.metric("accept_errors_total"); got != 3 {
		t.Errorf("counted %v", got)
	}
}

func TestConnectionsPastTheBoundGetTheDocumentedAnswer(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), func(c *Config) { c.MaxConns = 2 })
	var held []net.Conn
	for range 2 {
		c := admitted(t, p)
		defer c.Close()
		held = append(held, c)
	}
	r, closed := p.raw("") // rejected before it sends anything
	if r.expect(t, 503, "overloaded"); !closed || r.header.Get("Retry-After") == "" {
		t.Errorf("got %v, closed %v", r.header, closed)
	}
	_ = held[0].Close()
	eventually(t, func() bool { return p.conns.Load() == 1 })
	p.post("/v1/default/p", "x").expect(t, 200, "")
}

// admitted is a connection on which a request was admitted, and which stays open.
func admitted(t *testing.T, p *port) net.Conn {
	t.Helper()
	c := p.sends(request11("POST /v1/default/p", "Content-Length: 1\r\n", "x"))
	if got := status(t, c); got != 200 {
		t.Fatalf("got %d", got)
	}
	return c
}

func TestANewConnectionTakesThePlaceOfTheOldestThatNeverWasAdmitted(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), func(c *Config) { c.MaxConns = 4 })
	known := admitted(t, p)
	defer known.Close()
	silent := make([]net.Conn, 3)
	for i := range silent {
		var err error
		if silent[i], err = p.dial(); err != nil {
			t.Fatal(err)
		}
		defer silent[i].Close()
		eventually(t, func() bool { return p.conns.Load() == int64(i+2) })
	}
	p.raw(request11("GET /livez", "", "")) // needs no place among the admitted, and closes
	for i := range 10 {
		p.post("/v1/default/p", "x").expect(t, 200, "")
		if i == 0 { // the first one goes for it, and no other
			if _, err := silent[0].Read(make([]byte, 1)); err == nil {
				t.Error("the oldest silent connection is still open")
			}
		}
	}
	if _, err := io.WriteString(known, request11("POST /v1/default/p", "Content-Length: 1\r\n", "x")); err != nil || status(t, known) != 200 {
		t.Errorf("the connection of a client that was admitted: %v", err)
	}
	if got := p.metric("connections_evicted_total"); got < 1 || got > 12 {
		t.Errorf("%v connections are counted", got)
	}
}

func TestAnAddressMayHaveSoManyConnections(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), func(c *Config) { c.MaxConnsPerIP = 2 })
	first, second := admitted(t, p), admitted(t, p)
	defer second.Close()
	if r, closed := p.raw(""); r.status != 503 || !closed {
		t.Errorf("a third: got %d, closed %v", r.status, closed)
	}
	_ = first.Close()
	eventually(t, func() bool { return p.conns.Load() == 1 })
	p.post("/v1/default/p", "x").expect(t, 200, "")
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
