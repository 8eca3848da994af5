package clickhouse

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
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
func (s *Sink) post(ctx context.Context, query url.Values, rows []byte) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint+"?"+query.Encode(),
		bytes.NewReader(rows))
	if err != nil {
		return nil, errors.New("make request: malformed URL")
	}
	req.Header.Set("User-Agent", "spillway")
	req.Header.Set("Accept-Encoding", "identity")
	if rows != nil {
		req.Header.Set("Content-Encoding", "gzip")
	}
	if s.auth != "" {
		req.Header.Set("Authorization", s.auth)
	}
	resp, err := sink.RoundTrip(s.transport, req)
	if sink.IsUnsent(err) {
		return nil, sink.Unsent(s.fault(ctx, err))
	}
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	a := &answer{status: resp.StatusCode, header: resp.Header}
	if a.status < 200 {
		return a, nil // after 101 the body is the connection, which no context ends
	}
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return nil, s.fault(ctx, err) // the exception may be in what is missing
	}
	return a, nil
}

// fault is the error of a request without a usable answer. Its text is ours where net/http may
// quote what the peer sent.
func (s *Sink) fault(ctx context.Context, err error) error {
	var network *net.OpError
	var untrusted *tls.CertificateVerificationError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("post to %s: %w", s.host, ctx.Err())
	case errors.As(err, &network) && network.Err != nil:
		return fmt.Errorf("%s %s: %w", network.Op, s.host, network.Err)
	case errors.As(err, &untrusted):
		return fmt.Errorf("post to %s: its certificate is not trusted", s.host)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("post to %s: the connection broke", s.host)
	}
	return fmt.Errorf("post to %s: no usable answer", s.host)
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
