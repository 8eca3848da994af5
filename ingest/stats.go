package ingest

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/share"
)

// stats describes one partition. It costs a round trip to the store and is for
// people and checks: namespaces take turns, or clients that only ask would delay the drain.
// It counts as one entry against the token's rate.
func (s *Server) stats(ctx *fasthttp.RequestCtx, t target) *rejection {
	if rejected := t.key.charge(1); rejected != nil {
		return rejected
	}
	name := string(t.partition)
	bounded, cancel := context.WithTimeout(share.As(context.Background(), t.namespace.Name), s.cfg.ProduceTimeout)
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
		Namespace: t.namespace.Name, Partition: name,
		Depth: st.Depth, Capacity: st.Capacity, Leased: st.Leased,
		OldestAgeMillis: st.OldestAge.Milliseconds(),
		Accepted:        st.Accepted, Evicted: st.Evicted, Expired: st.Expired,
	}
	ctx.Response.Header.SetContentType(jsonType)
	ctx.Response.SetBody(answer.Append(nil))
	return nil
}
