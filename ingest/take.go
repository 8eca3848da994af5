package ingest

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// take is what all produce requests share: options and body in, entries added
// by the form's own function, then the lanes, then the answer.
func (s *Server) take(ctx *fasthttp.RequestCtx, t target, add func(*request, []byte) *refusal) *refusal {
	r := s.requests.Get().(*request)
	ours := true
	defer func() {
		if ours {
			s.release(r)
		}
	}()
	var refused *refusal
	if r.options, refused = readOptions(ctx); refused != nil {
		return refused
	}
	r.namespace, r.key = t.namespace, t.key
	if refused = t.key.spent(); refused != nil {
		return refused
	}
	if len(t.partition) > 0 && t.key.admit(unsafe.String(unsafe.SliceData(t.partition), len(t.partition))) != nil {
		return t.key.refuseNew()
	}
	var known bool
	if r.received, known = s.store.Now(); !known {
		return refuse(wire.CodeStoreUnavailable)
	}
	body, refused := s.body(ctx, r)
	if refused != nil {
		return refused
	}
	// Lines gain 14 bytes each, items of an envelope lose some: about one growth
	// saved, or all of them.
	if n := len(body) + len(body)/8 + 64; n > cap(r.encoded) {
		if refused = s.hold(r, int(r.held)+n); refused != nil {
			return refused
		}
		r.encoded = slices.Grow(r.encoded, n)
	}
	if refused = add(r, body); refused != nil {
		return refused
	}
	if refused = t.key.charge(r.count); refused != nil {
		return refused
	}
	r.seal()
	s.forget(r)
	if refused = s.hold(r, r.footprint()); refused != nil {
		return refused
	}
	if r.noAck {
		s.countDiscards(r)
		ours = false
		s.put(r)
		ctx.SetStatusCode(fasthttp.StatusAccepted)
		return nil
	}
	s.put(r)
	<-r.done
	s.count(r)
	return s.respond(ctx, r)
}

// put hands a sealed request to the lanes; a request whose entries were all
// dropped is finished already.
func (s *Server) put(r *request) {
	if len(r.spans) == 0 {
		s.finish(r)
		return
	}
	s.lanes.put(r)
}

// finish runs when the last part of a request has its result.
func (s *Server) finish(r *request) {
	if r.noAck {
		s.count(r)
		if s.closing.Load() {
			s.losses.add(r)
		}
		s.release(r)
		return
	}
	r.done <- struct{}{}
}

// hold raises what a request has reserved of the budget to total bytes. It has
// them until it is released.
func (s *Server) hold(r *request, total int) *refusal {
	more := int64(total) - r.held
	if s.inflight.Add(more) > s.cfg.MaxInflightBytes && more > 0 {
		s.inflight.Add(-more)
		return refuse(wire.CodeOverloaded)
	}
	r.held += more
	return nil
}

// release gives a request's memory back: to the pool, or while it is scarce to
// the collector, because the next request pays for the buffers that it gets.
func (s *Server) release(r *request) {
	s.forget(r)
	s.arrived(r)
	left := s.inflight.Add(-r.held)
	r.reset()
	if left <= s.cfg.MaxInflightBytes/2 {
		s.requests.Put(r)
	}
}

// respond answers a request that the lanes are done with.
func (s *Server) respond(ctx *fasthttp.RequestCtx, r *request) *refusal {
	stored := r.collect()
	if len(r.spans) > 0 && stored == 0 {
		return refuseParts(r)
	}
	a := &r.answer
	a.Depth, a.Capacity = wire.Absent, wire.Absent
	if len(r.name) > 0 { // one partition
		a.Capacity = r.namespace.Policy.Capacity
		if len(r.spans) > 0 {
			a.Depth = r.parts[0].depth
		}
	}
	s.countDiscards(r)
	if r.minimal && a.Rejected == 0 && a.Evicted == 0 && len(a.Results) == 0 {
		ctx.SetStatusCode(fasthttp.StatusNoContent)
		return nil
	}
	r.out = a.Append(r.out[:0])
	ctx.Response.Header.SetContentType(jsonType)
	if len(r.out) <= smallAnswer {
		ctx.Response.SetBody(r.out) // copied into memory that the connection keeps
		return nil
	}
	if c := connOf(ctx.Conn()); c != nil {
		c.answer.Add(int64(cap(r.out)))
		s.inflight.Add(int64(cap(r.out)))
	}
	ctx.Response.SetBodyRaw(r.out)
	r.out = nil
	return nil
}

// smallAnswer, in bytes, is what connections keep a buffer for. A larger answer
// counts as memory in flight until the client has taken it.
const smallAnswer = 4 << 10

// refuseParts answers when nothing of a request was stored: with the parts'
// common cause, or the one that admits the most.
func refuseParts(r *request) *refusal {
	code, _ := explain(r.parts[0].err)
	ofToken := true
	for i := range r.parts {
		err := r.parts[i].err
		ofToken = ofToken && errors.Is(err, errNewPartitions)
		other, reason := explain(err)
		if reason == wire.ReasonUnknown {
			return refuseUnknown(err)
		}
		if other != code {
			code = wire.CodeStoreUnavailable
		}
	}
	if ofToken {
		return r.key.refuseNew()
	}
	return refuse(code)
}
