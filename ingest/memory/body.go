package memory

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
	"github.com/spillway-io/spillway/partition/share"
)

// Prefetched, in bytes, is how much of a body fasthttp reads before it calls
// the handler. A smaller body of stated length is complete by then. Of a larger
// one, and of one in chunks, the handler reads the rest.
const Prefetched = 8 << 10

// Large, in bytes: before a body of this size is read, its headers are
// checked. Reading a smaller body of a rejected request costs less than another
// connection does.
const Large = 64 << 10

// Body is the body of a request, and what the request has reserved of the budget.
type Body struct {
	budget   *Budget
	small    []byte // what arrived with the headers
	large    []byte // what arrived later; from Budget.buffers
	inflated []byte // decompressed

	payer      *Tenant
	reserved   int64 // bytes
	incomplete int64 // the part of reserved that is for a body still arriving
	waits      bool  // its connection has a place of Budget.Conns
}

// maxKept is up to how many bytes a buffer is kept for the next body, so that one large body
// does not keep its memory for ever.
const maxKept = 256 << 10

// Charge makes t pay, also for what is reserved.
func (b *Body) Charge(t *Tenant) *wire.Rejection {
	if b.payer == t {
		return nil
	}
	if !t.held.Take(b.reserved, 0) {
		return wire.Reject(wire.CodeOverloaded)
	}
	b.payer.held.Give(b.reserved)
	b.payer = t
	return nil
}

// Reserve reserves n more bytes of the budget. Memory is reserved before it is
// allocated, and given back by Release.
func (b *Body) Reserve(n int) *wire.Rejection { return b.ReserveInAll(int(b.reserved) + n) }

// ReserveInAll raises what is reserved to total bytes.
func (b *Body) ReserveInAll(total int) *wire.Rejection {
	more := int64(total) - b.reserved
	if !b.payer.held.Take(more, b.reserved) {
		return wire.Reject(wire.CodeOverloaded)
	}
	b.reserved += more
	return nil
}

// Wait is Reserve before the request waits for what may come: so it takes a place of
// Budget.Conns as well, until Release.
func (b *Body) Wait(n int) *wire.Rejection {
	if !b.waits {
		if !b.payer.conns.Take(1, 0) {
			return wire.Reject(wire.CodeOverloaded)
		}
		b.waits = true
	}
	return b.Reserve(n)
}

// reserveIncomplete is ReserveInAll for a body that is still arriving. All of those
// together may have half of the budget: clients that send slowly, or never
// finish, leave the other half to complete requests.
func (b *Body) reserveIncomplete(total int) *wire.Rejection {
	more := int64(total) - b.incomplete
	if !b.payer.arriving.Take(more, b.incomplete) {
		return wire.Reject(wire.CodeOverloaded)
	}
	b.incomplete += more
	return b.ReserveInAll(total)
}

// complete ends what reserveIncomplete began, also after an error. Nobody else may pay
// before.
func (b *Body) complete() {
	if b.incomplete != 0 {
		b.payer.arriving.Give(b.incomplete)
		b.incomplete = 0
	}
}

// Release gives back what is reserved. Past half of the budget its owner must not keep the
// buffers in a pool: the next request would be charged for what it does not need.
func (b *Body) Release() (keep bool) {
	b.ReleaseLarge()
	b.complete()
	b.payer.held.Give(b.reserved)
	if b.waits {
		b.payer.conns.Give(1)
	}
	m := b.budget
	*b = Body{budget: m, payer: m.unknown, small: b.small[:0], inflated: b.inflated[:0]}
	if cap(b.inflated) > maxKept {
		b.inflated = nil
	}
	return m.Held.Used() <= m.Held.Limit()/2
}

// ReleaseLarge gives the buffer of a large body back, once its entries are encoded.
func (b *Body) ReleaseLarge() {
	b.budget.buffers.put(b.large)
	b.large = nil
}

// Account is who pays for what is reserved; nil for no body.
func (b *Body) Account() *share.Account {
	if b == nil {
		return nil
	}
	return b.payer.held
}

// Size is the memory of the buffers, in bytes.
func (b *Body) Size() int { return cap(b.small) + cap(b.large) + cap(b.inflated) }

// Receive returns the body of an admitted request, decompressed. As it is sent, it may
// have maxBody bytes.
func (b *Body) Receive(ctx *fasthttp.RequestCtx, maxBody int) ([]byte, *wire.Rejection) {
	sent, coding, rejected := b.ReceiveSent(ctx, maxBody)
	if rejected != nil || coding == "" {
		return sent, rejected
	}
	return b.Inflate(coding, sent)
}

// ReceiveSent returns the body of a request as it was sent, and its coding.
func (b *Body) ReceiveSent(ctx *fasthttp.RequestCtx, maxBody int) (sent []byte, coding string,
	rejected *wire.Rejection) {
	coding, known := contentCoding(ctx.Request.Header.PeekAll(fasthttp.HeaderContentEncoding))
	if !known {
		return nil, "", wire.Reject(wire.CodeUnsupportedEncoding)
	}
	sent, rejected = b.Read(ctx, maxBody)
	if rejected == nil && len(sent) == 0 {
		rejected = wire.Reject(wire.CodeEmptyBody)
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

// Read reads the body as it was sent. Memory grows with what has arrived,
// by doubling, and is reserved before it is allocated. So a body that is
// announced and does not come costs only what has arrived of it.
func (b *Body) Read(ctx *fasthttp.RequestCtx, maxBody int) ([]byte, *wire.Rejection) {
	stream, n := ctx.Request.BodyStream(), ctx.Request.Header.ContentLength()
	switch {
	case stream == nil: // there is no body
		sent := ctx.PostBody()
		return sent, b.ReserveInAll(len(sent))
	case n < 0:
		return b.readLarge(stream, maxBody+1, maxBody)
	case n > Prefetched:
		sent, rejected := b.readLarge(stream, n, maxBody)
		if rejected == nil && len(sent) < n { // to fasthttp this is the end of the body
			return nil, transport.ReadError(io.ErrUnexpectedEOF)
		}
		return sent, rejected
	}
	if rejected := b.ReserveInAll(n); rejected != nil {
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
func (b *Body) readLarge(stream io.Reader, limit, maxBody int) ([]byte, *wire.Rejection) {
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
			rejected := TooLarge(maxBody)
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
func (b *Body) enlarge(n int) *wire.Rejection {
	before := cap(b.large)
	if rejected := b.reserveIncomplete(before + bufferSize(n)); rejected != nil {
		return rejected
	}
	buffer := append(b.budget.buffers.get(n), b.large...)
	b.budget.buffers.put(b.large)
	b.large = buffer
	return b.reserveIncomplete(cap(buffer))
}

// Discard reads what a handler left of a body, up to 64 KiB, so that another
// request can follow on the connection. When it returns false, more is left, and
// the connection has to be closed.
func Discard(ctx *fasthttp.RequestCtx) bool {
	stream, n := ctx.Request.BodyStream(), ctx.Request.Header.ContentLength()
	if stream == nil || 0 <= n && n <= Prefetched {
		return true
	}
	// Reading a stream after its end returns io.EOF again.
	buffer := discardBuffers.Get().(*[4 << 10]byte)
	defer discardBuffers.Put(buffer)
	for left := Large; left > 0; {
		n, err := stream.Read(buffer[:min(left, len(buffer))])
		left -= n
		if err != nil {
			return errors.Is(err, io.EOF)
		}
	}
	return false
}

var discardBuffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// TooLarge rejects a body of more than maxBody bytes as it is sent.
func TooLarge(maxBody int) *wire.Rejection {
	return wire.Rejectf(wire.CodeBodyTooLarge, "the body is larger than %d bytes: send less a request, or compress it", maxBody)
}
