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
//	commit        each partition's entries in its lane  (lanes.go, lane.go)
//	answer        what the store did with them          (answer.go)
func (s *Server) produce(ctx *fasthttp.RequestCtx, t *target) *rejection {
	r := s.requests.Get().(*request)
	defer s.release(r)
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
	s.commit(r)
	return s.answer(ctx, r)
}

// commit waits until the lanes have stored a request, and counts its entries. A request whose
// entries were all dropped has its results already.
func (s *Server) commit(r *request) {
	if len(r.spans) > 0 {
		s.lanes.put(r)
		<-r.done
	}
	s.count(r)
}
