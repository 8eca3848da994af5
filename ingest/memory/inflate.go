package memory

import (
	"bytes"
	"errors"
	"io"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/share"
)

// headBytes is how much of a body is decompressed to look for the key of an SDK, and
// maxHeadInput how much is read for it: a body may go on for long and decompress to nothing.
const (
	headBytes    = 1 << 10
	maxHeadInput = 4 << 10
)

// zstdWindow is the largest window that RFC 9659 lets a zstd content coding use.
const zstdWindow = 8 << 20

var errTooLarge = errors.New("decompressed body is too large")

// inflater decompresses bodies. It runs one decoder a core, in turns by namespace, and one
// more, so that a namespace that uses all cores leaves a place to another.
type inflater struct {
	limit int           // of a decompressed body, bytes
	wait  time.Duration // for a turn
	turns *share.Turns
	gzip  sync.Pool
	zstd  *zstd.Decoder
	slots chan struct{} // one for each body that zstd may decode at once
}

// reserveFunc raises the reservation for a decompressed body to n bytes in all,
// before they are allocated. It returns errNoRoom when the budget has no room.
type reserveFunc func(n int) error

var errNoRoom = errors.New("no memory left for the decompressed body")

// zstdDecoders is how many bodies zstd decodes at once. Each reserves
// MaxDecompressed, so all together take at most a quarter of the budget,
// unless one alone takes more.
func (c Config) zstdDecoders() int {
	fits := int(c.MaxInflightBytes / 4 / int64(c.MaxDecompressed))
	return min(max(1, fits), runtime.GOMAXPROCS(0))
}

type gzipDecoder struct {
	src bytes.Reader
	gzip.Reader
}

func newInflater(cfg Config) (*inflater, error) {
	limit := cfg.MaxDecompressed
	cores := runtime.GOMAXPROCS(0)
	decoders := cfg.zstdDecoders()
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(decoders),
		// The decoder needs memory for a whole window, so unzstd checks the exact
		// limit itself.
		zstd.WithDecoderMaxMemory(uint64(max(limit, zstdWindow))),
		zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		return nil, err
	}
	f := &inflater{
		limit: limit,
		wait:  cfg.Wait,
		turns: share.NewTurns(cores+1, math.MaxInt),
		zstd:  z,
		slots: make(chan struct{}, decoders),
	}
	f.gzip.New = func() any { return &gzipDecoder{} }
	return f, nil
}

// Head returns the first KiB of a body that gzip may have compressed, or what there is of it.
func (b *Body) Head(sent []byte) []byte {
	f := b.budget.inflater
	d := f.gzip.Get().(*gzipDecoder)
	defer f.free(d)
	d.src.Reset(sent[:min(len(sent), maxHeadInput)])
	if d.Reset(&d.src) != nil {
		return nil
	}
	head := make([]byte, headBytes)
	n, _ := io.ReadFull(d, head)
	return head[:n]
}

func (f *inflater) free(d *gzipDecoder) {
	d.src.Reset(nil)
	f.gzip.Put(d)
}

// gunzip appends the decompressed body to dst, or fails with errTooLarge or
// because the body is corrupt. Several gzip members in a row are one body.
func (f *inflater) gunzip(dst, body []byte, reserve reserveFunc) ([]byte, error) {
	d := f.gzip.Get().(*gzipDecoder)
	defer f.free(d)
	d.src.Reset(body)
	// Each member is started here. In multistream mode the reader would take a
	// member whose header is cut short for the end of the body.
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
		if len(dst) >= Large {
			runtime.Gosched() // other requests need the core for less
		}
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
			_ = reserve(n) // it is less than before, so it cannot fail
		}
	}
}

// unzstd is gunzip for zstd. The size of the decompressed body is not known
// before it is decoded, so until then unzstd reserves the limit.
func (f *inflater) unzstd(dst, body []byte, reserve reserveFunc) ([]byte, error) {
	f.slots <- struct{}{}
	defer func() { <-f.slots }()
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

// Inflate decompresses what was sent: gzip or zstd.
func (b *Body) Inflate(coding string, sent []byte) ([]byte, *wire.Rejection) {
	f, received := b.budget.inflater, int(b.reserved)
	reserve := func(n int) error {
		if b.ReserveInAll(received+n) != nil {
			return errNoRoom
		}
		return nil
	}
	err := errNoRoom
	f.turns.DoFor(b.payer.namespace, f.wait, func() {
		if coding == "zstd" {
			b.inflated, err = f.unzstd(b.inflated[:0], sent, reserve)
		} else {
			b.inflated, err = f.gunzip(b.inflated[:0], sent, reserve)
		}
	})
	switch {
	case errors.Is(err, errNoRoom):
		return nil, wire.Reject(wire.CodeOverloaded)
	case errors.Is(err, errTooLarge):
		return nil, wire.Rejectf(wire.CodeBodyTooLarge,
			"the decompressed body is larger than %d bytes: send less a request", f.limit)
	case err != nil:
		return nil, wire.Reject(wire.CodeBadEncoding)
	case len(b.inflated) == 0:
		return nil, wire.Reject(wire.CodeEmptyBody)
	}
	return b.inflated, nil
}
