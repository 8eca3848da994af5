// Package s3 is the sink "s3://KEY:SECRET@host/bucket/prefix": objects of the lines
// that file: writes, compressed, in a bucket of S3 or of what speaks its protocol.
//
// Delivered means that the store answered the PUT of the object with 200, or with 412
// because the object is there already.
//
// An object holds a whole coalesced Write, because each PUT costs money. With an object
// for each partition in it (per=partition), 100,000 busy partitions and a linger of 10 s
// are 10,000 PUTs a second: 4,300 US$ a day at the usual 5 US$ a million.
//
//	prefix/namespace/date=2026-11-22/hour=05/<time>-<hash>.ndjson.gz
//	prefix/namespace/partition/date=2026-11-22/hour=05/<seq>-<hash>.ndjson.gz   with per=partition
//
// Date, hour (UTC) and time (Unix ms) are those of the object's oldest entry, seq is its
// lowest sequence, and the hash is that of the ids of its batches. So the same batches
// have the same key, whatever their order: a PUT whose answer was lost finds its object
// when they come again together, and leaves it. With per=partition the drain's retries
// are such, until its lease of the partition ends. An object of many partitions seldom
// finds its like, for each of them is retried in its own time. So entries arrive at least
// once, and readers remove repeats by (namespace, partition, seq), which every line has.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/spillway-io/spillway/drain/sink"
)

// The bounds of an object. In memory it is compressed, and even what does not compress
// takes at most 4/3 of maxBytes, as base64. maxInFlight bounds how many there are at once.
const (
	maxBytes    = 10 << 20 // of payloads
	maxEntries  = 100_000
	maxBatches  = 50_000 // entries that come one a partition still fill objects
	maxInFlight = 4
	// maxPuts is how many objects one Write puts at once with per=partition.
	maxPuts = 16
)

// nameBytes are what the parts of a prefix, regions and access keys are made of.
const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=-"

// Sink puts objects into one bucket.
type Sink struct {
	endpoint           url.URL // scheme and host
	bucket             string  // "/bucket"
	base               string  // "/bucket/" or "/bucket/prefix/"
	key, secret, token string
	region             string
	format             format
	perPartition       bool
	linger             time.Duration

	client      *http.Transport
	compressors sync.Pool // compressor
	// overwrites is set when the store knows no If-None-Match: then the object of a
	// repeated Write is replaced by its like.
	overwrites atomic.Bool
}

// New makes the sink of "s3://KEY:SECRET@host[:port]/bucket[/prefix]", with the options
//
//	region=NAME       default us-east-1
//	session_token=TOKEN  of temporary credentials
//	insecure=1        plain HTTP; default: HTTPS
//	compression=NAME  gzip, zstd or none; default gzip
//	per=NAME          write: one object a Write; partition: one for each partition in it; default write
//	linger=DURATION   how long the first entry of an object waits for more, 10ms to 1m; default 10s,
//	                  but no longer than the drain's lease leaves beside its sink timeout
//
// The bucket is part of the path, not of the host's name.
func New(u *url.URL) (sink.Sink, error) {
	o, err := sink.Options(u, "region", "session_token", "insecure", "compression", "per", "linger")
	if err != nil {
		return nil, err
	}
	if err := sink.CheckHost(u, "s3://KEY:SECRET@host:9000/bucket/prefix"); err != nil {
		return nil, err
	}
	s := &Sink{
		endpoint: url.URL{Scheme: "https", Host: u.Host},
		region:   "us-east-1",
		format:   formats["gzip"],
		linger:   10 * time.Second,
		client:   sink.NewTransport(),
	}
	if u.User != nil {
		s.key = u.User.Username()
		s.secret, _ = u.User.Password()
	}
	switch {
	case s.key == "" || s.secret == "":
		return nil, errors.New("names no access key: write s3://KEY:SECRET@host/bucket, and a / in the secret as %2F")
	case strings.Trim(s.key, nameBytes) != "":
		return nil, errors.New("the access key has other characters than letters, digits and ._=-")
	}
	if s.bucket, s.base, err = paths(u.Path); err != nil {
		return nil, err
	}
	for name, value := range o {
		if err := s.set(name, value); err != nil {
			return nil, fmt.Errorf("%s: %q, %w", name, value, err)
		}
	}
	s.compressors.New = s.format.newCompressor
	return s, nil
}

// set takes one option. Its errors say what is wanted.
func (s *Sink) set(name, value string) error {
	switch name {
	case "region":
		if value == "" || strings.Trim(value, nameBytes) != "" {
			return errors.New("want a name such as eu-central-1")
		}
		s.region = value
	case "session_token":
		s.token = value
	case "insecure":
		if value != "1" {
			return errors.New("want 1 or nothing")
		}
		s.endpoint.Scheme = "http"
	case "compression":
		f, ok := formats[value]
		if !ok {
			return errors.New("want gzip, zstd or none")
		}
		s.format = f
	case "per":
		if value != "write" && value != "partition" {
			return errors.New("want write or partition")
		}
		s.perPartition = value == "partition"
	case "linger":
		d, err := time.ParseDuration(value)
		if err != nil || d < 10*time.Millisecond || d > time.Minute {
			return errors.New("want 10ms to 1m")
		}
		s.linger = d
	}
	return nil
}

// paths checks bucket and prefix: what needs escaping in a key or a signature, or is no
// name of a file, is rejected.
func paths(path string) (bucket, base string, err error) {
	bucket, prefix, _ := strings.Cut(strings.Trim(path, "/"), "/")
	if s3utils.CheckValidBucketName(bucket) != nil {
		return "", "", errors.New("names no bucket, or one that cannot be: write s3://KEY:SECRET@host/bucket")
	}
	bucket = "/" + bucket
	if prefix == "" {
		return bucket, bucket + "/", nil
	}
	if len(prefix) > 512 {
		return "", "", errors.New("prefix is longer than 512 bytes")
	}
	for part := range strings.SplitSeq(prefix, "/") {
		if part == "." || part == ".." || part == "" || strings.Trim(part, nameBytes) != "" {
			return "", "", errors.New("prefix: want names of letters, digits and ._=- between single slashes")
		}
	}
	return bucket, bucket + "/" + prefix + "/", nil
}

// Open lists one key of the bucket, which finds a wrong key, secret, region or bucket. A
// key that may only write, which is enough, passes: its rejection is AccessDenied.
func (s *Sink) Open(ctx context.Context) error {
	target := s.endpoint
	target.Path, target.RawQuery = s.bucket, "list-type=2&max-keys=1"
	status, code, err := s.send(ctx, http.MethodGet, target, nil, nil)
	if err != nil {
		return err
	}
	if needsOperator(status, code) {
		return fmt.Errorf("list at %s: answered %d%s", s.endpoint.Host, status, sink.ErrorCode(code))
	}
	return nil
}

// Close frees the idle connections.
func (s *Sink) Close(context.Context) error {
	s.client.CloseIdleConnections()
	return nil
}

// Caps asks for Writes of 10 MiB, or what comes in a linger.
func (s *Sink) Caps() sink.Caps {
	return sink.Caps{
		MaxBatches:    maxBatches,
		MaxInFlight:   maxInFlight,
		PreferEntries: maxEntries,
		MaxBytes:      maxBytes,
		Linger:        s.linger,
	}
}

// Write puts the objects of the batches. See outcome for the errors; with several
// objects, those of an object are named for all its entries.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	objects := s.split(batches)
	if len(objects) == 1 {
		return s.put(ctx, objects[0], batches)
	}
	errs := make([]error, len(objects))
	var running sync.WaitGroup
	turns := make(chan struct{}, maxPuts)
	for i, o := range objects {
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			errs[i] = s.put(ctx, o, batches)
		})
	}
	running.Wait()
	failed := &sink.BatchError{}
	for i, err := range errs {
		if err == nil {
			continue
		}
		if sink.IsPermanent(err) {
			// It is about the size of the object. Permanent by name would give up on
			// each entry; when they come again alone, the drain can divide them.
			err = errors.New(err.Error())
		}
		for _, b := range objects[i].batches {
			for e := range batches[b].Entries {
				failed.Fail(b, e, err)
			}
		}
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return nil
}
