// Package elasticsearch is the sink "elasticsearch://host:9200/index": documents in an
// index, an alias or a data stream of Elasticsearch or OpenSearch, by _bulk with gzip.
//
// Delivered means that the cluster answered the document's create with 201, or with 409
// because its _id is there already. The _id is namespace/partition/seq, so an entry that
// comes again, in whatever grouping, is one document: exactly once in an index. A data
// stream compares ids within its newest backing index only, so an entry that comes again
// across a rollover is there twice. A document is
//
//	{"@timestamp":"2025-11-20T09:14:35.100Z","namespace":"default","partition":"com.acme.kart",
//	 "seq":1763629675123456,"id":"if given","data":{…}}
//
// Only a JSON object is "data", as it was sent. Anything else is a string, because a
// field holds one type: "text", or "base64" where the payload is not UTF-8. So is an object
// that has a name twice, which the cluster never takes.
//
// What an entry's fields are called and hold is the client's choice, and the mapping the
// cluster's: an entry that does not fit it becomes a dead letter by itself. Where that
// must not happen, map "data" as flattened (flat_object in OpenSearch), or with
// "enabled": false.
package elasticsearch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/spillway-io/spillway/drain/sink"
)

// The bounds of a _bulk, at the lower end of what clusters like: 5 to 15 MB.
const (
	maxBytes    = 8 << 20 // of payloads
	maxEntries  = 5000
	maxInFlight = 8
	linger      = time.Second
)

// Sink creates documents by way of one host.
type Sink struct {
	endpoint string // http(s)://host/_bulk, or …/index/_bulk
	host     string // the only part of the URL that errors show
	index    string // with {namespace} and {date}: each action names its index; else empty
	auth     string // Authorization header; empty: none

	client  *http.Transport
	zippers sync.Pool // *gzip.Writer
}

// New makes the sink of "elasticsearch://[user:password@]host[:port]/index", with the options
//
//	tls=1        HTTPS; default: plain HTTP
//	api_key=KEY  instead of user and password: the "encoded" form, which is base64
//
// index may contain {namespace}, in small letters, and {date}, the day of the entry in
// UTC as 2026.11.22. The port is 9200 unless given.
func New(u *url.URL) (sink.Sink, error) {
	o, err := sink.Options(u, "tls", "api_key")
	if err != nil {
		return nil, err
	}
	if err := sink.CheckHost(u, "elasticsearch://host:9200/index"); err != nil {
		return nil, err
	}
	index := strings.Trim(u.Path, "/")
	if err := checkIndex(index); err != nil {
		return nil, err
	}
	target := url.URL{Scheme: "http", Host: u.Host, Path: "/" + index + "/_bulk"}
	s := &Sink{host: u.Host, client: sink.NewTransport()}
	s.zippers.New = func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
		return z
	}
	if u.Port() == "" {
		target.Host += ":9200"
	}
	switch o["tls"] {
	case "1":
		target.Scheme = "https"
	case "":
	default:
		return nil, fmt.Errorf("tls: %q, want 1 or nothing", o["tls"])
	}
	if strings.Contains(index, "{") {
		s.index, target.Path = index, "/_bulk"
	}
	target.RawQuery = "filter_path=errors,error.type,error.reason,items.*.status,items.*.error.type,items.*.error.reason"
	s.endpoint = target.String()
	s.auth, err = authorization(u.User, o["api_key"])
	return s, err
}

func authorization(user *url.Userinfo, apiKey string) (string, error) {
	switch {
	case apiKey == "":
		return sink.BasicAuth(user), nil
	case user != nil:
		return "", errors.New("api_key: the URL has a user already")
	}
	apiKey = strings.ReplaceAll(apiKey, " ", "+") // which a query means by +
	if strings.Trim(apiKey, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_-") != "" {
		return "", errors.New("api_key: want base64, the encoded form")
	}
	return "ApiKey " + apiKey, nil
}

// checkIndex rejects names that the cluster would reject for every entry.
func checkIndex(index string) error {
	plain := strings.NewReplacer("{namespace}", "n", "{date}", "1").Replace(index)
	switch {
	case index == "":
		return errors.New("names no index: write elasticsearch://host:9200/index")
	case len(plain) > 128:
		return errors.New("index: longer than 128 bytes")
	case strings.ContainsAny(plain[:1], "-_+.") ||
		strings.Trim(plain, "abcdefghijklmnopqrstuvwxyz0123456789._+-") != "":
		return errors.New("index: want small letters, digits, ._+-, {namespace} and {date}, and a letter or digit first")
	}
	return nil
}

// Open sends a _bulk of nothing, which needs no right but to log in. It finds a wrong
// password or key, and a host that is no cluster.
func (s *Sink) Open(ctx context.Context) error {
	answer, err := s.send(ctx, nil, maxAnswer)
	if err != nil {
		return err
	}
	if needsOperator(answer.Status) {
		return fmt.Errorf("bulk to %s: answered %d", s.host, answer.Status)
	}
	return nil
}

// Close frees the idle connections.
func (s *Sink) Close(context.Context) error {
	s.client.CloseIdleConnections()
	return nil
}

// Caps asks for Writes of some thousand entries.
func (s *Sink) Caps() sink.Caps {
	return sink.Caps{
		MaxBatches:    maxEntries,
		MaxInFlight:   maxInFlight,
		PreferEntries: maxEntries,
		MaxBytes:      maxBytes,
		Linger:        linger,
	}
}

// Write creates the documents of all entries by one _bulk. See outcome for its errors.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	body, at, size := s.body(batches)
	bound := answerBound(len(at), size)
	answer, err := s.send(ctx, body, bound)
	if err != nil {
		return err
	}
	return s.outcome(answer, bound, at)
}

// send posts a gzipped body and reads at most bound+1 bytes of the answer.
func (s *Sink) send(ctx context.Context, body []byte, bound int64) (sink.Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint, bytes.NewReader(body))
	if err != nil {
		return sink.Answer{}, sink.FaultError(ctx, "bulk to", s.host, err)
	}
	h := req.Header
	h.Set("Content-Type", "application/x-ndjson")
	if len(body) > 0 {
		h.Set("Content-Encoding", "gzip")
	}
	if s.auth != "" {
		h.Set("Authorization", s.auth)
	}
	answer, err := sink.Send(s.client, req, "bulk to", s.host, bound+1)
	if answer.Status != 0 && answer.Status/100 != 2 {
		return answer, nil // the status is enough
	}
	return answer, err
}
