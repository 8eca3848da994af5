package ingest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp/fasthttputil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
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

func TestStopFinishesRequestsAndRejectsNewOnes(t *testing.T) {
	t.Parallel()
	store := newFake()
	entered, open := store.blockProduce()
	p, read := listenRead(t, store, longProduceTimeout)
	defer open()

	half, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	if _, err := io.WriteString(half, "POST /v1/default/late HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Fatal(err)
	}
	<-read // a connection on which nothing was read is closed
	answered := make(chan *reply)
	go func() { answered <- p.post("/v1/default/p", "x") }()
	<-entered

	stopped := make(chan error, 2)
	for range 2 {
		go func() { stopped <- p.Stop(context.Background()) }()
	}
	eventually(t, p.stopping.Load)
	if _, err := io.WriteString(half, "Content-Length: 1\r\n\r\nx"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(half), nil)
	if err != nil {
		t.Fatal(err)
	}
	late := readReply(t, resp)
	if late.expect(t, 503, "shutting_down"); late.header.Get("Retry-After") == "" || !resp.Close {
		t.Errorf("got %v, close %v", late.header, resp.Close)
	}
	select {
	case err := <-stopped:
		t.Fatalf("stop did not wait: %v", err)
	default:
	}
	if c, err := p.dial(); err == nil {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if n, _ := c.Read(make([]byte, 1)); n > 0 {
			t.Error("a new connection is served")
		}
		_ = c.Close()
	}
	open()
	(<-answered).expect(t, 200, "")
	for range 2 {
		if err := <-stopped; err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	if got := store.entries("default/p"); len(got) != 1 {
		t.Errorf("stored %q", got)
	}
}

func TestAStopThatRunsOutOfTimeRejectsTheRest(t *testing.T) {
	t.Parallel()
	store := newFake()
	entered := make(chan struct{}, 1)
	store.produce = func(ctx context.Context, groups []*partition.Group) {
		entered <- struct{}{}
		<-ctx.Done()
		failWith(partition.ErrUnknown)(ctx, groups)
	}
	p := listen(t, store, func(c *Config) { c.Lanes, c.ProduceTimeout = 1, time.Hour })
	p.sends(request11("POST /v1/default/p", "Content-Length: 1\r\n", "x"))
	<-entered
	p.sends(request11("POST /v1/default/p", "Content-Length: 1\r\n", "x"))
	eventually(t, func() bool {
		l := p.lanes.all[0]
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == 1
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	for code, want := range map[string]float64{"store_unavailable": 1, "shutting_down": 1} {
		if got := p.metric("rejections_total", code); got != want {
			t.Errorf("%v requests are rejected as %s, want %v", got, code, want)
		}
	}
}

func TestAStopThatRunsOutOfTimeClosesConnections(t *testing.T) {
	t.Parallel()
	p, read := listenRead(t, newFake(), nil)
	c, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /v1/default/p HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Fatal(err)
	}
	<-read
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if open := p.conns.Load(); open != 0 {
		t.Errorf("%d connections are open", open)
	}
}

// Browsers open connections for requests to come.
func TestStopDoesNotWaitForConnectionsOnWhichNothingWasSent(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), func(c *Config) { c.ReadTimeout = time.Hour })
	silent, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	eventually(t, func() bool { return p.conns.Load() == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}
