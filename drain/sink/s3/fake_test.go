package s3

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "s3cr3t/+key"

// A stored object, and the request that stored it.
type stored struct {
	path   string
	body   []byte
	header http.Header
}

// fakeStore is a bucket in memory that checks what a store checks without the secret.
// The signatures are checked by the real one, under the tag sinks.
type fakeStore struct {
	*httptest.Server
	mu      sync.Mutex
	objects []stored
	stall   chan struct{}
	answer  http.HandlerFunc // not nil: instead of storing; it may call keep
}

func newStore(t testing.TB) *fakeStore {
	f := &fakeStore{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		stall, answer := f.stall, f.answer
		f.mu.Unlock()
		if stall != nil {
			<-stall
		}
		if answer != nil {
			answer(w, r)
			return
		}
		if r.Method == http.MethodGet {
			io.WriteString(w, "<ListBucketResult><Name>events</Name></ListBucketResult>")
			return
		}
		w.WriteHeader(f.keep(t, r))
	}))
	t.Cleanup(f.Close)
	return f
}

// keep stores an object and returns the status of the answer.
func (f *fakeStore) keep(t testing.TB, r *http.Request) int {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return 400 // the client gave up
	}
	sum := sha256.Sum256(body)
	switch {
	case r.Method != http.MethodPut, r.ContentLength != int64(len(body)):
		t.Errorf("got %s with a length of %d", r.Method, r.ContentLength)
	case r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]):
		t.Error("the hash of the body is another")
	case !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=KEY/"):
		t.Errorf("got the authorization %q", r.Header.Get("Authorization"))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, o := range f.objects {
		if o.path != r.URL.Path {
			continue
		}
		if r.Header.Get("If-None-Match") == "*" {
			return 412
		}
		f.objects[i].body = body
		return 200
	}
	f.objects = append(f.objects, stored{r.URL.Path, body, r.Header})
	return 200
}

func (f *fakeStore) set(answer http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *fakeStore) stalled() func() {
	c := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stall = c
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stall = nil
		close(c)
	}
}

// taken are the objects, oldest first.
func (f *fakeStore) taken() []stored {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]stored(nil), f.objects...)
}

// rejecting answers as S3 does.
func rejecting(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		fmt.Fprintf(w, "<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>c4n4ry %s</Message><Key>k</Key></Error>", code, r.Header.Get("Authorization"))
	}
}

// hangUp closes the connection instead of answering.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// sinkOn is a sink of the bucket "events" at a host without TLS.
func sinkOn(t testing.TB, host, query string) *Sink {
	t.Helper()
	return sinktest.Make[*Sink](t, New, "s3://KEY:"+url.QueryEscape(secret)+"@"+host+"/events/in?insecure=1"+query)
}

// lines are those of objects, in their order.
func lines(objects []stored) (list []sinktest.Record, err error) {
	for _, o := range objects {
		text := o.body
		switch {
		case strings.HasSuffix(o.path, ".gz"):
			z, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				return nil, err
			}
			if text, err = io.ReadAll(z); err != nil {
				return nil, err
			}
		case strings.HasSuffix(o.path, ".zst"):
			z, err := zstd.NewReader(nil)
			if err != nil {
				return nil, err
			}
			defer z.Close()
			if text, err = z.DecodeAll(text, nil); err != nil {
				return nil, err
			}
		}
		records, err := sinktest.ParseLines(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.path, err)
		}
		list = append(list, records...)
	}
	return list, nil
}

// batch has n entries of a partition from a sequence on, one a second.
func batch(partition string, from int64, n int) *sink.Batch {
	b := sinktest.Batch(partition, from, slices.Repeat([]string{`{"c4n4ry":1}`}, n)...)
	for i := range b.Entries {
		b.Entries[i].Occurred += int64(i) * 1000
	}
	return b
}
