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

	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/ingest/wire"
)

// prefetched, in bytes, is how much of a body fasthttp reads before it calls
// the handler. A smaller body of stated length is complete by then. Of a larger
// one, and of one in chunks, the handler reads the rest.
const prefetched = 8 << 10

// largeBody, in bytes: before a body of this size is read, its headers are
// checked. Reading a smaller body of a rejected request costs less than another
// connection does.
const largeBody = 64 << 10

// receive returns the body of an admitted request, decompressed. As it is sent, it may
// have maxBody bytes.
func (b *body) receive(ctx *fasthttp.RequestCtx, maxBody int) ([]byte, *rejection) {
	sent, coding, rejected := b.receiveSent(ctx, maxBody)
	if rejected != nil || coding == "" {
		return sent, rejected
	}
	return b.inflate(coding, sent)
}

// receiveSent returns the body of a request as it was sent, and its coding.
func (b *body) receiveSent(ctx *fasthttp.RequestCtx, maxBody int) (sent []byte, coding string, rejected *rejection) {
	coding, known := contentCoding(ctx.Request.Header.PeekAll(fasthttp.HeaderContentEncoding))
	if !known {
		return nil, "", reject(wire.CodeUnsupportedEncoding)
	}
	sent, rejected = b.read(ctx, maxBody)
	if rejected == nil && len(sent) == 0 {
		rejected = reject(wire.CodeEmptyBody)
	}
	return sent, coding, rejected
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

// read reads the body as it was sent. Memory grows with what has arrived,
// by doubling, and is reserved before it is allocated. So a body that is
// announced and does not come costs only what has arrived of it.
func (b *body) read(ctx *fasthttp.RequestCtx, maxBody int) ([]byte, *rejection) {
	stream, n := ctx.Request.BodyStream(), ctx.Request.Header.ContentLength()
	switch {
	case stream == nil: // there is no body
		sent := ctx.PostBody()
		return sent, b.reserveInAll(len(sent))
	case n < 0:
		return b.readLarge(stream, maxBody+1, maxBody)
	case n > prefetched:
		sent, rejected := b.readLarge(stream, n, maxBody)
		if rejected == nil && len(sent) < n { // to fasthttp this is the end of the body
			return nil, transport.ReadError(io.ErrUnexpectedEOF)
		}
		return sent, rejected
	}
	if rejected := b.reserveInAll(n); rejected != nil {
		return nil, rejected
	}
	b.small = slices.Grow(b.small[:0], n)[:n]
	if _, err := io.ReadFull(stream, b.small); err != nil {
		return nil, transport.ReadError(err)
	}
	return b.small, nil
}

// readLarge reads up to limit bytes, or to the end of the stream. It rejects more than
// maxBody.
func (b *body) readLarge(stream io.Reader, limit, maxBody int) ([]byte, *rejection) {
	for {
		if len(b.large) == cap(b.large) {
			if rejected := b.enlarge(min(2*cap(b.large), limit)); rejected != nil {
				return nil, rejected
			}
		}
		n, err := stream.Read(b.large[len(b.large):cap(b.large)])
		b.large = b.large[:len(b.large)+n]
		switch {
		case len(b.large) > maxBody:
			rejected := bodyTooLarge(maxBody)
			rejected.Close = true // the rest of the body may be of any length
			return nil, rejected
		case errors.Is(err, io.EOF):
			b.complete()
			return b.large, nil
		case err != nil:
			return nil, transport.ReadError(err)
		}
	}
}

// enlarge moves a body that is still arriving into a buffer of n bytes or more.
// While it is copied, both buffers are reserved.
func (b *body) enlarge(n int) *rejection {
	before := cap(b.large)
	if rejected := b.reserveIncomplete(before + bufferSize(n)); rejected != nil {
		return rejected
	}
	buffer := append(b.memory.buffers.get(n), b.large...)
	b.memory.buffers.put(b.large)
	b.large = buffer
	return b.reserveIncomplete(cap(buffer))
}

// discardBody reads what a handler left of a body, up to 64 KiB, so that another
// request can follow on the connection. When it returns false, more is left, and
// the connection has to be closed.
func discardBody(ctx *fasthttp.RequestCtx) bool {
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
