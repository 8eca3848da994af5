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
func (s *Server) take(ctx *fasthttp.RequestCtx, t target, add func(*request, []byte) *rejection) *rejection {
	r := s.requests.Get().(*request)
	ours := true
	defer func() {
		if ours {
			s.release(r)
		}
	}()
	var rejected *rejection
	if r.options, rejected = readOptions(ctx); rejected != nil {
		return rejected
	}
	r.namespace, r.key = t.namespace, t.key
	if rejected = t.key.checkRate(); rejected != nil {
		return rejected
	}
	if len(t.partition) > 0 && t.key.admit(unsafe.String(unsafe.SliceData(t.partition), len(t.partition))) != nil {
		return t.key.rejectNewPartition()
	}
	var known bool
	if r.received, known = s.store.Now(); !known {
		return reject(wire.CodeStoreUnavailable)
	}
	body, rejected := s.body(ctx, r)
	if rejected != nil {
		return rejected
	}
	// Lines gain 14 bytes each, items of an envelope lose some: about one growth
	// saved, or all of them.
	if n := len(body) + len(body)/8 + 64; n > cap(r.encoded) {
		if rejected = s.reserve(r, int(r.reserved)+n); rejected != nil {
			return rejected
		}
		r.encoded = slices.Grow(r.encoded, n)
	}
	if rejected = add(r, body); rejected != nil {
		return rejected
	}
	if rejected = t.key.charge(r.count); rejected != nil {
		return rejected
	}
	r.seal()
	s.releaseBody(r)
	if rejected = s.reserve(r, r.footprint()); rejected != nil {
		return rejected
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
		if s.stopping.Load() {
			s.losses.add(r)
		}
		s.release(r)
		return
	}
	r.done <- struct{}{}
}

// hold raises what a request has reserved of the budget to total bytes. It has
// them until it is released.
func (s *Server) reserve(r *request, total int) *rejection {
	more := int64(total) - r.reserved
	if s.inflight.Add(more) > s.cfg.MaxInflightBytes && more > 0 {
		s.inflight.Add(-more)
		return reject(wire.CodeOverloaded)
	}
	r.reserved += more
	return nil
}

// release gives a request's memory back: to the pool, or while it is scarce to
// the collector, because the next request pays for the buffers that it gets.
func (s *Server) release(r *request) {
	s.releaseBody(r)
	s.bodyComplete(r)
	left := s.inflight.Add(-r.reserved)
	r.reset()
	if left <= s.cfg.MaxInflightBytes/2 {
		s.requests.Put(r)
	}
}

// respond answers a request that the lanes are done with.
func (s *Server) respond(ctx *fasthttp.RequestCtx, r *request) *rejection {
	stored := r.collect()
	if len(r.spans) > 0 && stored == 0 {
		return rejectParts(r)
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

// rejectParts answers when nothing of a request was stored: with the parts'
// common cause, or the one that admits the most.
func rejectParts(r *request) *rejection {
	code, _ := codesFor(r.parts[0].err)
	ofToken := true
	for i := range r.parts {
		err := r.parts[i].err
		ofToken = ofToken && errors.Is(err, errNewPartitions)
		other, reason := codesFor(err)
		if reason == wire.ReasonUnknown {
			return rejectUnknown(err)
		}
		if other != code {
			code = wire.CodeStoreUnavailable
		}
	}
	if ofToken {
		return r.key.rejectNewPartition()
	}
	return reject(code)
}
