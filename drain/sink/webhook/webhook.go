// Package webhook is the sink "http://…" and "https://…": one POST a batch, of
// the lines that file: writes. A receiver needs no library:
//
//	POST /events HTTP/1.1
//	Content-Type: application/x-ndjson
//	Idempotency-Key: <batch id>    the same if and only if the same entries come again
//	X-Namespace: default
//	X-Partition: com.acme.kart
//	X-First-Seq: 1763629675123456
//	X-Attempt: 1                   more on every further presentation
//	Webhook-Id: <batch id>         these three with ?signing_secret, by https://www.standardwebhooks.com
//	Webhook-Timestamp: 1763629675  Unix seconds of this presentation
//	Webhook-Signature: v1,<base64> HMAC-SHA256 of "id.timestamp.body"; the body as sent, so compressed with ?gzip=1
//
//	{"namespace":"default","partition":"com.acme.kart","seq":1763629675123456,…,"data":{…}}
//
// A batch of a queue's jobs has the queue as its partition, and further headers, all but the
// first only where it is one job:
//
//	X-Spillway-Queue: mail-eu
//	X-Spillway-Job-Id: 01JD7Z8Q4V5N0W6X2Y3T1R9K8M
//	X-Spillway-Attempt: 1          deliveries of the job so far, with this one
//	X-Spillway-Shard-Index: 0      from 0; these two where the job was published with ?shards=n
//	X-Spillway-Shard-Total: 4
//	X-Spillway-Schedule: daily     these two of a job of a schedule
//	X-Spillway-Tick: 2026-12-01T02:30:00Z
//	Traceparent: 00-…              where the job has the attribute traceparent
//
//	{"namespace":"mail","partition":"mail-eu","seq":…,"id":"01JD7…","attempt":1,"tries":3,"attributes":{…},"data":{…}}
//
// What its answer means is in outcome.go: a 2xx accepts the batch, and may name entries it did
// not take. Of a job that is alone its body is the result, and 202 may mean later: see package
// push.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxAnswer is how much of an answer's body is read, in bytes: results must be read to
// their end.
const maxAnswer = sink.MaxResults

// Sink posts batches to one URL.
type Sink struct {
	target string // without user and without our own options
	host   string // the only part of the URL that errors show
	options
	client  *http.Transport
	zippers sync.Pool // *zipper
}

// New makes the sink of an http or https URL.
//
//	user:password@          sent as Basic authentication
//	gzip=1                  the body is compressed; default 0
//	signing_secret=whsec_…  requests are signed, by each secret where several are given with a comma between
//	header.NAME=VALUE       a further header, such as header.Authorization=Bearer%20TOKEN
//
// These options are not sent; every other query parameter belongs to the target.
// Proxies of the environment are not used.
func New(u *url.URL) (sink.Sink, error) {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("scheme %q is neither http nor https", u.Scheme)
	case u.Fragment != "":
		return nil, errors.New("a #fragment is never sent: leave it out")
	}
	if err := sink.CheckHost(u, u.Scheme+"://host/path"); err != nil {
		return nil, err
	}
	target := *u
	query, ours, err := takeOptions(u.RawQuery)
	if err != nil {
		return nil, err
	}
	target.RawQuery, target.User = query, nil
	s := &Sink{
		target:  target.String(),
		host:    u.Host,
		options: ours,
		client:  sink.NewTransport(),
		zippers: sync.Pool{New: func() any {
			z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
			return &zipper{w: z}
		}},
	}
	if auth := sink.BasicAuth(u.User); auth != "" {
		if s.headers["Authorization"] != nil {
			return nil, errors.New("option \"header.Authorization\": the URL has a user already")
		}
		s.headers["Authorization"] = []string{auth}
	}
	return s, nil
}

// Open does nothing: the target shows at the first batch whether it is up.
func (s *Sink) Open(context.Context) error { return nil }

// Write posts one batch. See outcome.go for its errors.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if len(batches) != 1 {
		return fmt.Errorf("webhook takes one batch a call, not %d", len(batches))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b := batches[0]
	req, err := s.request(ctx, b)
	if err != nil {
		return sink.FaultError(ctx, "post to", s.host, err)
	}
	// Entries that a 2xx would have rejected may be in what is missing.
	answer, err := sink.Send(s.client, req, "post to", s.host, maxAnswer+1)
	if err != nil {
		return err
	}
	err = s.outcome(answer, b, time.Now())
	if err == nil && len(b.Jobs) == 1 && b.Jobs[0].Answered != nil {
		b.Jobs[0].Answered(answer.Status, answer.Body)
	}
	return err
}

// Close frees the idle connections.
func (s *Sink) Close(context.Context) error {
	s.client.CloseIdleConnections()
	return nil
}

// Caps: one batch a POST, any number of POSTs.
func (s *Sink) Caps() sink.Caps { return sink.Caps{MaxBatches: 1} }
