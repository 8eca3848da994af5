package ingest

import (
	"bytes"
	"strconv"
	"unsafe"

	"github.com/valyala/fasthttp"
)

// largeBody, in bytes, is worth a look at its head before it is read. To read a
// smaller one and keep the connection is cheaper than another connection.
const largeBody = 64 << 10

// maxHeaders bounds how many headers a request has: parsed, a header of 5 bytes
// takes 85, held for as long as the body is waited for.
const maxHeaders = 128

// headerSkippedBody holds the announced length of a body that stays unread. No
// client can send it: a name holds no space.
var headerSkippedBody = []byte(" unread")

// early keeps fasthttp from waiting for the body of a request that is rejected
// for its headers, or for a large one that will be: to fasthttp it has none
// then, and admit says what it really is.
func (s *Server) headerReceived(h *fasthttp.RequestHeader) (c fasthttp.RequestConfig) {
	defer func() { s.panicked(recover()) }() // the handler meets the same and answers
	n := h.ContentLength()
	if tooManyHeaders(h) || n > s.cfg.MaxBody || n >= largeBody && (s.noRoomFor(int64(n)) || s.unauthenticated(h)) {
		h.SetCanonical(headerSkippedBody, strconv.AppendInt(nil, int64(n), 10))
		h.SetContentLength(0)
	}
	return c
}

func tooManyHeaders(h *fasthttp.RequestHeader) bool {
	raw := h.RawHeaders()
	return len(raw) > maxHeaders*len("a:b\r\n") && bytes.Count(raw, []byte{'\n'}) > maxHeaders
}

// noRoomFor reports whether there is no room for a body of n bytes.
func (s *Server) noRoomFor(n int64) bool {
	return s.inflight.Load()+n > s.cfg.MaxInflightBytes || s.incomplete.Load()+n > s.cfg.MaxInflightBytes/2
}

// bodyLength is how long a body is said to be, in bytes, and whether it stays
// unread. A length below 0 says that it comes in chunks, or not at all.
func bodyLength(h *fasthttp.RequestHeader) (n int, unread bool) {
	if n = h.ContentLength(); n != 0 {
		return n, false
	}
	value := h.PeekCanonical(headerSkippedBody)
	if len(value) == 0 {
		return 0, false
	}
	n, _ = strconv.Atoi(string(value))
	return n, true
}

// unauthenticated reports whether a request is none for a namespace, or lacks its
// token. It judges the target as sent; admit, which decides, knows only one
// spelling of each.
func (s *Server) unauthenticated(h *fasthttp.RequestHeader) bool {
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
	_, rejected := s.keyring.check(s.store.Namespace(unsafe.String(unsafe.SliceData(name), len(name))), h)
	return rejected != nil
}
