package clickhouse

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/klauspost/compress/gzip"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxAnswer is how many bytes of an answer are read: an exception begins with its code.
const maxAnswer = 4 << 10

// insertion are the parameters of an INSERT of the batches.
func (s *Sink) insertion(known map[string]bool, batches []*sink.Batch) url.Values {
	query := maps.Clone(s.insert)
	if s.async {
		query.Set("async_insert", "1")
	}
	if known["wait_for_async_insert"] {
		// Otherwise a server whose profile turns async_insert on, and this off, would
		// answer before it has written anything.
		query.Set("wait_for_async_insert", "1")
	}
	if known["insert_deduplication_token"] {
		query.Set("insert_deduplication_token", token(batches))
	}
	return query
}

// token is a hash of the batches' ids, in their order: 32 hex digits.
func token(batches []*sink.Batch) string {
	h := sha256.New()
	for _, b := range batches {
		_, _ = io.WriteString(h, b.ID()) // of fixed length
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// post sends a query, whose data is gzipped rows or nil, and reads the beginning of the answer.
func (s *Sink) post(ctx context.Context, query url.Values, rows []byte) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint+"?"+query.Encode(),
		bytes.NewReader(rows))
	if err != nil {
		return answer{}, sink.FaultError(ctx, "post to", s.host, err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	if rows != nil {
		req.Header.Set("Content-Encoding", "gzip")
	}
	if s.auth != "" {
		req.Header.Set("Authorization", s.auth)
	}
	// Where the body breaks off, the exception may be in what is missing.
	a, err := sink.Send(s.transport, req, "post to", s.host, maxAnswer)
	return answer(a), err
}

// rows are the entries as gzipped lines of JSONEachRow, in fresh memory: the transport may
// read it after the round trip failed.
func (s *Sink) rows(batches []*sink.Batch) []byte {
	z := s.zippers.Get().(*zipper)
	defer s.zippers.Put(z)
	var out bytes.Buffer
	z.w.Reset(&out)
	for _, b := range batches {
		z.prefix = appendString(append(z.prefix[:0], `{"namespace":`...), []byte(b.Namespace))
		z.prefix = appendString(append(z.prefix, `,"partition":`...), []byte(b.Partition))
		for i := range b.Entries {
			z.line = appendRow(append(z.line[:0], z.prefix...), &b.Entries[i])
			_, _ = z.w.Write(z.line) // a bytes.Buffer does not fail
		}
	}
	_ = z.w.Close()
	return out.Bytes()
}

// zipper holds the large state of a compressor, for use again.
type zipper struct {
	w            *gzip.Writer
	prefix, line []byte
}

func appendRow(dst []byte, e *sink.Entry) []byte {
	dst = strconv.AppendInt(append(dst, `,"seq":`...), e.Seq, 10)
	dst = strconv.AppendInt(append(dst, `,"ts":`...), e.Occurred, 10)
	if e.ID != nil {
		dst = appendString(append(dst, `,"id":`...), e.ID)
	}
	dst = appendString(append(dst, `,"data":`...), e.Payload)
	return append(dst, '}', '\n')
}

// appendString appends s as a JSON string of which ClickHouse makes the same bytes. Its
// String holds any bytes and its reader takes them, UTF-8 or not, so only what would end
// the string or the line is escaped.
func appendString(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	clean := 0 // s[clean:i] needs no escape
	for i, c := range s {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[clean:i]...)
		clean = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[clean:]...), '"')
}
