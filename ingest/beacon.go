package ingest

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// maxBeacon bounds the body of a beacon, in bytes. Browsers send no larger ones.
const maxBeacon = 64 << 10

// beacons is the door for navigator.sendBeacon. Nobody reads an answer to it, so that is always 204;
// what is rejected shows in counters only.
type beacons struct{ events }

// admit: a beacon can set no header, so its token is k in the query, given once; nothing here logs a
// URL. Beacons are taken from every origin, as the API promises.
func (b beacons) admit(s *Server, ctx *fasthttp.RequestCtx, t *target) *rejection {
	var token []byte
	if tokens := ctx.QueryArgs().PeekMulti("k"); len(tokens) == 1 {
		token = tokens[0]
	}
	return s.admitTo(ctx, t, token, true)
}

func (b beacons) reject(_ *Server, ctx *fasthttp.RequestCtx, _ *target, _ *rejection) {
	ctx.Response.Reset()
	ctx.SetStatusCode(fasthttp.StatusNoContent)
}

// beacon stores what a page sends when it goes away.
func (s *Server) beacon(ctx *fasthttp.RequestCtx, t *target) *rejection {
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
