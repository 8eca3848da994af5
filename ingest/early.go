package ingest

import (
	"bytes"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// largeBody, in bytes, is worth a look at its head before it is read. To read a
// smaller one and keep the connection is cheaper than another connection.
const largeBody = 64 << 10

// early keeps fasthttp from reading a large body that will be refused: what is
// announced then counts as too large, and unreadable says what it really is.
func (s *Server) early(h *fasthttp.RequestHeader) (c fasthttp.RequestConfig) {
	defer func() { s.panicked(recover()) }() // the handler meets the same and answers
	n := int64(h.ContentLength())
	if n >= largeBody && (s.inflight.Load()+n > s.cfg.MaxInflightBytes || s.stranger(h)) {
		c.MaxRequestBodySize = 1
	}
	return c
}

// stranger reports whether a request is none for a namespace, or lacks its
// token. It judges the target as sent; admit, which decides, knows only one
// spelling of each.
func (s *Server) stranger(h *fasthttp.RequestHeader) bool {
	path := h.RequestURI()
	if len(path) == 0 || path[0] != '/' { // http://host/path
		_, rest, _ := bytes.Cut(path, []byte("://"))
		path = rest[max(0, bytes.IndexByte(rest, '/')):]
	}
	path, isV1 := bytes.CutPrefix(path, []byte("/v1/"))
	path, _, _ = bytes.Cut(path, []byte{'?'})
	name, _, _ := bytes.Cut(path, []byte{'/'})
	if !isV1 {
		return true
	}
	_, refused := s.keyring.check(s.store.Namespace(unsafe.String(unsafe.SliceData(name), len(name))), h)
	return refused != nil
}

// unread is why a body was not read: whose it is, its size, or that there is no
// room for it.
func (s *Server) unread(ctx *fasthttp.RequestCtx) *refusal {
	if ctx.Request.Header.ContentLength() < largeBody { // early has not seen it, or it came in chunks
		return s.bodyTooLarge()
	}
	var t target
	if refused := s.admit(ctx, &t); refused != nil {
		return refused
	}
	if len(t.path) == 0 { // a probe needs no body
		return s.bodyTooLarge()
	}
	return refuse(wire.CodeOverloaded)
}
