package ingest

import (
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// SetReady makes /readyz answer 503 while check returns an error, with its
// text. Each request for /readyz calls check, so it must be quick.
func (s *Server) SetReady(check func() error) { s.ready.Store(&check) }

// livez says that the process answers, also while it stops.
func (s *Server) livez(ctx *fasthttp.RequestCtx, _ target) *rejection {
	ctx.Response.Header.SetContentType(jsonType)
	ctx.Response.SetBodyString(`{"status":"ok"}`)
	return nil
}

// readyz says whether a load balancer should send requests here.
func (s *Server) readyz(ctx *fasthttp.RequestCtx, t target) *rejection {
	if check := s.ready.Load(); check != nil {
		if err := (*check)(); err != nil {
			return rejectf(wire.CodeNotReady, "not ready: %v", err)
		}
	}
	return s.livez(ctx, t)
}
