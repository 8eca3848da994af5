package ingest

import (
	"bytes"
	"errors"
	"io"
	"runtime"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// zstdWindow is the largest window that RFC 9659 lets a zstd content coding use.
const zstdWindow = 8 << 20

var errTooLarge = errors.New("decompressed body is too large")

// inflater undoes Content-Encoding. It runs one decoder a core: more would not
// be faster, and each may hold a decompressed body that no budget counts yet.
type inflater struct {
	limit int // of a decompressed body, bytes
	gzip  chan *gzipDecoder
	zstd  *zstd.Decoder // bounds itself the same way
}

type gzipDecoder struct {
	src bytes.Reader
	gzip.Reader
}

func newInflater(limit int) (*inflater, error) {
	cores := runtime.GOMAXPROCS(0)
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(cores),
		// Less memory than a window would refuse honest windows too, so the
		// exact limit is unzstd's.
		zstd.WithDecoderMaxMemory(uint64(max(limit, zstdWindow))),
		zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		return nil, err
	}
	f := &inflater{limit: limit, gzip: make(chan *gzipDecoder, cores), zstd: z}
	for range cores {
		f.gzip <- &gzipDecoder{}
	}
	return f, nil
}

// gunzip appends the decompressed body to dst, or fails with errTooLarge or
// because the body is corrupt. Several members after one another are one body.
func (f *inflater) gunzip(dst, body []byte) ([]byte, error) {
	d := <-f.gzip
	defer func() {
		d.src.Reset(nil)
		f.gzip <- d
	}()
	d.src.Reset(body)
	// Members are begun one by one: the reader itself takes a further one that
	// is cut short in its head for the end of the body.
	member := func() error {
		err := d.Reset(&d.src)
		if err == nil {
			d.Multistream(false)
		}
		return err
	}
	if err := member(); err != nil {
		return dst, err
	}
	if cap(dst) == 0 {
		dst = make([]byte, 0, min(4*len(body), f.limit+1))
	}
	for {
		n, err := d.Read(dst[len(dst):min(cap(dst), f.limit+1)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > f.limit:
			return dst, errTooLarge
		case errors.Is(err, io.EOF) && d.src.Len() == 0:
			return dst, nil
		case errors.Is(err, io.EOF):
			if err := member(); err != nil {
				return dst, err
			}
		case err != nil:
			return dst, err
		case len(dst) == cap(dst):
			dst = append(dst, 0)[:len(dst)]
		}
	}
}

// unzstd is gunzip for zstd.
func (f *inflater) unzstd(dst, body []byte) ([]byte, error) {
	dst, err := f.zstd.DecodeAll(body, dst)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || err == nil && len(dst) > f.limit {
		return dst, errTooLarge
	}
	return dst, err
}

// body returns the request's body, decompressed into r when it was compressed;
// otherwise it is fasthttp's memory.
func (s *Server) body(ctx *fasthttp.RequestCtx, r *request) ([]byte, *refusal) {
	body := ctx.PostBody()
	if len(body) == 0 {
		return nil, refuse(wire.CodeEmptyBody)
	}
	if refused := s.hold(r, len(body)); refused != nil {
		return nil, refused
	}
	encodings := ctx.Request.Header.PeekAll(fasthttp.HeaderContentEncoding)
	if len(encodings) == 0 {
		return body, nil
	}
	var err error
	switch encoding := encodings[0]; {
	case bytes.EqualFold(encoding, []byte("identity")):
		return body, nil
	case bytes.EqualFold(encoding, []byte("gzip")):
		r.inflated, err = s.inflater.gunzip(r.inflated[:0], body)
	case bytes.EqualFold(encoding, []byte("zstd")):
		r.inflated, err = s.inflater.unzstd(r.inflated[:0], body)
	default:
		return nil, refuse(wire.CodeUnsupportedEncoding)
	}
	switch {
	case errors.Is(err, errTooLarge):
		return nil, refusef(wire.CodeBodyTooLarge, "the decompressed body is larger than %d bytes: send fewer entries a request", s.cfg.MaxDecompressed)
	case err != nil:
		return nil, refuse(wire.CodeBadEncoding)
	case len(r.inflated) == 0:
		return nil, refuse(wire.CodeEmptyBody)
	}
	return r.inflated, s.hold(r, len(body)+cap(r.inflated))
}

func (s *Server) bodyTooLarge() *refusal {
	return refusef(wire.CodeBodyTooLarge, "the body is larger than %d bytes: send fewer entries a request, or compress it", s.cfg.MaxBody)
}
