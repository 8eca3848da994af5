package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxAnswer is how much of an answer is read, in bytes: an error of S3 has some 500.
const maxAnswer = 64 << 10

// slowDown is how long a store that throttles is left alone; it does not say so itself.
const slowDown = time.Second

// put stores one object by one request. The signature is minio-go's; its client would
// retry, sleep after a failure, and read megabytes of an error's text.
func (s *Sink) put(ctx context.Context, o object, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	target := s.endpoint
	target.Path = s.path(o, batches)
	target.RawPath = s3utils.EncodePath(target.Path) // as it is signed
	body := s.body(o, batches)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, target.String(), bytes.NewReader(body))
	if err != nil {
		return sink.FaultError(ctx, "put to", target.Host, err)
	}
	sum := sha256.Sum256(body)
	conditional := !s.overwrites.Load()
	req.Header.Set("User-Agent", "spillway")
	req.Header.Set("Content-Type", s.format.contentType)
	req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:])) // the store compares it
	if conditional {
		req.Header.Set("If-None-Match", "*")
	}
	resp, err := s.client.RoundTrip(signer.SignV4(*req, s.key, s.secret, "", s.region))
	if err != nil {
		return sink.FaultError(ctx, "put to", target.Host, err)
	}
	defer resp.Body.Close()
	var answer []byte
	if resp.StatusCode >= 200 { // after 101 the body is the connection, which no context ends
		answer, _ = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the status is enough
	}
	return s.outcome(resp.StatusCode, answer, conditional)
}

// outcome says what an answer means.
//
//	2xx           stored
//	412           stored by an earlier attempt: the key is a hash of what is in the object
//	501           retryable; the store knows no If-None-Match, and later PUTs go without
//	413           Permanent: the object is too large, the drain divides it
//	429, 503      retryable in a second
//	all else      retryable: nothing that S3 answers is about an entry. Wrong keys, a
//	              missing right or bucket are an operator's to mend, and until then the
//	              entries wait as long as they live, instead of all becoming dead letters
func (s *Sink) outcome(status int, answer []byte, conditional bool) error {
	var body struct{ Code string }
	_ = xml.Unmarshal(answer, &body) // a proxy's page has no code
	err := fmt.Errorf("put to %s: answered %d%s", s.endpoint.Host, status, sink.ErrorCode(body.Code))
	switch {
	case status/100 == 2, status == http.StatusPreconditionFailed && conditional:
		return nil
	case status == http.StatusNotImplemented && conditional:
		s.overwrites.Store(true)
		return fmt.Errorf("%w; it has no If-None-Match, so objects of repeated writes are replaced from now on", err)
	case status == http.StatusRequestEntityTooLarge:
		return sink.Permanent(err)
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return sink.Throttle(err, slowDown)
	}
	return err
}
