package ingest

import (
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// A door is a way into the data port. The row of a request's route has it; a request without a
// route comes through that of events, or of the SDK whose prefix its path has.
type door interface {
	// admit decides whether a request may go on, by what needs no body.
	admit(*Server, *fasthttp.RequestCtx, *target) *rejection
	// serve answers a request that was admitted.
	serve(*Server, *fasthttp.RequestCtx, *target) *rejection
	// reject answers a request that is rejected, in the form that its clients read.
	reject(*Server, *fasthttp.RequestCtx, *target, *rejection)
}

// admit finds the route of a request and decides whether it may go on, by what needs no body: its
// size, and what its door asks for. A client that sends "Expect: 100-continue" is rejected here
// before it sends its body.
func (s *Server) admit(ctx *fasthttp.RequestCtx, t *target) *rejection {
	rejected := s.findRoute(ctx, t)
	switch {
	case rejected != nil:
		return rejected
	case t.length > t.maxBody:
		return memory.TooLarge(t.maxBody)
	case t.route.method == fasthttp.MethodOptions:
		return nil
	case s.stopping.Load() && t.route.pattern != "/livez":
		return reject(wire.CodeShuttingDown)
	}
	return t.door.admit(s, ctx, t)
}

// events is the door of our own routes: what it serves a request with.
type events func(*Server, *fasthttp.RequestCtx, *target) *rejection

func (e events) admit(s *Server, ctx *fasthttp.RequestCtx, t *target) *rejection {
	return s.admitTo(ctx, t, bearer(&ctx.Request.Header), false)
}

func (e events) serve(s *Server, ctx *fasthttp.RequestCtx, t *target) *rejection {
	return e(s, ctx, t)
}

func (e events) reject(_ *Server, ctx *fasthttp.RequestCtx, _ *target, r *rejection) {
	writeRejection(ctx, r)
}

// admitTo admits a request to the namespace in its path, if it has one, by its token. Where that
// namespace needs none, anyPage admits web pages that it does not list.
func (s *Server) admitTo(ctx *fasthttp.RequestCtx, t *target, token []byte, anyPage bool) (rejected *rejection) {
	if len(t.path) == 0 {
		return nil
	}
	known := textOf(t.name()) // it is only looked up, so it need not be copied
	t.namespace = s.store.Namespace(known)
	if t.key, rejected = s.keyring.Load().authenticate(known, t.namespace != nil, token); rejected != nil {
		return rejected
	}
	if t.key == nil {
		if rejected = s.rejectPage(ctx, known, t.listed, anyPage); rejected != nil {
			return rejected
		}
	}
	transport.Keep(ctx)
	if t.skipBody {
		return reject(wire.CodeOverloaded)
	}
	return nil
}

// admitEntries decides whether a produce request may bring in its entries, by
// its options and the limits of its token. A mixed request names its partitions
// in the body, so split checks those.
func (s *Server) admitEntries(ctx *fasthttp.RequestCtx, t *target,
	r *request) (rejected *rejection) {
	if r.options, rejected = readOptions(&ctx.Request.Header); rejected != nil {
		return rejected
	}
	s.own(r, t.namespace, t.key)
	if rejected = r.Charge(s.tenantOf(r.namespace.Name, r.key)); rejected != nil {
		return rejected
	}
	if rejected = t.key.checkRate(); rejected != nil {
		return rejected
	}
	if len(t.partition) > 0 && t.key.admitPartition(textOf(t.partition)) != nil {
		return t.key.rejectNewPartition()
	}
	var known bool
	if r.received, known = s.store.NowOf(r.namespace); !known {
		return reject(wire.CodeStoreUnavailable)
	}
	return nil
}

// own notes whose entries a request brings.
func (s *Server) own(r *request, namespace *partition.Namespace, k *key) {
	r.namespace, r.key = namespace, k
	r.drops = s.metrics.namespace(namespace).drops
	r.transform = s.cfg.Transforms[namespace.Name]
}
