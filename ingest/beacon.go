package ingest

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// maxBeacon bounds the body of a beacon, in bytes. Browsers send no larger ones.
const maxBeacon = 64 << 10

// isBeacon reports whether a route is for navigator.sendBeacon. nil is none.
func (r *route) isBeacon() bool {
	return r != nil && (r.pattern == patternBeaconPartition || r.pattern == patternBeaconNamespace)
}

// beacon stores what a page sends when it goes away. Nobody reads the answer, so it is
// always 204; what is rejected shows in counters only.
func (s *Server) beacon(ctx *fasthttp.RequestCtx, t target) *rejection {
	if t.length > maxBeacon {
		return reject(wire.CodeBodyTooLarge)
	}
	r := s.requests.Get().(*request)
	defer s.release(r)
	if rejected := s.admitEntries(ctx, t, r); rejected != nil {
		return rejected
	}
	body, rejected := r.Receive(ctx, s.cfg.MaxBody)
	if rejected != nil {
		return rejected
	}
	if len(body) > maxBeacon {
		return reject(wire.CodeBodyTooLarge)
	}
	if rejected := s.split(t, r, beaconType(body), body); rejected != nil {
		return rejected
	}
	s.commit(r)
	if stored := r.sumResults(); len(r.spans) > 0 && stored == 0 {
		return rejectParts(r)
	}
	s.countDiscards(r)
	ctx.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}

// beaconType is the media type that a beacon's body would have: its Content-Type is
// text/plain, whatever it is. A body that begins like JSON and is not is opaque.
func beaconType(body []byte) string {
	body = bytes.TrimLeft(body, " \t\r\n")
	line, _, several := bytes.Cut(body, []byte{'\n'})
	switch {
	case len(body) == 0 || body[0] != '[' && body[0] != '{':
		return ""
	case wire.ValidJSON(body):
		return jsonType
	case body[0] == '{' && several && wire.ValidJSON(line):
		return ndjsonType
	}
	return ""
}
