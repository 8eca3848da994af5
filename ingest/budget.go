package ingest

import "github.com/spillway-io/spillway/ingest/wire"

// reserve raises what a request has reserved of MaxInflightBytes to total
// bytes. Memory is reserved before it is allocated, and given back by release.
func (s *Server) reserve(r *request, total int) *rejection {
	more := int64(total) - r.reserved
	if s.inflight.Add(more) > s.cfg.MaxInflightBytes && more > 0 {
		s.inflight.Add(-more)
		return reject(wire.CodeOverloaded)
	}
	r.reserved += more
	return nil
}

// reserveIncomplete is reserve for a body that is still arriving. All of those
// together may have half of the budget: clients that send slowly, or never
// finish, leave the other half to complete requests.
func (s *Server) reserveIncomplete(r *request, total int) *rejection {
	more := int64(total) - r.incomplete
	if s.incomplete.Add(more) > s.cfg.MaxInflightBytes/2 && more > 0 {
		s.incomplete.Add(-more)
		return reject(wire.CodeOverloaded)
	}
	r.incomplete += more
	return s.reserve(r, total)
}

// bodyComplete ends what reserveIncomplete began, also after an error.
func (s *Server) bodyComplete(r *request) {
	if r.incomplete != 0 {
		s.incomplete.Add(-r.incomplete)
		r.incomplete = 0
	}
}

// noRoomFor reports whether there is no memory for a body of n bytes.
func (s *Server) noRoomFor(n int64) bool {
	return s.inflight.Load()+n > s.cfg.MaxInflightBytes || s.incomplete.Load()+n > s.cfg.MaxInflightBytes/2
}

// release gives back what a request has reserved, and puts the request into the
// pool. Past half of the budget it leaves the request to the garbage collector
// instead: the next request would be charged for buffers it does not need.
func (s *Server) release(r *request) {
	s.releaseBody(r)
	s.bodyComplete(r)
	left := s.inflight.Add(-r.reserved)
	r.reset()
	if left <= s.cfg.MaxInflightBytes/2 {
		s.requests.Put(r)
	}
}

// releaseBody gives the buffer of a large body back, once its entries are encoded.
func (s *Server) releaseBody(r *request) {
	s.buffers.put(r.large)
	r.large = nil
}
