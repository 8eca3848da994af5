package ingest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp/fasthttputil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/lifecycletest"
)

func TestAPanickingHandlerIs500AndTheServerLives(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, nil)
	store.now = func() (int64, bool) { var none []int64; return none[7], true }
	for range 3 {
		r := p.post("/v1/default/p", "x")
		r.expect(t, 500, "internal")
	}
	store.now = func() (int64, bool) { return now, true }
	p.post("/v1/default/p", "x").expect(t, 200, "")
	if panics, answers := p.metric("panics_total"), p.metric("requests_total", "500", "produce"); panics != 3 || answers != 3 {
		t.Errorf("counted %v panics, %v answers", panics, answers)
	}
}

func TestAPanicOutsideOfAHandlerIs500Too(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	large := strings.Repeat("x", largeBody)
	for name, sent := range map[string]string{
		"expect":     "POST /v1/panics/p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
		"large body": fmt.Sprintf("POST /v1/panics/p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", largeBody, large),
	} {
		r, closed := p.raw(sent)
		if r.expect(t, 500, "internal"); !closed {
			t.Errorf("%s: the connection is kept", name)
		}
	}
	p.post("/v1/default/p", "x").expect(t, 200, "")
	if panics := p.metric("panics_total"); panics < 2 {
		t.Errorf("counted %v panics", panics)
	}
}

func TestProbes(t *testing.T) {
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

func TestAStoreWithoutAClockIsUnavailable(t *testing.T) {
	t.Parallel()
	store := newFake()
	store.now = func() (int64, bool) { return 0, false }
	p := listen(t, store, nil)
	p.post("/v1/default/p", "x").expect(t, 503, "store_unavailable")
	p.post("/v1/default", `{"partition":"a","data":1}`, asNDJSON).expect(t, 503, "store_unavailable")
}

func TestShutdownFinishesRequestsAndRejectsNewOnes(t *testing.T) {
	t.Parallel()
	store := newFake()
	entered, open := store.gated()
	p := listenTCP(t, store, patient)
	defer open()

	half, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	if _, err := io.WriteString(half, "POST /v1/default/late HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan *reply)
	go func() { answered <- p.post("/v1/default/p", "x") }()
	<-entered

	shut := make(chan error, 2)
	for range 2 {
		go func() { shut <- p.Stop(context.Background()) }()
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
	case err := <-shut:
		t.Fatalf("shutdown did not wait: %v", err)
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
		if err := <-shut; err != nil {
			t.Errorf("shutdown: %v", err)
		}
	}
	if got := store.entries("default/p"); len(got) != 1 {
		t.Errorf("stored %q", got)
	}
}

func TestShutdownFlushesWhatWasNotAcknowledged(t *testing.T) {
	t.Parallel()
	store := newFake()
	entered, open := store.gated()
	p := listen(t, store, patient)
	defer open()
	for i := range 50 {
		if r := p.post(fmt.Sprintf("/v1/default/p%d?ack=none", i), "x"); r.status != 202 {
			t.Fatalf("got %d %s", r.status, r.raw)
		}
	}
	<-entered
	shut := make(chan error)
	go func() { shut <- p.Stop(context.Background()) }()
	eventually(t, p.stopping.Load)
	open()
	if err := <-shut; err != nil {
		t.Fatal(err)
	}
	if got := p.metric("entries_total", "default", "accepted"); got != 50 {
		t.Errorf("%v of 50 were stored", got)
	}
}

func TestAShutdownThatRunsOutOfTimeRejectsTheRest(t *testing.T) {
	t.Parallel()
	store := newFake()
	entered := make(chan struct{}, 1)
	store.produce = func(ctx context.Context, groups []*partition.Group) {
		entered <- struct{}{}
		<-ctx.Done()
		failing(partition.ErrUnknown)(ctx, groups)
	}
	core, logged := observer.New(zap.InfoLevel)
	ln := fasthttputil.NewInmemoryListener()
	p := listenOn(t, store, func(c *Config) { c.Lanes, c.ProduceTimeout = 1, time.Hour }, ln, ln.Dial, zap.New(core))
	p.post("/v1/default/p?ack=none", "x")
	<-entered
	p.post("/v1/default/p?ack=none", "x")
	p.post("/v1/default?ack=none", `{"partition":"p","data":1}`+"\n"+`{"partition":"q","data":1}`, asNDJSON)
	p.post("/v1/default/p?ack=none", "1\n2\n3", asNDJSON)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if unknown, rejected := p.metric("unacked_losses_total", "default", "unknown"), p.metric("unacked_losses_total", "default", "shutting_down"); unknown != 1 || rejected != 6 {
		t.Errorf("counted %v unknown, %v rejected; want 1 and 6", unknown, rejected)
	}
	_ = p.Stop(context.Background())
	lost := logged.FilterMessage("entries lost at shutdown after their requests were answered 202").All()
	if len(lost) != 1 {
		t.Fatalf("%d lines tell of the loss, want 1", len(lost))
	}
	if got, want := fmt.Sprint(lost[0].ContextMap()), "map[by_reason:map[shutting_down:6 unknown:1] entries:7 requests:4]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAShutdownThatRunsOutOfTimeCutsConnectionsOff(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	c, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /v1/default/p HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return p.conns.Load() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if open := p.conns.Load(); open != 0 {
		t.Errorf("%d connections are open", open)
	}
}

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
			// Start came first, so the server has ended without an error.
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

// brokenListener fails its first Accepts with the given errors, then waits.
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

func TestRunningOutOfDescriptorsIsOutlived(t *testing.T) {
	t.Parallel()
	ln := fasthttputil.NewInmemoryListener()
	p := listenOn(t, newFake(), nil, &brokenListener{ln, []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED}}, ln.Dial, zap.NewNop())
	p.post("/v1/default/p", "x").expect(t, 200, "")
	if got := p.metric("accept_errors_total"); got != 3 {
		t.Errorf("counted %v", got)
	}
}

func TestConnectionsPastTheBoundAreRejectedInOurWords(t *testing.T) {
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
	r, closed := p.raw("") // rejected before it says anything
	if r.expect(t, 503, "overloaded"); !closed || r.header.Get("Retry-After") == "" {
		t.Errorf("got %v, closed %v", r.header, closed)
	}
	_ = held[0].Close()
	eventually(t, func() bool { return p.conns.Load() == 1 })
	p.post("/v1/default/p", "x").expect(t, 200, "")
}

func TestBrokenPartitionsAreLoggedLoudlyButNotOften(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	store := newFake()
	store.produce = failing(fmt.Errorf("WRONGTYPE: %w", partition.ErrBroken))
	ln := fasthttputil.NewInmemoryListener()
	p := listenOn(t, store, nil, ln, ln.Dial, zap.New(core))
	for range 20 {
		p.post("/v1/default/p", "secret payload").expect(t, 503, "store_unavailable")
	}
	if n := logs.FilterMessage("store rejects partition").Len(); n == 0 || n > 5 {
		t.Errorf("logged %d times", n)
	}
	for _, e := range logs.All() {
		if text := fmt.Sprint(e.Message, e.ContextMap()); strings.Contains(text, "secret") {
			t.Errorf("a payload in the log: %s", text)
		}
	}
}
