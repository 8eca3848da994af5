package ingest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// prefetched, in bytes, is how much of a body fasthttp reads before it calls
// the handler. A smaller body of stated length is complete by then. Of a larger
// one, and of one in chunks, the handler reads the rest.
const prefetched = 8 << 10

// receive returns the body of an admitted request, decompressed. As it is sent, it may
// have maxBody bytes.
func (s *Server) receive(ctx *fasthttp.RequestCtx, r *request, maxBody int) ([]byte, *rejection) {
	body, coding, rejected := s.receiveSent(ctx, r, maxBody)
	if rejected != nil || coding == "" {
		return body, rejected
	}
	return s.inflate(r, coding, body)
}

// receiveSent returns the body of a request as it was sent, and its coding.
func (s *Server) receiveSent(ctx *fasthttp.RequestCtx, r *request,
	maxBody int) (body []byte, coding string, rejected *rejection) {
	coding, known := contentCoding(ctx.Request.Header.PeekAll(fasthttp.HeaderContentEncoding))
	if !known {
		return nil, "", reject(wire.CodeUnsupportedEncoding)
	}
	body, rejected = s.readBody(ctx, r, maxBody)
	if rejected == nil && len(body) == 0 {
		rejected = reject(wire.CodeEmptyBody)
	}
	return body, coding, rejected
}

// contentCoding is gzip, zstd, or empty for a body that is not compressed.
func contentCoding(headers [][]byte) (name string, known bool) {
	if len(headers) == 0 {
		return "", true
	}
	for _, name := range []string{"gzip", "zstd"} {
		if strings.EqualFold(name, unsafe.String(unsafe.SliceData(headers[0]), len(headers[0]))) {
			return name, true
		}
	}
	return "", bytes.EqualFold(headers[0], []byte("identity"))
}

// readBody reads the body as it was sent. Memory grows with what has arrived,
// by doubling, and is reserved before it is allocated. So a body that is
// announced and does not come costs only what has arrived of it.
func (s *Server) readBody(ctx *fasthttp.RequestCtx, r *request, maxBody int) ([]byte, *rejection) {
	stream, n := ctx.Request.BodyStream(), ctx.Request.Header.ContentLength()
	switch {
	case stream == nil: // there is no body
		body := ctx.PostBody()
		return body, s.reserve(r, len(body))
	case n < 0:
		return s.readLarge(stream, maxBody+1, maxBody, r)
	case n > prefetched:
		body, rejected := s.readLarge(stream, n, maxBody, r)
		if rejected == nil && len(body) < n { // to fasthttp this is the end of the body
			return nil, rejectReadError(io.ErrUnexpectedEOF)
		}
		return body, rejected
	}
	if rejected := s.reserve(r, n); rejected != nil {
		return nil, rejected
	}
	r.small = slices.Grow(r.small[:0], n)[:n]
	if _, err := io.ReadFull(stream, r.small); err != nil {
		return nil, rejectReadError(err)
	}
	return r.small, nil
}

// readLarge reads up to limit bytes, or to the end of the stream. It rejects more than
// maxBody.
func (s *Server) readLarge(stream io.Reader, limit, maxBody int, r *request) ([]byte, *rejection) {
	for {
		if len(r.large) == cap(r.large) {
			if rejected := s.enlarge(r, min(2*cap(r.large), limit)); rejected != nil {
				return nil, rejected
			}
		}
		n, err := stream.Read(r.large[len(r.large):cap(r.large)])
		r.large = r.large[:len(r.large)+n]
		switch {
		case len(r.large) > maxBody:
			rejected := bodyTooLarge(maxBody)
			rejected.Close = true // the rest of the body may be of any length
			return nil, rejected
		case errors.Is(err, io.EOF):
			s.bodyComplete(r)
			return r.large, nil
		case err != nil:
			return nil, rejectReadError(err)
		}
	}
}

// enlarge moves a body that is still arriving into a buffer of n bytes or more.
// While it is copied, both buffers are reserved.
func (s *Server) enlarge(r *request, n int) *rejection {
	before := cap(r.large)
	if rejected := s.reserveIncomplete(r, before+bufferSize(n)); rejected != nil {
		return rejected
	}
	buffer := append(s.buffers.get(n), r.large...)
	s.buffers.put(r.large)
	r.large = buffer
	return s.reserveIncomplete(r, cap(buffer))
}

// discardBody reads what a handler left of a body, up to 64 KiB, so that another
// request can follow on the connection. When it returns false, more is left, and
// the connection has to be closed.
func (s *Server) discardBody(ctx *fasthttp.RequestCtx) bool {
	stream, n := ctx.Request.BodyStream(), ctx.Request.Header.ContentLength()
	if stream == nil || 0 <= n && n <= prefetched {
		return true
	}
	// Reading a stream after its end returns io.EOF again.
	buffer := discardBuffers.Get().(*[4 << 10]byte)
	defer discardBuffers.Put(buffer)
	for left := largeBody; left > 0; {
		n, err := stream.Read(buffer[:min(left, len(buffer))])
		left -= n
		if err != nil {
			return errors.Is(err, io.EOF)
		}
	}
	return false
}

var discardBuffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

func bodyTooLarge(maxBody int) *rejection {
	return rejectf(wire.CodeBodyTooLarge, "the body is larger than %d bytes: send less a request, or compress it", maxBody)
}
