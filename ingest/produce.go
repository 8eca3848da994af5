package ingest

import (
	"github.com/valyala/fasthttp"
)

// produce stores the entries of a request and answers what became of them. Its
// steps, in order:
//
//	admitEntries  options, and the limits of the token  (options.go, limits.go)
//	Receive       the body, decompressed                (package memory)
//	split         the body into entries, by partition   (split.go, request.go)
//	queue         each partition's entries in its lane  (lanes.go, lane.go)
//	answer        what the store did with them          (answer.go)
func (s *Server) produce(ctx *fasthttp.RequestCtx, t target) *rejection {
	r := s.requests.Get().(*request)
	owned := true // false once the lanes release r
	defer func() {
		if owned {
			s.release(r)
		}
	}()
	if rejected := s.admitEntries(ctx, t, r); rejected != nil {
		return rejected
	}
	body, rejected := r.Receive(ctx, s.cfg.MaxBody)
	if rejected != nil {
		return rejected
	}
	if rejected := s.split(t, r, mediaType(ctx), body); rejected != nil {
		return rejected
	}
	if r.noAck {
		s.countDiscards(r)
		owned = false
		s.queue(r)
		ctx.SetStatusCode(fasthttp.StatusAccepted)
		return nil
	}
	s.queue(r)
	<-r.done
	s.count(r)
	return s.answer(ctx, r)
}

// queue gives a request to the lanes. A request whose entries were all dropped
// is finished already.
func (s *Server) queue(r *request) {
	if len(r.spans) == 0 {
		s.finish(r)
		return
	}
	s.lanes.put(r)
}

// finish is called once a request has all its results, by the lane that had the
// last one. Somebody waits for the request, unless it has ack=none.
func (s *Server) finish(r *request) {
	if !r.noAck {
		r.done <- struct{}{}
		return
	}
	s.count(r)
	if s.stopping.Load() {
		s.losses.add(r)
	}
	s.release(r)
}
