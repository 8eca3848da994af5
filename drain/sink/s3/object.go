package s3

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/spillway-io/spillway/drain/sink"
)

// An object is which batches of a Write share an object, by position.
type object struct{ batches []int }

// split divides a Write by namespace, and with per=partition by partition, too. The
// batches keep their order.
func (s *Sink) split(batches []*sink.Batch) []object {
	type name struct{ namespace, partition string }
	var objects []object
	index := map[name]int{}
	for i, b := range batches {
		n := name{namespace: b.Namespace}
		if s.perPartition {
			n.partition = b.Partition
		}
		at, known := index[n]
		if !known {
			at = len(objects)
			index[n] = at
			objects = append(objects, object{})
		}
		objects[at].batches = append(objects[at].batches, i)
	}
	return objects
}

// path is the place of an object: a function of its entries alone.
func (s *Sink) path(o object, batches []*sink.Batch) string {
	oldest, first := int64(math.MaxInt64), int64(math.MaxInt64)
	ids := make([]string, 0, len(o.batches))
	for _, i := range o.batches {
		b := batches[i]
		for e := range b.Entries {
			oldest = min(oldest, b.Entries[e].Occurred)
			first = min(first, b.Entries[e].Seq)
		}
		ids = append(ids, b.ID())
	}
	slices.Sort(ids)
	h := sha256.New()
	for _, id := range ids {
		_, _ = io.WriteString(h, id) // all of one length; a hash does not fail
	}
	hash := hex.EncodeToString(h.Sum(nil)[:16])
	day := time.UnixMilli(oldest).UTC().Format("date=2006-01-02/hour=15")
	b := batches[o.batches[0]]
	if s.perPartition {
		return fmt.Sprintf("%s%s/%s/%s/%d-%s%s", s.base, b.Namespace, b.Partition, day, first, hash,
			s.format.suffix)
	}
	return fmt.Sprintf("%s%s/%s/%d-%s%s", s.base, b.Namespace, day, oldest, hash, s.format.suffix)
}

// body returns fresh memory: the transport may still read it after the round trip has
// failed. Lines are compressed one by one, so the whole exists in its compressed form only.
func (s *Sink) body(o object, batches []*sink.Batch) []byte {
	var out bytes.Buffer
	w, _ := s.compressors.Get().(compressor)
	w.Reset(&out)
	var line []byte
	for _, i := range o.batches {
		for e := range batches[i].Entries {
			line = sink.AppendLine(line[:0], batches[i], e)
			_, _ = w.Write(line) // a bytes.Buffer does not fail
		}
	}
	_ = w.Close()
	w.Reset(nil) // keeps nothing of the object
	s.compressors.Put(w)
	return out.Bytes()
}

// A compressor holds large state, for use again.
type compressor interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// A format is how an object is stored. The compression is the object's own, not a
// Content-Encoding: readers get the bytes that the suffix promises.
type format struct {
	suffix, contentType string
	newCompressor       func() any
}

var formats = map[string]format{
	"gzip": {".ndjson.gz", "application/gzip", func() any {
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
		return w
	}},
	"zstd": {".ndjson.zst", "application/zstd", func() any {
		// One goroutine, the caller's; a window of 1 MiB is what readers surely have.
		w, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithWindowSize(1<<20))
		return w
	}},
	"none": {".ndjson", "application/x-ndjson", func() any { return &plain{} }},
}

// plain compresses nothing.
type plain struct{ io.Writer }

func (p *plain) Reset(w io.Writer) { p.Writer = w }
func (p *plain) Close() error      { return nil }
