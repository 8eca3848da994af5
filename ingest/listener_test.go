package ingest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

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
}

// certificate is the test certificate of net/http.
func certificate(t *testing.T) tls.Certificate {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return s.TLS.Certificates[0]
}

// listenTLS starts a server with TLS on a loopback socket. Its client and raw accept
// any certificate. dialPlain opens a connection without TLS.
func listenTLS(t *testing.T, edit func(*Config)) (p *port, dialPlain func() net.Conn) {
	t.Helper()
	cert := certificate(t)
	p = listenTCP(t, newFake(), func(c *Config) {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
		if edit != nil {
			edit(c)
		}
	})
	dial := p.dial
	p.dial = func() (net.Conn, error) {
		c, err := dial()
		if err != nil {
			return nil, err
		}
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true}), nil
	}
	transport := p.client.Transport.(*http.Transport)
	transport.DialTLSContext = func(context.Context, string, string) (net.Conn, error) { return p.dial() }
	p.client.Transport = secured{transport}
	return p, func() net.Conn {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		return c
	}
}

// secured sends requests over TLS.
type secured struct{ *http.Transport }

func (s secured) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Scheme = "https"
	return s.Transport.RoundTrip(r)
}

func TestTheServerAnswersOverTLS(t *testing.T) {
	t.Parallel()
	p, _ := listenTLS(t, nil)
	for range 3 {
		p.post("/v1/default/p", "x").expect(t, 200, "")
	}
	if n := p.conns.Load(); n != 1 {
		t.Errorf("%d connections are open, want 1, kept alive", n)
	}
}

func TestPlainHTTPToTheTLSPortIsAnsweredInPlainHTTP(t *testing.T) {
	t.Parallel()
	p, dial := listenTLS(t, nil)
	c := dial()
	body := strings.Repeat("x", 100_000) // the client is still sending when the answer comes
	go func() {
		_, _ = io.WriteString(c, request11("POST /v1/default/p", "Content-Length: 100000\r\n", body))
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := readReply(t, resp)
	r.expect(t, 400, "bad_request")
	if !strings.Contains(r.body.Message, "https") || !resp.Close {
		t.Errorf("got %s, closed %t", r.raw, resp.Close)
	}
	if n := p.metric("tls_handshake_errors_total"); n != 1 {
		t.Errorf("%v failed handshakes are counted, want 1", n)
	}
}

func TestTLSToThePlainPortIsRejected(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	c, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if err := tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake(); err == nil || !strings.Contains(err.Error(), "first record does not look like") {
		t.Errorf("got %v", err)
	}
	p.post("/v1/default/p", "x").expect(t, 200, "")
}

func TestOldTLSIsRejected(t *testing.T) {
	t.Parallel()
	_, dial := listenTLS(t, nil)
	err := tls.Client(dial(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}).Handshake()
	if err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("got %v", err)
	}
}

func TestAStalledHandshakeDelaysNoOtherAndTimesOut(t *testing.T) {
	t.Parallel()
	p, dial := listenTLS(t, func(c *Config) { c.ReadTimeout = 4 * time.Second })
	hello := firstFlight(t)
	var stalled []net.Conn
	for _, sent := range [][]byte{nil, hello[:1], hello[:50], hello} { // hello, and then nothing
		c := dial()
		if _, err := c.Write(sent); err != nil {
			t.Fatal(err)
		}
		stalled = append(stalled, c)
	}
	p.post("/v1/default/p", "x").expect(t, 200, "") // after all of them
	for i, c := range stalled {
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%d: the connection did not time out: %v", i, err)
		}
	}
	if n := p.metric("tls_handshake_errors_total"); n != 4 {
		t.Errorf("%v failed handshakes are counted, want 4", n)
	}
}

// firstFlight is the first message of a client.
func firstFlight(t *testing.T) []byte {
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		defer client.Close()
		_ = client.SetDeadline(time.Now().Add(20 * time.Second))
		_ = tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake()
	}()
	hello := make([]byte, 4096)
	n, err := server.Read(hello)
	if err != nil || n < 100 {
		t.Fatal(n, err)
	}
	return hello[:n]
}

func TestHandshakesCountAsConnectionsAndMakeRoomForClients(t *testing.T) {
	t.Parallel()
	p, dial := listenTLS(t, func(c *Config) { c.MaxConns = 2 })
	for range 2 {
		defer dial().Close()
	}
	eventually(t, func() bool { return p.conns.Load() == 2 })
	p.post("/v1/default/p", "x").expect(t, 200, "")
	if n := p.metric("connections_evicted_total"); n != 1 {
		t.Errorf("%v connections are counted as evicted, want the oldest handshake", n)
	}
}

func TestARejectedTLSClientReadsWhyWhileItStillSends(t *testing.T) {
	t.Parallel()
	p, _ := listenTLS(t, func(c *Config) { c.MaxBody = 1000 })
	for range 20 {
		p.post("/v1/default/p", string(bytes.Repeat([]byte("x"), 5<<20))).expect(t, 413, "body_too_large")
	}
}
