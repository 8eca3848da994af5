package ingest

import (
	"errors"
	"io"
	"math/bits"
	"slices"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// prefetched, in bytes, is how much of a body fasthttp reads before it calls
// the handler. A smaller body of stated length is there whole by then; of a
// larger one, and of one in chunks, the handler reads the rest.
const prefetched = 8 << 10

// receive reads the body of an admitted request. Memory grows with what has
// arrived, by doubling, and is reserved before it is allocated: a body that is
// announced and does not come costs what came of it.
func (s *Server) receive(ctx *fasthttp.RequestCtx, r *request) ([]byte, *rejection) {
	stream, n := ctx.Request.BodyStream(), ctx.Request.Header.ContentLength()
	switch {
	case stream == nil: // there is none
		body := ctx.PostBody()
		return body, s.reserve(r, len(body))
	case n < 0:
		return s.receiveLarge(stream, s.cfg.MaxBody+1, r)
	case n > prefetched:
		body, rejected := s.receiveLarge(stream, n, r)
		if rejected == nil && len(body) < n { // fasthttp takes this for the end
			return nil, s.rejectReadError(io.ErrUnexpectedEOF)
		}
		return body, rejected
	}
	if rejected := s.reserve(r, n); rejected != nil {
		return nil, rejected
	}
	r.small = slices.Grow(r.small[:0], n)[:n]
	if _, err := io.ReadFull(stream, r.small); err != nil {
		return nil, s.rejectReadError(err)
	}
	return r.small, nil
}

// receiveLarge reads up to most bytes, or to the end of the stream.
func (s *Server) receiveLarge(stream io.Reader, most int, r *request) ([]byte, *rejection) {
	for {
		if len(r.large) == cap(r.large) {
			if rejected := s.enlarge(r, min(2*cap(r.large), most)); rejected != nil {
				return nil, rejected
			}
		}
		n, err := stream.Read(r.large[len(r.large):cap(r.large)])
		r.large = r.large[:len(r.large)+n]
		switch {
		case len(r.large) > s.cfg.MaxBody:
			rejected := s.bodyTooLarge()
			rejected.close = true // nobody knows how much more there is
			return nil, rejected
		case errors.Is(err, io.EOF):
			s.bodyComplete(r)
			return r.large, nil
		case err != nil:
			return nil, s.rejectReadError(err)
		}
	}
}

// enlarge moves a body that is still arriving into a buffer of n bytes or more.
// While it is copied both are there.
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

// await raises what a body has reserved while it arrives to total bytes. All of
// them together may have half of the budget: who sends slowly, or never ends,
// leaves the other half to those whose requests are there.
func (s *Server) reserveIncomplete(r *request, total int) *rejection {
	more := int64(total) - r.incomplete
	if s.incomplete.Add(more) > s.cfg.MaxInflightBytes/2 && more > 0 {
		s.incomplete.Add(-more)
		return reject(wire.CodeOverloaded)
	}
	r.incomplete += more
	return s.reserve(r, total)
}

// arrived ends the wait for a body, in whatever way.
func (s *Server) bodyComplete(r *request) {
	if r.incomplete != 0 {
		s.incomplete.Add(-r.incomplete)
		r.incomplete = 0
	}
}

// forget gives the buffer of a large body back, once its entries are encoded.
func (s *Server) releaseBody(r *request) {
	s.buffers.put(r.large)
	r.large = nil
}

// finishBody takes what a handler left of a body off the connection, so that
// another request can follow. It is false when that is too much, or does not
// come: then the connection has to be closed.
func (s *Server) finishBody(ctx *fasthttp.RequestCtx) bool {
	stream, n := ctx.Request.BodyStream(), ctx.Request.Header.ContentLength()
	if stream == nil || 0 <= n && n <= prefetched {
		return true
	}
	// A stream that has ended says so again and again.
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

// buffers keeps some body buffers for the next large bodies. What it keeps is
// bounded, and is never taken for a body of which less has arrived than half.
type buffers [7]chan []byte // of 16 KiB, 32 KiB … 1 MiB

const (
	smallestBuffer = 16 << 10
	keptPerSize    = 1 << 20 // bytes of each size
	// buffersMemory is all that it keeps, in bytes.
	buffersMemory = int64(len(buffers{})) * keptPerSize
)

func newBuffers() *buffers {
	var b buffers
	for i := range b {
		b[i] = make(chan []byte, keptPerSize/(smallestBuffer<<i))
	}
	return &b
}

// step is which of the sizes n bytes fit into.
func step(n int) int { return bits.Len(uint(max(n, 1)-1) / smallestBuffer) }

// bufferSize is the capacity of the buffer that get returns for n bytes.
func bufferSize(n int) int {
	if i := step(n); i < len(buffers{}) {
		return smallestBuffer << i
	}
	return n
}

func (b *buffers) get(n int) []byte {
	if i := step(n); i < len(b) {
		select {
		case buffer := <-b[i]:
			return buffer
		default:
		}
	}
	return make([]byte, 0, bufferSize(n))
}

// put takes a buffer that get returned, or none.
func (b *buffers) put(buffer []byte) {
	i := step(cap(buffer))
	if cap(buffer) == 0 || i >= len(b) {
		return
	}
	select {
	case b[i] <- buffer[:0]:
	default:
	}
}
