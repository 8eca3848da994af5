package ingest

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// maxReads is how many reads of partitions run at once. Each takes a round trip
// to the store of its own, so thousands of readers would keep entries waiting.
const maxReads = 32

// stats describes one partition. It costs a round trip of its own and is for
// people and checks, not for a hot path. It counts against the token's rate as
// one entry does.
func (s *Server) stats(ctx *fasthttp.RequestCtx, t target) *rejection {
	if s.reads.Add(1) > maxReads {
		s.reads.Add(-1)
		return reject(wire.CodeOverloaded)
	}
	defer s.reads.Add(-1)
	if rejected := t.key.charge(1); rejected != nil {
		return rejected
	}
	name := string(t.partition)
	within, cancel := context.WithTimeout(context.Background(), s.cfg.ProduceTimeout)
	defer cancel()
	st, err := s.store.Stats(within, t.namespace, name)
	switch {
	case errors.Is(err, partition.ErrNoPartition):
		return reject(wire.CodeNoSuchPartition)
	case errors.Is(err, partition.ErrFull):
		return reject(wire.CodeStoreFull)
	case err != nil:
		// Unknown outcomes do not matter to a question.
		return reject(wire.CodeStoreUnavailable)
	}
	answer := wire.Stats{
		Namespace: t.namespace.Name, Partition: name,
		Depth: st.Depth, Capacity: st.Capacity, Leased: st.Leased,
		OldestAgeMillis: st.OldestAge.Milliseconds(),
		Accepted:        st.Accepted, Evicted: st.Evicted, Expired: st.Expired,
	}
	ctx.Response.Header.SetContentType(jsonType)
	ctx.Response.SetBody(answer.Append(nil))
	return nil
}

// livez says that the process answers, also while it shuts down.
func (s *Server) livez(ctx *fasthttp.RequestCtx, _ target) *rejection {
	ctx.Response.Header.SetContentType(jsonType)
	ctx.Response.SetBodyString(`{"status":"ok"}`)
	return nil
}

// readyz says whether requests are worth sending here.
func (s *Server) readyz(ctx *fasthttp.RequestCtx, t target) *rejection {
	if check := s.ready.Load(); check != nil {
		if err := (*check)(); err != nil {
			return rejectf(wire.CodeNotReady, "not ready: %v", err)
		}
	}
	return s.livez(ctx, t)
}
