package ingest

import (
	"net"
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
		c, err := p.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	eventually(t, func() bool { return p.conns.Load() == 2 })
	r, closed := p.raw("") // rejected before it sends anything
	if r.expect(t, 503, "overloaded"); !closed || r.header.Get("Retry-After") == "" {
		t.Errorf("got %v, closed %v", r.header, closed)
	}
	_ = held[0].Close()
	eventually(t, func() bool { return p.conns.Load() == 1 })
	p.post("/v1/default/p", "x").expect(t, 200, "")
}
