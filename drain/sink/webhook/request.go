package webhook

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/drain/sink"
)

func (s *Sink) request(ctx context.Context, b *sink.Batch) (*http.Request, error) {
	body := s.body(b)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	// With a body it could rewind, the transport would repeat a request that
	// has an Idempotency-Key by itself when a connection breaks: a second
	// presentation that the drain does not count.
	req.GetBody = nil
	h := req.Header
	maps.Copy(h, s.headers) // the transport only reads the values
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Accept-Encoding", "identity") // an answer is small, and must be readable
	h.Set("Idempotency-Key", b.ID())
	h.Set("X-Namespace", b.Namespace)
	h.Set("X-Partition", b.Partition)
	h.Set("X-First-Seq", strconv.FormatInt(b.FirstSeq, 10))
	h.Set("X-Attempt", strconv.Itoa(b.Attempt))
	if b.Jobs != nil {
		addJobHeaders(h, b)
	}
	if s.gzip {
		h.Set("Content-Encoding", "gzip")
	}
	if s.keys != nil {
		now := time.Now()
		h.Set("Webhook-Id", b.ID())
		h.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
		h.Set("Webhook-Signature", signatures(s.keys, b.ID(), now, body))
	}
	return req, nil
}

// addJobHeaders says which queue a batch is of, and of a lone job what its line says.
func addJobHeaders(h http.Header, b *sink.Batch) {
	h.Set("X-Spillway-Queue", b.Partition)
	if len(b.Jobs) > 1 {
		return
	}
	j := &b.Jobs[0]
	h.Set("X-Spillway-Job-Id", string(b.Entries[0].ID))
	h.Set("X-Spillway-Attempt", strconv.Itoa(j.Attempt))
	for name, attribute := range map[string]string{"X-Spillway-Shard-Index": "shard_index",
		"X-Spillway-Shard-Total": "shard_total"} {
		// A publisher may give an attribute of that name any text.
		if n, err := strconv.ParseUint(gjson.GetBytes(j.Attributes, attribute).String(), 10, 32); err == nil {
			h.Set(name, strconv.FormatUint(n, 10))
		}
	}
	for name, a := range jobHeaders {
		if text := gjson.GetBytes(j.Attributes, a.attribute).String(); a.form.MatchString(text) {
			h.Set(name, text)
		}
	}
}

// jobHeaders are attributes that go as headers, where they have their form: a publisher may
// give them any text.
var jobHeaders = map[string]struct {
	attribute string
	form      *regexp.Regexp
}{
	"X-Spillway-Schedule": {"schedule", regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)},
	"X-Spillway-Tick":     {"tick", regexp.MustCompile(`^[0-9TZ:.+-]{20,35}$`)},
	// https://www.w3.org/TR/trace-context/#traceparent-header
	"Traceparent": {"traceparent", regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)},
}

// body returns fresh memory: the transport may still read it after the round
// trip has failed.
func (s *Sink) body(b *sink.Batch) []byte {
	if s.gzip {
		z := s.zippers.Get().(*zipper)
		defer s.zippers.Put(z)
		return z.compress(b)
	}
	// The other fields of a line take some 200 bytes.
	size := 0
	for i := range b.Entries {
		size += 256 + len(b.Entries[i].Payload)
	}
	return sink.AppendBatch(make([]byte, 0, size), b)
}

// zipper holds the large state of a compressor, for use again.
type zipper struct {
	w    *gzip.Writer
	line []byte
}

func (z *zipper) compress(b *sink.Batch) []byte {
	var out bytes.Buffer
	z.w.Reset(&out)
	for i := range b.Entries {
		z.line = sink.AppendLine(z.line[:0], b, i)
		_, _ = z.w.Write(z.line) // a bytes.Buffer does not fail
	}
	_ = z.w.Close()
	return out.Bytes()
}
