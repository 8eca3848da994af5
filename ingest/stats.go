package ingest

import (
	"context"
	_ "embed"
	"errors"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/share"
)

// stats describes one partition. It costs a round trip to the store and is for
// people and checks: namespaces take turns, or clients that only ask would delay the drain.
// It counts as one entry against the token's rate.
func (s *Server) stats(ctx *fasthttp.RequestCtx, t *target) *rejection {
	if rejected := t.key.charge(1); rejected != nil {
		return rejected
	}
	name := string(t.partition)
	bounded, cancel := context.WithTimeout(share.As(context.Background(), t.namespace.Name),
		s.cfg.ProduceTimeout)
	defer cancel()
	st, err := s.store.Stats(bounded, t.namespace, name)
	switch {
	case errors.Is(err, partition.ErrNoPartition):
		return reject(wire.CodeNoSuchPartition)
	case errors.Is(err, partition.ErrTooManyReads):
		return reject(wire.CodeOverloaded)
	case errors.Is(err, partition.ErrFull):
		return reject(wire.CodeStoreFull)
	case err != nil:
		// A read changes nothing, so an unknown outcome is a failure like others.
		return reject(wire.CodeStoreUnavailable)
	}
	answer := wire.Stats{
		Namespace:       t.namespace.Name,
		Partition:       name,
		Depth:           st.Depth,
		Capacity:        st.Capacity,
		Leased:          st.Leased,
		OldestAgeMillis: st.OldestAge.Milliseconds(),
		Accepted:        st.Accepted,
		Evicted:         st.Evicted,
		Expired:         st.Expired,
	}
	ctx.Response.Header.SetContentType(jsonType)
	ctx.Response.SetBody(answer.Append(nil))
	return nil
}

// SetReady makes /readyz answer 503 while check returns an error, with its
// text. Each request for /readyz calls check, so it must be quick.
func (s *Server) SetReady(check func() error) { s.ready.Store(&check) }

// livez says that the process answers, also while it stops.
func (s *Server) livez(ctx *fasthttp.RequestCtx, _ *target) *rejection {
	ctx.Response.Header.SetContentType(jsonType)
	ctx.Response.SetBodyString(`{"status":"ok"}`)
	return nil
}

// readyz says whether a load balancer should send requests here.
func (s *Server) readyz(ctx *fasthttp.RequestCtx, _ *target) *rejection {
	if check := s.ready.Load(); check != nil {
		if err := (*check)(); err != nil {
			return rejectf(wire.CodeNotReady, "not ready: %v", err)
		}
	}
	ctx.Response.Header.SetContentType(jsonType)
	ctx.Response.SetBodyString(`{"status":"ok"}`)
	return nil
}

// index tells who opens the address of the port where things are. It names nothing that the
// routes do not tell anybody.
func (s *Server) index(ctx *fasthttp.RequestCtx, _ *target) *rejection {
	ctx.Response.Header.SetContentType(jsonType)
	ctx.Response.SetBodyString(`{"service":"spillway","events":"POST /v1/{namespace}/{partition}","jobs":"POST /v1/{namespace}/{queue}",` +
		`"routes":"/openapi.yaml","ready":"/readyz"}`)
	return nil
}

//go:embed openapi.yaml
var written []byte

// openAPI describes the data port's routes, for tools that read OpenAPI 3.1.
var openAPI = sync.OnceValue(func() []byte { return verb.Describe(written, false) })

func (s *Server) openapi(ctx *fasthttp.RequestCtx, _ *target) *rejection {
	ctx.Response.Header.SetContentType("application/yaml")
	ctx.Response.SetBody(openAPI())
	return nil
}
