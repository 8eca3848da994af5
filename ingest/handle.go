package ingest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/ingest/wire"
)

// handle answers one request: the door of its route admits it and serves it.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	t := s.newTarget()
	defer s.finish(ctx, t)
	rejected := s.admit(ctx, t)
	if rejected == nil {
		rejected = t.door.serve(s, ctx, t)
	}
	s.conclude(ctx, t, rejected)
}

// finish is deferred by whatever has a target. fasthttp does not recover: without the recover here a
// panic would end the process.
func (s *Server) finish(ctx *fasthttp.RequestCtx, t *target) {
	if s.panicked(recover()) {
		s.conclude(ctx, t, reject(wire.CodeInternal).Closing())
	}
	s.targets.Put(t)
}

// conclude answers a request that is rejected, reads what is left of its body, and counts it.
func (s *Server) conclude(ctx *fasthttp.RequestCtx, t *target, r *rejection) {
	// After a request timeout the rest of the body will not come.
	timedOut := r != nil && r.Code == wire.CodeRequestTimeout
	linger := r != nil && r.Close
	if !timedOut && !linger {
		linger = t.skipBody || !memory.Discard(ctx)
	}
	if r != nil {
		t.door.reject(s, ctx, t, r)
		s.recordRejection(t, r)
		s.metrics.rejections[r.Code].Inc()
	}
	if linger || timedOut {
		ctx.SetConnectionClose()
	}
	if linger {
		transport.Linger(ctx)
	}
	s.allowOrigin(ctx, t)
	s.metrics.request(ctx, t.route)
}

// panicked counts and logs what recover returned; it is false for nil. Each
// function that fasthttp calls for a connection uses it.
func (s *Server) panicked(v any) bool {
	if v == nil {
		return false
	}
	s.metrics.panics.Inc()
	s.log.Error("handler panicked", zap.String("panic", fmt.Sprint(v)), zap.Stack("stack"))
	return true
}

// handleExpect answers "Expect: 100-continue". A client whose request is
// rejected never sends its body. fasthttp sends the response as handleExpect
// leaves it.
func (s *Server) handleExpect(ctx *fasthttp.RequestCtx) (status int) {
	t := s.newTarget()
	defer func() {
		if status == 0 { // it is answered
			status = ctx.Response.StatusCode()
		}
	}()
	defer s.finish(ctx, t)
	rejected := s.admit(ctx, t)
	if rejected == nil {
		return fasthttp.StatusContinue
	}
	rejected.Close = true // the client may send the body although it was rejected
	s.conclude(ctx, t, rejected)
	return 0
}

// handleReadError answers a request that fasthttp could not read. fasthttp
// closes the connection afterwards.
func (s *Server) handleReadError(ctx *fasthttp.RequestCtx, err error) {
	if errors.Is(err, net.ErrClosed) {
		return // the server closed an idle connection: there was no request
	}
	t := s.newTarget() // fasthttp has reset the request, so a page cannot read this answer
	defer s.finish(ctx, t)
	if c, ok := ctx.Conn().(*tls.Conn); ok && !c.ConnectionState().HandshakeComplete {
		s.handshakeFailed(err)
		return
	}
	s.conclude(ctx, t, transport.ReadError(err))
}

// handshakeFailed ends a connection whose TLS handshake failed. Only a client
// that spoke plain HTTP can read an answer.
func (s *Server) handshakeFailed(err error) {
	s.metrics.handshakes.Inc()
	if c := transport.Plain(err); c != nil {
		s.metrics.rejections[wire.CodeBadRequest].Inc()
		_, _ = c.Write(rawRejection(wire.CodeBadRequest, "this port speaks TLS: use https"))
	}
}

// connLog takes what fasthttp logs: errors of single connections, at level debug.
type connLog struct{ log *zap.Logger }

func (c connLog) Printf(format string, args ...any) {
	if e := c.log.Check(zap.DebugLevel, "connection"); e != nil {
		for i := range args {
			if err, ok := args[i].(error); ok {
				// Some errors quote the wrong header, which may hold a token.
				// SecureErrorLogMessage does not cover them.
				args[i], _, _ = strings.Cut(err.Error(), `"`)
			}
		}
		e.Write(zap.String("detail", fmt.Sprintf(format, args...)))
	}
}
