package ingest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// Store is what the way in needs of the buffer; *partition.Store is one.
// Namespace must not keep the name, Produce no group
// beyond its return; it runs groups of one partition in the order given.
type Store interface {
	Namespace(name string) *partition.Namespace
	Zones() int // see partition.Namespace.ZoneOf
	Now() (ms int64, ok bool)
	Produce(ctx context.Context, groups []*partition.Group)
	Stats(ctx context.Context, ns *partition.Namespace, partition string) (partition.Stats, error)
}

// Server is the data port. Serve and Shutdown may be called once each, in any
// order; further Shutdowns wait for the first.
type Server struct {
	cfg        Config
	store      Store
	log        *zap.Logger
	metrics    *metrics
	http       *fasthttp.Server
	keyring    *keyring
	inflater   *inflater
	lanes      *lanes
	requests   sync.Pool
	buffers    *buffers
	inflight   atomic.Int64 // bytes, see Config.MaxInflightBytes
	incomplete atomic.Int64 // those of inflight that hold bodies which are not complete
	conns      atomic.Int64 // open connections
	reads      atomic.Int64 // of partitions, at this moment
	ready      atomic.Pointer[func() error]
	stopping   atomic.Bool

	losses losses

	mu     sync.Mutex
	ln     *boundedListener
	served chan struct{} // closed when Serve is about to return
}

// maxHeaderBytes bounds request line and headers together; it is what each
// connection's read buffer takes. The rest are limits that nobody needs to set.
const (
	maxHeaderBytes     = 8 << 10
	maxRequestsPerConn = 1 << 20 // lets a balancer spread long-lived connections anew
)

// New makes a server that is not listening yet. It returns a
// *partition.FieldError for an unusable setting.
func New(cfg Config, store Store, reg prometheus.Registerer, log *zap.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	inflater, err := newInflater(cfg)
	if err != nil {
		return nil, fmt.Errorf("make decompressor: %w", err)
	}
	s := &Server{cfg: cfg, store: store, log: log, inflater: inflater, buffers: newBuffers()}
	s.requests.New = func() any { return newRequest() }
	if s.metrics, err = newMetrics(reg, &s.inflight, &s.conns); err != nil {
		return nil, err
	}
	if s.keyring, err = newKeyring(cfg, store, s.metrics); err != nil {
		return nil, err
	}
	s.lanes = newLanes(cfg, store, s.metrics, log, s.finish)
	s.http = &fasthttp.Server{
		Handler:        s.handle,
		HeaderReceived: s.headerReceived,
		ErrorHandler:   s.handleReadError,
		ExpectHandler:  s.expect,
		ConnState:      sent,
		Logger:         connLog{log},

		ReadTimeout:        cfg.ReadTimeout,
		WriteTimeout:       cfg.WriteTimeout,
		IdleTimeout:        cfg.IdleTimeout,
		MaxRequestBodySize: cfg.MaxBody,
		StreamRequestBody:  true, // bodies are received under the budget
		ReadBufferSize:     maxHeaderBytes,
		MaxRequestsPerConn: maxRequestsPerConn,
		// The listener holds the bound; a worker is free a moment after its
		// connection is closed, and must not be missed in between.
		Concurrency: 2*cfg.MaxConns + 64,

		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
	}
	return s, nil
}

// Serve answers on ln until Shutdown, and returns nil then. It closes ln. It
// returns an error when ln fails; Shutdown is still due.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.stopping.Load() {
		s.mu.Unlock()
		return ln.Close()
	}
	if s.ln != nil {
		s.mu.Unlock()
		return errors.New("serve: a server serves one listener, once")
	}
	s.ln = newBoundedListener(ln, &s.conns, &s.inflight, s.cfg, s.metrics)
	s.served = make(chan struct{})
	s.lanes.start()
	s.mu.Unlock()

	defer close(s.served)
	if err := s.http.Serve(s.ln); err != nil && !s.stopping.Load() {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

// sent is told when an answer is on the wire.
func sent(c net.Conn, state fasthttp.ConnState) {
	if state == fasthttp.StateIdle {
		if c := connOf(c); c != nil {
			c.answered()
		}
	}
}

// SetReady makes /readyz answer 503 with the reason while check returns one. It
// is called with each probe, so it must be quick.
func (s *Server) SetReady(check func() error) { s.ready.Store(&check) }

// Shutdown stops listening, lets requests finish (new ones on open connections
// are rejected), then flushes what ?ack=none left in the lanes and stops them.
// When ctx ends first, what is unfinished is rejected or cut off, and its error
// returned, and what ?ack=none lost is logged. Nothing of the server runs
// afterwards.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping.Store(true)
	ln, served := s.ln, s.served
	s.mu.Unlock()
	if ln == nil {
		return nil
	}
	err := ln.Close()
	// Only now does fasthttp know the listener for certain, and will wait for
	// the connections that came through it.
	<-served
	err = errors.Join(err, s.http.ShutdownWithContext(ctx), s.lanes.stop(ctx), ln.drain(ctx))
	s.losses.report(s.log)
	return err
}

// handle answers one request. fasthttp does not recover: without this a bug in
// a handler would end the process.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	var t target
	defer func() {
		if s.panicked(recover()) {
			s.reject(ctx, t.route, &rejection{code: wire.CodeInternal, close: true})
		}
	}()
	rejected := s.admit(ctx, &t)
	if rejected == nil {
		rejected = t.route.serve(s, ctx, t)
	}
	if rejected != nil {
		// There is nothing more to come from a client that was too slow.
		if !rejected.close && rejected.code != wire.CodeRequestTimeout {
			rejected.close = t.skipBody || !s.finishBody(ctx)
		}
		s.reject(ctx, t.route, rejected)
		return
	}
	if t.skipBody || !s.finishBody(ctx) { // of a GET
		ctx.SetConnectionClose()
		lingerOnClose(ctx)
	}
	s.metrics.request(t.route, ctx.Response.StatusCode())
}

// panicked counts and logs what recover returned; false for nil. It is asked
// wherever fasthttp calls us on behalf of a connection.
func (s *Server) panicked(v any) bool {
	if v == nil {
		return false
	}
	s.metrics.panics.Inc()
	s.log.Error("handler panicked", zap.String("panic", fmt.Sprint(v)), zap.Stack("stack"))
	return true
}

func (s *Server) reject(ctx *fasthttp.RequestCtx, at *route, r *rejection) {
	r.write(ctx)
	s.metrics.rejections[r.code].Inc()
	s.metrics.request(at, ctx.Response.StatusCode())
}

// expect decides over "Expect: 100-continue": a request that is rejected anyway
// never sends its body. fasthttp writes the response as it finds it.
func (s *Server) expect(ctx *fasthttp.RequestCtx) (status int) {
	var t target
	defer func() {
		if s.panicked(recover()) {
			s.reject(ctx, t.route, &rejection{code: wire.CodeInternal, close: true})
			status = ctx.Response.StatusCode()
		}
	}()
	if rejected := s.admit(ctx, &t); rejected != nil {
		rejected.close = true // the client may send the body all the same
		s.reject(ctx, t.route, rejected)
		return ctx.Response.StatusCode()
	}
	return fasthttp.StatusContinue
}

// unreadable answers what fasthttp could not read; the connection is closed.
func (s *Server) handleReadError(ctx *fasthttp.RequestCtx, err error) {
	if errors.Is(err, net.ErrClosed) {
		return // by us, while it was silent: there was no request
	}
	defer func() {
		if s.panicked(recover()) {
			s.reject(ctx, nil, &rejection{code: wire.CodeInternal, close: true})
		}
	}()
	if c, ok := ctx.Conn().(*tls.Conn); ok && !c.ConnectionState().HandshakeComplete {
		s.handshakeFailed(err)
		return
	}
	s.reject(ctx, nil, s.rejectReadError(err))
}

// unread says why a request could not be read to its end.
func (s *Server) rejectReadError(err error) *rejection {
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &small):
		return &rejection{code: wire.CodeHeadersTooLarge, close: true}
	case timedOut(err):
		return reject(wire.CodeRequestTimeout)
	}
	return &rejection{code: wire.CodeBadRequest, close: true}
}

// handshakeFailed ends a connection whose TLS handshake failed. There is nobody to
// tell but a client that spoke plain HTTP.
func (s *Server) handshakeFailed(err error) {
	s.metrics.handshakes.Inc()
	var first tls.RecordHeaderError
	if !errors.As(err, &first) || first.Conn == nil {
		return
	}
	if c, ok := first.Conn.(*conn); ok {
		c.linger.Store(true)
		s.metrics.rejections[wire.CodeBadRequest].Inc()
		_, _ = c.Write(rawRejection(wire.CodeBadRequest, "this port speaks TLS: use https"))
	}
}

// timedOut also looks at the text: fasthttp's ErrBrokenChunk hides its cause.
// Its ErrTimeout, met in a trailer, is no net.Error.
func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout() || errors.Is(err, fasthttp.ErrTimeout) || strings.HasSuffix(err.Error(), os.ErrDeadlineExceeded.Error())
}

// connLog takes what fasthttp logs: single connections that broke, of interest
// to somebody who is looking for just that.
type connLog struct{ log *zap.Logger }

func (c connLog) Printf(format string, args ...any) {
	if e := c.log.Check(zap.DebugLevel, "connection"); e != nil {
		for i := range args {
			if err, ok := args[i].(error); ok {
				// Some errors quote the header that is wrong, and it may hold a
				// token; SecureErrorLogMessage does not cover them.
				args[i], _, _ = strings.Cut(err.Error(), `"`)
			}
		}
		e.Write(zap.String("detail", fmt.Sprintf(format, args...)))
	}
}
