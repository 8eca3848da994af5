package ingest

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// admit decides whether a request may go on, by what needs no body: its size,
// its namespace and its token. A client that sends "Expect: 100-continue" is
// rejected here before it sends its body.
func (s *Server) admit(ctx *fasthttp.RequestCtx, t *target) *rejection {
	if t.length > s.maxBodyOf(t) {
		return memory.TooLarge(s.maxBodyOf(t))
	}
	switch {
	case t.route.method == fasthttp.MethodOptions:
		return nil
	case s.stopping.Load() && t.route.pattern != "/livez":
		return reject(wire.CodeShuttingDown)
	case t.mount != nil && t.skipBody:
		return reject(wire.CodeOverloaded)
	case t.mount != nil: // its handler authenticates
		return nil
	case t.adapter != nil && s.writeKeys.none(): // whatever key the body has
		return reject(wire.CodeUnauthorized)
	case t.adapter != nil && len(s.writeKeys.byName) > 0: // a name that everybody knows
		return s.rejectPage(ctx, "", s.sdkOrigins, false)
	case len(t.path) == 0:
		return nil
	}
	name, _, _ := bytes.Cut(t.path, []byte{'/'})
	// The name is only looked up, so it need not be copied.
	known := textOf(name)
	t.namespace = s.store.Namespace(known)
	var rejected *rejection
	if t.key, rejected = s.keyring.Load().authenticate(known, t.namespace != nil, tokenOf(ctx,
		t.route)); rejected != nil {
		return rejected
	}
	if t.key == nil {
		if rejected = s.rejectPage(ctx, known, s.origins[known], t.route.isBeacon()); rejected != nil {
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
func (s *Server) admitEntries(ctx *fasthttp.RequestCtx, t target,
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
