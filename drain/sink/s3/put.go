package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxAnswer is how much of an answer is read, in bytes: an error of S3 has some 500.
const maxAnswer = 64 << 10

// slowDown is how long a store that throttles is left alone; it does not say so itself.
const slowDown = time.Second

// put stores one object by one request.
func (s *Sink) put(ctx context.Context, o object, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	target := s.endpoint
	target.Path = s.path(o, batches)
	target.RawPath = s3utils.EncodePath(target.Path) // as it is signed
	conditional := !s.overwrites.Load()
	header := http.Header{"Content-Type": {s.format.contentType}}
	if conditional {
		header.Set("If-None-Match", "*")
	}
	status, code, err := s.send(ctx, http.MethodPut, target, header, s.body(o, batches))
	if err != nil {
		if ctx.Err() == nil { // Open finds out when the store is back
			err = fmt.Errorf("%w: %w", sink.ErrNotConnected, err)
		}
		return err
	}
	return s.outcome(status, code, conditional)
}

// send makes one signed request. The signature is minio-go's; its client would retry,
// sleep after a failure, and read megabytes of an error's text. code is that of S3's
// error, and not to be trusted; without one it is empty.
func (s *Sink) send(ctx context.Context, method string, target url.URL, header http.Header,
	body []byte) (status int, code string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return 0, "", sink.FaultError(ctx, "request to", target.Host, err)
	}
	maps.Copy(req.Header, header)
	sum := sha256.Sum256(body)
	req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:])) // the store compares it
	signed := signer.SignV4(*req, s.key, s.secret, s.token, s.region)
	answer, err := sink.Send(s.client, signed, "request to", target.Host, maxAnswer)
	if answer.Status == 0 {
		return 0, "", err
	}
	var failure struct{ Code string } // a list, or a proxy's page, has none
	_ = xml.Unmarshal(answer.Body, &failure)
	return answer.Status, failure.Code, nil // though the body broke off: the status is enough
}

// outcome says what an answer means. Nothing that S3 answers is about an entry, so nothing
// is plain, after which the drain would look for the partition that is to blame.
//
//	2xx           stored
//	412           stored by an earlier attempt: the key is a hash of what is in the object
//	413           Permanent: the object is too large, the drain divides it
//	needsOperator ErrNotConnected: Open waits until it is mended
//	501           retryable in a second; the store knows no If-None-Match, and later PUTs go without
//	all else      retryable in a second: 503 SlowDown, other 5xx, 403 AccessDenied. 401 and 403 are Unsent
func (s *Sink) outcome(status int, code string, conditional bool) error {
	err := fmt.Errorf("put to %s: answered %d%s", s.endpoint.Host, status, sink.ErrorCode(code))
	switch {
	case status/100 == 2, status == http.StatusPreconditionFailed && conditional:
		return nil
	case status == http.StatusRequestEntityTooLarge:
		return sink.Permanent(err)
	case needsOperator(status, code):
		err = fmt.Errorf("%w: %w", sink.ErrNotConnected, err)
		if status == http.StatusUnauthorized || status == http.StatusForbidden {
			return sink.Unsent(err)
		}
		return err
	case status == http.StatusForbidden:
		return sink.Unsent(sink.Throttle(err, slowDown))
	case status == http.StatusNotImplemented && conditional:
		s.overwrites.Store(true)
		err = fmt.Errorf("%w; it has no If-None-Match, so objects of repeated writes are replaced from now on", err)
	}
	return sink.Throttle(err, slowDown)
}

// needsOperator reports whether an answer is about keys, bucket or region: what Open
// finds, too. A missing right is not: a list may be forbidden where a PUT is not.
func needsOperator(status int, code string) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusUnauthorized, http.StatusNotFound:
		return true
	case http.StatusBadRequest:
		return code == "AuthorizationHeaderMalformed" // another region
	case http.StatusForbidden:
		return code != "" && code != "AccessDenied"
	}
	return false
}
