package ingest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp/fasthttputil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/lifecycletest"
)

func TestTheServerFollowsTheLifecycleContract(t *testing.T) {
	t.Parallel()
	lifecycletest.Run(t, func(t *testing.T) lifecycletest.Component {
		ln := fasthttputil.NewInmemoryListener()
		s := newServer(t)
		s.SetListener(ln)
		return &aliveServer{s, ln}
	})
}

// aliveServer lets the suite ask whether a server still answers.
type aliveServer struct {
	*Server
	ln *fasthttputil.InmemoryListener
}

func (s *aliveServer) Alive(context.Context) error {
	c, err := s.ln.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, request11("GET /livez", "Connection: close\r\n", "")); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// newServer makes a server that is not started.
func newServer(t *testing.T) *Server {
	t.Helper()
	s, err := New(DefaultConfig(), newFake(), prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStopBeforeStartClosesTheListener(t *testing.T) {
	t.Parallel()
	s, ln := newServer(t), fasthttputil.NewInmemoryListener()
	s.SetListener(ln)
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := ln.Accept(); err == nil {
		t.Error("the listener is still open")
	}
}

func TestAStartWithoutAListenerIsAnErrorAndTheServerIsStopped(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	if err := s.Start(t.Context()); err == nil {
		t.Error("got no error")
	}
	ln := fasthttputil.NewInmemoryListener()
	s.SetListener(ln)
	if err := s.Start(t.Context()); err == nil {
		t.Error("a second start: got no error")
	}
	if _, err := ln.Accept(); err == nil {
		t.Error("the listener is still open")
	}
}

func TestStartAndStopMayRace(t *testing.T) {
	t.Parallel()
	for range 20 {
		s := newServer(t)
		s.SetListener(fasthttputil.NewInmemoryListener())
		started := make(chan error, 1)
		go func() { started <- s.Start(t.Context()) }()
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if <-started == nil {
			// Start came before Stop, so the server ended without an error.
			if err := <-s.Failed(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAListenerThatFailsIsReportedAndTheServerCanBeStopped(t *testing.T) {
	t.Parallel()
	s, gone := newServer(t), errors.New("gone")
	s.SetListener(&brokenListener{fasthttputil.NewInmemoryListener(), []error{gone}})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-s.Failed(); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	if _, more := <-s.Failed(); more {
		t.Error("the channel is still open")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLivezAndReadyz(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	var down atomic.Bool
	for _, path := range []string{"/livez", "/readyz"} {
		p.do("GET", path, "").expect(t, 200, "")
		p.do("HEAD", path, "").expect(t, 200, "")
	}
	p.SetReady(func() error {
		if down.Load() {
			return errors.New("the store does not answer")
		}
		return nil
	})
	p.do("GET", "/readyz", "").expect(t, 200, "")
	down.Store(true)
	r := p.do("GET", "/readyz", "")
	if r.expect(t, 503, "not_ready"); r.header.Get("Retry-After") == "" || r.body.Message != "not ready: the store does not answer" {
		t.Errorf("got %v %s", r.header, r.raw)
	}
	p.do("GET", "/livez", "").expect(t, 200, "")
	p.post("/v1/default/p", "x").expect(t, 200, "")
}

func TestHealthRoutesNeedNoToken(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, withTokens(store))
	for _, path := range []string{"/livez", "/readyz"} {
		p.do("GET", path, "").expect(t, 200, "")
	}
}
