package ingest

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"unsafe"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// zstdWindow is the largest window that RFC 9659 lets a zstd content coding use.
const zstdWindow = 8 << 20

var errTooLarge = errors.New("decompressed body is too large")

// inflater undoes Content-Encoding. It runs one decoder a core at most: more
// would not be faster.
type inflater struct {
	limit int // of a decompressed body, bytes
	gzip  chan *gzipDecoder
	zstd  *zstd.Decoder
	zstds chan struct{} // a place for each body that zstd may decode at once
}

// reserveFunc has n bytes in all counted for a decompressed body; errNoRoom
// when there are not as many. It is asked before they are allocated.
type reserveFunc func(n int) error

var errNoRoom = errors.New("no room for the decompressed body")

// zstdDecoders is how many bodies zstd decodes at once. Each reserves the whole
// limit, so all together take a quarter of the budget where one does not.
func zstdDecoders(cfg Config) int {
	most := int(cfg.MaxInflightBytes / 4 / int64(cfg.MaxDecompressed))
	return min(max(1, most), runtime.GOMAXPROCS(0))
}

type gzipDecoder struct {
	src bytes.Reader
	gzip.Reader
}

func newInflater(cfg Config) (*inflater, error) {
	limit, cores, places := cfg.MaxDecompressed, runtime.GOMAXPROCS(0), zstdDecoders(cfg)
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(places),
		// Less memory than a window would reject honest windows too, so the
		// exact limit is unzstd's.
		zstd.WithDecoderMaxMemory(uint64(max(limit, zstdWindow))),
		zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		return nil, err
	}
	f := &inflater{limit: limit, gzip: make(chan *gzipDecoder, cores), zstd: z, zstds: make(chan struct{}, places)}
	for range cores {
		f.gzip <- &gzipDecoder{}
	}
	return f, nil
}

// gunzip appends the decompressed body to dst, or fails with errTooLarge or
// because the body is corrupt. Several members after one another are one body.
func (f *inflater) gunzip(dst, body []byte, reserve reserveFunc) ([]byte, error) {
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
		n := min(4*len(body), f.limit+1)
		if err := reserve(n); err != nil {
			return dst, err
		}
		dst = make([]byte, 0, n)
	} else if err := reserve(cap(dst)); err != nil {
		return dst, err
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
			n := min(2*cap(dst), f.limit+1)
			if err := reserve(cap(dst) + n); err != nil {
				return dst, err
			}
			dst = append(make([]byte, 0, n), dst...)
			_ = reserve(n) // less than before
		}
	}
}

// unzstd is gunzip for zstd. How large a body becomes shows when it has been
// decoded, so meanwhile the limit is reserved.
func (f *inflater) unzstd(dst, body []byte, reserve reserveFunc) ([]byte, error) {
	f.zstds <- struct{}{}
	defer func() { <-f.zstds }()
	if err := reserve(max(cap(dst), f.limit)); err != nil {
		return dst, err
	}
	dst, err := f.zstd.DecodeAll(body, dst)
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded) || err == nil && len(dst) > f.limit:
		return dst, errTooLarge
	case err != nil:
		return dst, err
	}
	return dst, reserve(cap(dst))
}

// body returns the request's body, decompressed into r when it was compressed.
func (s *Server) body(ctx *fasthttp.RequestCtx, r *request) ([]byte, *rejection) {
	coding, known := contentCoding(ctx.Request.Header.PeekAll(fasthttp.HeaderContentEncoding))
	if !known {
		return nil, reject(wire.CodeUnsupportedEncoding)
	}
	body, rejected := s.receive(ctx, r)
	switch {
	case rejected != nil:
		return nil, rejected
	case len(body) == 0:
		return nil, reject(wire.CodeEmptyBody)
	case coding == "":
		return body, nil
	}
	received := int(r.reserved)
	reserve := func(n int) error {
		if s.reserve(r, received+n) != nil {
			return errNoRoom
		}
		return nil
	}
	var err error
	if coding == "zstd" {
		r.inflated, err = s.inflater.unzstd(r.inflated[:0], body, reserve)
	} else {
		r.inflated, err = s.inflater.gunzip(r.inflated[:0], body, reserve)
	}
	switch {
	case errors.Is(err, errNoRoom):
		return nil, reject(wire.CodeOverloaded)
	case errors.Is(err, errTooLarge):
		return nil, rejectf(wire.CodeBodyTooLarge, "the decompressed body is larger than %d bytes: send fewer entries a request", s.cfg.MaxDecompressed)
	case err != nil:
		return nil, reject(wire.CodeBadEncoding)
	case len(r.inflated) == 0:
		return nil, reject(wire.CodeEmptyBody)
	}
	return r.inflated, nil
}

// contentCoding is gzip, zstd, or empty for a body that is sent plainly.
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

func (s *Server) bodyTooLarge() *rejection {
	return rejectf(wire.CodeBodyTooLarge, "the body is larger than %d bytes: send fewer entries a request, or compress it", s.cfg.MaxBody)
}
