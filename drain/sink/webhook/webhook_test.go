package webhook

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func batch(payloads ...string) *sink.Batch {
	return sinktest.Batch("com.acme.kart", 1763629675123456, payloads...)
}

func post(t *testing.T, s *Sink, b *sink.Batch) error {
	t.Helper()
	return s.Write(t.Context(), []*sink.Batch{b})
}

// serve starts a server for one handler.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestABatchIsOnePOSTOfLines(t *testing.T) {
	t.Parallel()
	b := batch(`{"score":7}`, "text")
	b.Attempt = 3
	for _, query := range []string{"", "?gzip=1"} {
		posts := 0
		srv := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			posts++
			body := r.Body
			encoding := ""
			if query != "" {
				encoding = "gzip"
				z, err := gzip.NewReader(body)
				if err != nil {
					t.Error(err)
					return
				}
				body = z
			} else if r.ContentLength < 0 {
				t.Error("no Content-Length")
			}
			for name, want := range map[string]string{
				"Content-Type": "application/x-ndjson", "Content-Encoding": encoding, "User-Agent": "spillway",
				"Idempotency-Key": b.ID(), "X-Namespace": "kart", "X-Partition": "com.acme.kart",
				"X-First-Seq": "1763629675123456", "X-Attempt": "3", "Authorization": "", "Accept-Encoding": "identity",
			} {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
			got, err := io.ReadAll(body)
			if want := sink.AppendBatch(nil, b); string(got) != string(want) || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
			if r.Method != http.MethodPost {
				t.Errorf("got %s", r.Method)
			}
		})
		if err := post(t, newSink(t, srv.URL+query), b); err != nil || posts != 1 {
			t.Errorf("got %v after %d posts", err, posts)
		}
	}
}

func TestTheTargetKeepsItsPathAndParameters(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	srv := serve(t, func(_ http.ResponseWriter, r *http.Request) { got.Store(r.RequestURI) })
	for in, want := range map[string]string{
		"":                              "/",
		"/in/%2Fput":                    "/in/%2Fput",
		"/?z=1&gzip=1&a=%2f+b&sig=A%3D": "/?z=1&a=%2f+b&sig=A%3D",
		"/?gzip=true":                   "/",
		"/?gzip=0&gzipped=1":            "/?gzipped=1",
		"/?flag":                        "/?flag",
		"/?a=1&signing_secret=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw&b=2&header.X-Team=kart&header=x": "/?a=1&b=2&header=x",
	} {
		if err := post(t, newSink(t, srv.URL+in), batch("1")); err != nil || got.Load() != want {
			t.Errorf("%s: got %v, %v, want %s", in, got.Load(), err, want)
		}
	}
}

func TestUserAndPasswordBecomeBasicAuth(t *testing.T) {
	t.Parallel()
	var user, password string
	srv := serve(t, func(_ http.ResponseWriter, r *http.Request) { user, password, _ = r.BasicAuth() })
	if err := post(t, newSink(t, strings.Replace(srv.URL, "://", "://us%40er:p%3A%2Fw@", 1)), batch("1")); err != nil {
		t.Fatal(err)
	}
	if user != "us@er" || password != "p:/w" {
		t.Errorf("got %q, %q", user, password)
	}
}

func TestOnlyOneBatchACallIsTaken(t *testing.T) {
	t.Parallel()
	s := newSink(t, "http://127.0.0.1:1/")
	for _, n := range []int{0, 2} {
		err := s.Write(t.Context(), make([]*sink.Batch, n))
		if want := fmt.Sprintf("webhook takes one batch a call, not %d", n); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	defer srv.Close()
	payloads := make([]string, 128)
	for i := range payloads {
		payloads[i] = `{"type":"obs","time":-817,"key":"[156, 90]","x":156,"y":90,"z":132,"entityleft":false}`
	}
	batches := []*sink.Batch{batch(payloads...)}
	for _, query := range []string{"", "?gzip=1"} {
		b.Run("128"+query, func(b *testing.B) {
			s := newSink(b, srv.URL+query)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Write(b.Context(), batches); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzNew holds a usable URL to what it promises: an http URL without user and
// password to send to, and no literal address that is rejected.
func FuzzNew(f *testing.F) {
	for _, raw := range []string{
		"http://u:hunter2@h/in?gzip=1", "https://[::ffff:169.254.1.1]/", "http://h/?gzip=hunter2", "http:h", "http://169.254.169.254:80/", "http://[fe80::1%25x]/", "http://[::%25\xa3]",
	} {
		f.Add(raw)
	}
	for _, seed := range urlSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		made, err := New(u)
		if err != nil {
			return
		}
		s := made.(*Sink)
		to, err := url.Parse(s.target)
		if err != nil || to.User != nil || to.Host != u.Host || to.Scheme != "http" && to.Scheme != "https" {
			t.Fatalf("%q becomes %q, %v", raw, s.target, err)
		}
		if ip, err := netip.ParseAddr(to.Hostname()); err == nil && ip.Unmap().IsLinkLocalUnicast() {
			t.Fatalf("%q is taken", raw)
		}
		if _, err := s.request(t.Context(), batch("1")); err != nil {
			t.Fatalf("%q is taken and cannot be sent to: %v", raw, err)
		}
	})
}

func TestABatchOfJobsHasTheirHeaders(t *testing.T) {
	t.Parallel()
	const attributes = `{"shard_index":"2","shard_total":"4"}`
	for _, row := range []struct {
		name string
		jobs []sink.Job
		want map[string]string
	}{
		{"one of a sharded publish", []sink.Job{{Attempt: 2, Tries: 3, Attributes: []byte(attributes)}}, map[string]string{
			"Queue": "com.acme.kart", "Job-Id": "J0", "Attempt": "2", "Shard-Index": "2", "Shard-Total": "4"}},
		{"one without attributes", []sink.Job{{Attempt: 1, Tries: 3}}, map[string]string{"Queue": "com.acme.kart", "Job-Id": "J0", "Attempt": "1"}},
		{"attributes of a publisher that are no numbers", []sink.Job{{Attempt: 1, Tries: 3, Attributes: []byte(`{"shard_index":"1\r\nX-A: b","shard_total":"-4"}`)}},
			map[string]string{"Queue": "com.acme.kart", "Job-Id": "J0", "Attempt": "1"}},
		{"one of a schedule", []sink.Job{{Attempt: 1, Tries: 3, Attributes: []byte(`{"schedule":"daily","tick":"2026-12-01T02:30:00Z","cause":"due"}`)}},
			map[string]string{"Queue": "com.acme.kart", "Job-Id": "J0", "Attempt": "1", "Schedule": "daily", "Tick": "2026-12-01T02:30:00Z"}},
		{"a trace", []sink.Job{{Attempt: 1, Attributes: []byte(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`)}},
			map[string]string{"Queue": "com.acme.kart", "Job-Id": "J0", "Attempt": "1", "trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
		{"texts of another form", []sink.Job{{Attempt: 1, Attributes: []byte(`{"schedule":"a\r\nX-A: b","tick":"soon","traceparent":"1"}`)}},
			map[string]string{"Queue": "com.acme.kart", "Job-Id": "J0", "Attempt": "1"}},
		{"several", []sink.Job{{Attempt: 1, Tries: 3}, {Attempt: 2, Tries: 3}}, map[string]string{"Queue": "com.acme.kart"}},
		{"entries of a buffer", nil, map[string]string{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := batch(`{"n":1}`, `{"n":2}`)
			if row.jobs != nil {
				b.Entries, b.Jobs = b.Entries[:len(row.jobs)], row.jobs
				for i := range b.Entries {
					b.Entries[i].ID = []byte(fmt.Sprintf("J%d", i))
				}
			}
			srv := serve(t, func(_ http.ResponseWriter, r *http.Request) {
				got := map[string]string{}
				for name := range r.Header {
					if short, ours := strings.CutPrefix(name, "X-Spillway-"); ours {
						got[short] = r.Header.Get(name)
					}
				}
				if trace := r.Header.Get("Traceparent"); trace != "" {
					got["trace"] = trace
				}
				if !maps.Equal(got, row.want) {
					t.Errorf("got %v, want %v", got, row.want)
				}
			})
			if err := post(t, newSink(t, srv.URL), b); err != nil {
				t.Error(err)
			}
		})
	}
}
