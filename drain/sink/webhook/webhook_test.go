package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

func TestFurtherHeadersAreSent(t *testing.T) {
	t.Parallel()
	var got http.Header
	srv := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	s := newSink(t, srv.URL+"/?header.x-team=kart&header.Authorization=Bearer%20t0k3n%2B/%3D&header.X-Empty=&header.X-Text=a+b%09gr%C3%BC%C3%9Fe")
	for range 2 {
		if err := post(t, s, batch("1")); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"X-Team": "kart", "Authorization": "Bearer t0k3n+/=", "X-Empty": "", "X-Text": "a b\tgrüße", "Content-Type": "application/x-ndjson",
		} {
			if values := got.Values(name); len(values) != 1 || values[0] != want {
				t.Errorf("%s: got %q, want %q", name, values, want)
			}
		}
	}
}

func TestOptionErrorsShowNoValue(t *testing.T) {
	t.Parallel()
	registry := sink.Registry{"http": New}
	const (
		short = "a2V5MWtleTFrZXkx" // 12 bytes
		form  = "signing_secret: want whsec_ and base64; several with a comma between"
	)
	for query, want := range map[string]string{
		"signing_secret":                                                "signing_secret: is empty: want whsec_ and base64",
		"signing_secret=,%20":                                           "signing_secret: is empty: want whsec_ and base64",
		"signing_secret=hunter2":                                        form,
		"signing_secret=whsec_hunter2":                                  form,
		"signing_secret=whsk_" + strings.Repeat(short, 2):               form,
		"signing_secret=whsec_" + strings.Repeat(short, 2) + ",hunter2": form,
		"signing_secret=whsec_" + short:                                 "signing_secret: a secret of 12 bytes, want 24 to 64",
		"signing_secret=whsec_" + strings.Repeat(short, 6):              "signing_secret: a secret of 72 bytes, want 24 to 64",
		"signing_secret=hunter2%zz":                                     "signing_secret: invalid URL escape",
		"signing-secret=" + oldSecret:                                   "a parameter for the receiver holds a whsec_ secret: the option of the sink is signing_secret",
		"signing%5Fsecret=%77hsec_hunter2":                              "a parameter for the receiver holds a whsec_ secret: the option of the sink is signing_secret",
		"signing_secret=a&signing_secret=b":                             "",
		"gzp=1":                                                         `unknown option "gzp": did you mean gzip? For a parameter of the receiver, escape its first letter: %67`,
		"Signing_Secret=hunter2":                                        `unknown option "Signing_Secret": did you mean signing_secret? For a parameter of the receiver, escape its first letter: %53`,
		"haeder.X-Team=hunter2":                                         `unknown option "haeder.X-Team": did you mean header.NAME? For a parameter of the receiver, escape its first letter: %68`,
		"header-X-Team=hunter2":                                         `unknown option "header-X-Team": did you mean header.NAME? For a parameter of the receiver, escape its first letter: %68`,
		"Header.Authorization:hunter2":                                  `unknown option "Header.Authorization": did you mean header.NAME? For a parameter of the receiver, escape its first letter: %48`,
		"header.X-A=hunter2%0d%0aX-B:1":                                 `option "header.X-A": a header's value has no line breaks or other control characters`,
		"header.X-A=hunter2%00":                                         `option "header.X-A": a header's value has no line breaks or other control characters`,
		"header.X-A=hunter2%zz":                                         `option "header.X-A": invalid URL escape`,
		"header.=hunter2":                                               `option "header.": not the name of a header: write header.X-Team=kart`,
		"header.X%20A=hunter2":                                          `option "header.X%20A": not the name of a header: write header.X-Team=kart`,
		"header.X:A=hunter2":                                            `option "header.X:A": not the name of a header: write header.X-Team=kart`,
		"header.X-A=hunter2&header.x-a=1":                               `option "header.x-a": X-A is given twice`,
		"header.X-A=hunter2&header.X-A=1":                               `option "header.X-A" is given twice`,
		"header.content-type=hunter2":                                   `option "header.content-type": the sink sets Content-Type itself`,
		"header.Idempotency-Key=hunter2":                                `option "header.Idempotency-Key": the sink sets Idempotency-Key itself`,
		"header.X-PARTITION=hunter2":                                    `option "header.X-PARTITION": the sink sets X-Partition itself`,
		"header.webhook-signature=hunter2":                              `option "header.webhook-signature": the sink sets Webhook-Signature itself`,
		"header.Host=hunter2":                                           `option "header.Host": the sink sets Host itself`,
		"header.Transfer-Encoding=chunked":                              `option "header.Transfer-Encoding": the sink sets Transfer-Encoding itself`,
	} {
		_, err := registry.New("http://h/?" + query)
		if err == nil || strings.Contains(err.Error(), "hunter2") || want != "" && err.Error() != "sink http://h/?…: "+want {
			t.Errorf("%s:\ngot  %v\nwant %s", query, err, want)
		}
	}
	if _, err := registry.New("http://u:p@h/?header.Authorization=x"); err == nil || err.Error() != `sink http://…@h/?…: option "header.Authorization": the URL has a user already` {
		t.Errorf("got %v", err)
	}
}

func TestParametersOfTheReceiverStay(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"token=x", "%67zp=1", "%68eader-x=1", "header=1", "headerless=1", "size=1", "sign=1", "zone=gz"} {
		if rest, _, err := takeOptions(query); err != nil || rest != query {
			t.Errorf("%s: got %q and %v", query, rest, err)
		}
	}
}

// The secrets of the tests; the first one is that of the specification's test vector.
const oldSecret, newSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_++//++//++//++//++//++//++//++//"

func TestSignaturesMatchThePublishedVector(t *testing.T) {
	t.Parallel()
	keys, err := parseSecrets(oldSecret)
	if err != nil {
		t.Fatal(err)
	}
	got := signatures(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// verify is what a receiver does: it accepts a request that one of its secrets has
// signed, not long ago.
func verify(r *http.Request, body []byte, secret string) bool {
	id, sent := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if age := time.Since(time.Unix(seconds, 0)); err != nil || age < -time.Minute || age > time.Minute {
		return false
	}
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	h := hmac.New(sha256.New, key)
	_, _ = io.WriteString(h, id+"."+sent+".")
	h.Write(body)
	for signature := range strings.SplitSeq(r.Header.Get("webhook-signature"), " ") {
		version, mac, _ := strings.Cut(signature, ",")
		raw, err := base64.StdEncoding.DecodeString(mac)
		if version == "v1" && err == nil && hmac.Equal(raw, h.Sum(nil)) {
			return true
		}
	}
	return false
}

func TestAReceiverVerifiesEachSecret(t *testing.T) {
	t.Parallel()
	b := batch(`{"score":7}`, "text")
	for options, secrets := range map[string][]string{
		"?signing_secret=" + oldSecret:                                     {oldSecret},
		"?signing_secret=" + newSecret:                                     {newSecret}, // + as it is
		"?signing_secret=" + strings.ReplaceAll(newSecret, "+", "%2B"):     {newSecret},
		"?signing_secret=" + newSecret + "," + oldSecret:                   {newSecret, oldSecret},
		"?signing_secret=" + newSecret + "%20" + oldSecret + "&gzip=1&a=b": {newSecret, oldSecret},
		"?a=b": nil,
	} {
		posts := 0
		srv := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			posts++
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			for _, secret := range []string{oldSecret, newSecret} {
				want := len(secrets) > 0 && (secrets[0] == secret || secrets[len(secrets)-1] == secret)
				if got := verify(r, body, secret); got != want {
					t.Errorf("%s: verified by %s: %t, want %t", options, secret, got, want)
				}
				if verify(r, append(body, ' '), secret) {
					t.Errorf("%s: another body is verified", options)
				}
			}
			if got := r.Header.Get("webhook-id"); len(secrets) > 0 && got != b.ID() || len(secrets) == 0 && got != "" {
				t.Errorf("%s: got id %q", options, got)
			}
			if strings.Contains(r.RequestURI, "secret") {
				t.Errorf("the secret is sent: %s", r.RequestURI)
			}
		})
		if err := post(t, newSink(t, srv.URL+options), b); err != nil || posts != 1 {
			t.Errorf("%s: got %v after %d posts", options, err, posts)
		}
	}
}
