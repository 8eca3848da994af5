package ingest

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/transport"
)

// headerReceived keeps fasthttp from waiting for the body of a request that is
// rejected for its headers. It tells fasthttp that the request has no body;
// findRoute and admit then reject the request.
func (s *Server) headerReceived(h *fasthttp.RequestHeader) (c fasthttp.RequestConfig) {
	defer func() { s.panicked(recover()) }() // the handler panics for the same reason, and answers
	n := h.ContentLength()
	if transport.TooManyHeaders(h) || n > s.cfg.MaxBody && n > s.maxBodyAt(h) || n >= memory.Large &&
		(s.memory.NoRoomFor(int64(n)) || s.unauthenticated(h)) {
		transport.SkipBody(h)
	}
	return c
}

// requestPath is the path of a request as it was sent, before fasthttp parses it.
func requestPath(h *fasthttp.RequestHeader) []byte {
	path := h.RequestURI()
	if len(path) == 0 || path[0] != '/' { // http://host/path
		_, rest, _ := bytes.Cut(path, []byte("://"))
		path = rest[max(0, bytes.IndexByte(rest, '/')):]
	}
	path, _, _ = bytes.Cut(path, []byte{'?'})
	return path
}

// unauthenticated reports whether a request is for no namespace, or lacks a
// token of its namespace. It looks at the target as it was sent; admit, which
// decides, knows only one spelling of each.
func (s *Server) unauthenticated(h *fasthttp.RequestHeader) bool {
	path := requestPath(h)
	if bytes.HasPrefix(path, []byte("/beacon/")) {
		return false // the handler reads none of a body that is too large for a beacon
	}
	if p, _, pattern := sdkOf(path); pattern != "" {
		key := p.adapter.HeaderKey(h)
		inBody := key == "" && len(p.adapter.BodyKeys()) > 0 // perhaps
		return s.writeKeys.none() || !inBody && s.writeKeys.find(key) == nil
	}
	if m, _ := s.mountOf(path, path); m != nil && m.Owns == nil {
		return false // its handler knows where the token is
	}
	path, isV1 := bytes.CutPrefix(path, []byte("/v1/"))
	name, _, _ := bytes.Cut(path, []byte{'/'})
	if !isV1 {
		return true
	}
	known := textOf(name)
	_, rejected := s.keyring.Load().authenticate(known, s.hasNamespace(known), bearer(h))
	return rejected != nil
}
