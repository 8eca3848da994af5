package s3

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/partition"
)

func TestAWriteIsOneObject(t *testing.T) {
	t.Parallel()
	f := newStore(t)
	a, b := batch("com.acme.kart", 7, 3), batch("com.acme.golf", 2, 2)
	b.Entries[1].Occurred = 1763629674000 // the oldest
	if err := sinkOn(t, f.Listener.Addr().String(), "").Write(t.Context(), []*sink.Batch{a, b}); err != nil {
		t.Fatal(err)
	}
	got := f.taken()
	if len(got) != 1 {
		t.Fatalf("got %d objects", len(got))
	}
	const want = "/events/in/kart/date=2025-11-20/hour=09/1763629674000-"
	if name, found := strings.CutPrefix(got[0].path, want); !found || len(name) != len("0123456789abcdef0123456789abcdef.ndjson.gz") {
		t.Errorf("got %s, want %s<hash>.ndjson.gz", got[0].path, want)
	}
	for name, want := range map[string]string{"Content-Type": "application/gzip", "Content-Encoding": "", "If-None-Match": "*", "User-Agent": "spillway"} {
		if v := got[0].header.Get(name); v != want {
			t.Errorf("%s: got %q, want %q", name, v, want)
		}
	}
	records, err := lines(got)
	if err != nil || len(records) != 5 || records[0].Partition != "com.acme.kart" || records[4].Partition != "com.acme.golf" {
		t.Errorf("got %+v, %v", records, err)
	}
}

func TestAnObjectForEachPartition(t *testing.T) {
	t.Parallel()
	f := newStore(t)
	w := []*sink.Batch{batch("a", 7, 3), batch("b", 2, 2), batch("a", 10, 1)}
	if err := sinkOn(t, f.Listener.Addr().String(), "&per=partition&compression=none").Write(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	got := f.taken()
	slices.SortFunc(got, func(a, b stored) int { return strings.Compare(a.path, b.path) })
	if len(got) != 2 || !strings.HasPrefix(got[0].path, "/events/in/kart/a/date=2025-11-20/hour=09/7-") || !strings.HasPrefix(got[1].path, "/events/in/kart/b/date=2025-11-20/hour=09/2-") {
		t.Fatalf("got %+v", got)
	}
	if n := strings.Count(string(got[0].body), "\n"); n != 4 || !strings.HasSuffix(got[0].path, ".ndjson") {
		t.Errorf("%s has %d lines", got[0].path, n)
	}
}

func TestNamespacesDoNotShareAnObject(t *testing.T) {
	t.Parallel()
	f := newStore(t)
	other := batch("a", 1, 1)
	other.Namespace = "golf"
	if err := sinkOn(t, f.Listener.Addr().String(), "").Write(t.Context(), []*sink.Batch{batch("a", 1, 1), other}); err != nil {
		t.Fatal(err)
	}
	if got := f.taken(); len(got) != 2 {
		t.Errorf("got %d objects", len(got))
	}
}

func TestTheKeyDependsOnTheEntriesAlone(t *testing.T) {
	t.Parallel()
	s := sinkOn(t, "h", "")
	path := func(w ...*sink.Batch) string { return s.path(s.split(w)[0], w) }
	later := batch("a", 1, 2)
	later.Attempt = 9
	want := path(batch("a", 1, 2), batch("b", 1, 2))
	if got := path(batch("b", 1, 2), later); got != want {
		t.Errorf("another order and attempt: got %s, want %s", got, want)
	}
	for name, got := range map[string]string{
		"fewer": path(batch("a", 1, 2)), "more": path(batch("a", 1, 2), batch("b", 1, 3)), "others": path(batch("a", 1, 2), batch("c", 1, 2)),
	} {
		if got == want {
			t.Errorf("%s: the same key", name)
		}
	}
}

// A Write whose answer is lost comes again as it was: one object. Of another grouping
// the lines tell the repeats.
func TestAWriteThatComesAgainIsStoredOnce(t *testing.T) {
	t.Parallel()
	f := newStore(t)
	s := sinkOn(t, f.Listener.Addr().String(), "")
	f.set(func(w http.ResponseWriter, r *http.Request) {
		f.keep(t, r)
		hangUp(w, r)
	})
	if err := s.Write(t.Context(), []*sink.Batch{batch("a", 1, 5), batch("b", 1, 5)}); sinktest.Kind(err) != "not connected" {
		t.Fatalf("got %v", err)
	}
	f.set(nil)
	for range 2 {
		if err := s.Write(t.Context(), []*sink.Batch{batch("a", 1, 5), batch("b", 1, 5)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.taken(); len(got) != 1 {
		t.Fatalf("got %d objects, want 1", len(got))
	}
	if err := s.Write(t.Context(), []*sink.Batch{batch("a", 1, 7)}); err != nil {
		t.Fatal(err)
	}
	records, err := lines(f.taken())
	if err != nil {
		t.Fatal(err)
	}
	distinct := map[string]bool{}
	for _, r := range records {
		distinct[fmt.Sprint(r.Namespace, r.Partition, r.Seq)] = true
	}
	if len(records) != 17 || len(distinct) != 12 {
		t.Errorf("got %d lines of %d entries, want 17 of 12", len(records), len(distinct))
	}
}

func TestAStoreWithoutConditionsGetsPlainPUTs(t *testing.T) {
	t.Parallel()
	f := newStore(t)
	s := sinkOn(t, f.Listener.Addr().String(), "")
	f.set(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			rejecting(501, "NotImplemented")(w, r)
			return
		}
		w.WriteHeader(f.keep(t, r))
	})
	for i := range 3 {
		if err := s.Write(t.Context(), []*sink.Batch{batch("a", 1, 5)}); (err != nil) != (i == 0) || sink.IsPermanent(err) {
			t.Errorf("attempt %d: got %v", i+1, err)
		}
	}
	if got := f.taken(); len(got) != 1 {
		t.Errorf("got %d objects, want 1", len(got))
	}
	f.set(rejecting(412, "PreconditionFailed")) // of a condition that was not sent
	if err := s.Write(t.Context(), []*sink.Batch{batch("a", 9, 5)}); sinktest.Kind(err) != "throttle 1s" {
		t.Errorf("got %v", err)
	}
}

func TestOpenFindsWhatOnlyAnOperatorCanMend(t *testing.T) {
	t.Parallel()
	f := newStore(t)
	s := sinkOn(t, f.Listener.Addr().String(), "")
	for _, c := range []struct {
		status    int
		code      string
		open, put string
	}{
		{200, "", "accepted", "accepted"},
		{403, "SignatureDoesNotMatch", "retry", "not connected"},
		{403, "InvalidAccessKeyId", "retry", "not connected"},
		{403, "RequestTimeTooSkewed", "retry", "not connected"},
		{404, "NoSuchBucket", "retry", "not connected"},
		{301, "PermanentRedirect", "retry", "not connected"},
		{400, "AuthorizationHeaderMalformed", "retry", "not connected"},
		{403, "AccessDenied", "accepted", "throttle 1s"}, // the key may only write
		{403, "", "accepted", "throttle 1s"},             // a proxy's
		{400, "InvalidArgument", "accepted", "throttle 1s"},
		{503, "SlowDown", "accepted", "throttle 1s"},
		{501, "NotImplemented", "accepted", "throttle 1s"},
	} {
		f.set(rejecting(c.status, c.code))
		err := s.Open(t.Context())
		if got := sinktest.Kind(err); got != c.open {
			t.Errorf("open, %d %s: got %s, want %s", c.status, c.code, got, c.open)
		}
		if want := fmt.Sprintf("list at %s: answered %d (%s)", f.Listener.Addr(), c.status, c.code); err != nil && err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
		err = s.Write(t.Context(), []*sink.Batch{batch("p", 1, 1)})
		if got := sinktest.Kind(err); got != c.put {
			t.Errorf("put, %d %s: got %s, want %s", c.status, c.code, got, c.put)
		}
		code := sink.ErrorCode(c.code)
		if want := fmt.Sprintf("put to %s: answered %d%s", f.Listener.Addr(), c.status, code); err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
	f.set(hangUp)
	if err := s.Open(t.Context()); sinktest.Kind(err) != "retry" {
		t.Errorf("hangs up: got %v", err)
	}
}

func TestNothingOfTheStoreOrTheKeysIsInAnError(t *testing.T) {
	t.Parallel()
	f := newStore(t)
	s := sinkOn(t, f.Listener.Addr().String(), "")
	for name, answer := range map[string]http.HandlerFunc{
		"a code with a payload": rejecting(400, `{"c4n4ry":1}`),
		"a long code":           rejecting(400, strings.Repeat("c4n4ry", 100)),
		"a page":                func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502); io.WriteString(w, "<html>c4n4ry") },
		"a status line": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, "c4n4ry "+secret+"\r\n\r\n")
		},
		"hangs up": hangUp,
	} {
		f.set(answer)
		err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, 1)})
		if sinktest.Kind(err) != "throttle 1s" && sinktest.Kind(err) != "not connected" {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		for _, bad := range []string{"c4n4ry", secret, "KEY", "s3cr3t", "events", "AWS4"} {
			if strings.Contains(err.Error(), bad) {
				t.Errorf("%s: the error shows %q: %v", name, bad, err)
			}
		}
	}
}

func TestAFailedObjectNamesItsEntriesOnly(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{404: "not connected", 503: "throttle 1s", 413: "retry"} {
		f := newStore(t)
		f.set(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/bad/") {
				rejecting(status, "Bad")(w, r)
				return
			}
			w.WriteHeader(f.keep(t, r))
		})
		var w []*sink.Batch
		for i := range 40 {
			w = append(w, batch(fmt.Sprintf("p%d", i), 1, 2))
		}
		w[7], w[31] = batch("bad", 1, 3), batch("bad", 4, 1)
		err := sinkOn(t, f.Listener.Addr().String(), "&per=partition").Write(t.Context(), w)
		var named *sink.BatchError
		if !errors.As(err, &named) || len(named.Failed) != 4 {
			t.Fatalf("%d: got %v", status, err)
		}
		for i, at := range [][2]int{{7, 0}, {7, 1}, {7, 2}, {31, 0}} {
			e := named.Failed[i]
			if [2]int{e.Batch, e.Entry} != at || sinktest.Kind(e.Err) != want {
				t.Errorf("%d: got %+v, want %v %s", status, e, at, want)
			}
		}
		if got := f.taken(); len(got) != 38 {
			t.Errorf("%d: got %d objects, want the other 38", status, len(got))
		}
	}
}

func TestAWriteOfManyObjectsIsNotABurst(t *testing.T) {
	t.Parallel()
	f := newStore(t)
	var mu sync.Mutex
	running, most := 0, 0
	f.set(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		status := f.keep(t, r)
		mu.Lock()
		running--
		mu.Unlock()
		w.WriteHeader(status)
	})
	if err := sinkOn(t, f.Listener.Addr().String(), "&per=partition").Write(t.Context(), write(200, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if most > maxPuts || len(f.taken()) != 200 {
		t.Errorf("%d at once, %d objects", most, len(f.taken()))
	}
}

// What the memory of a Write is said to be: payloads that do not compress, and tiny ones
// with ids that do not.
func TestAnObjectIsNoLargerThanItsPayloadsInBase64(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	large, small := batch("p", 1, 0), batch("p", 1, 0)
	for seq := range int64(maxBytes / (32 << 10)) {
		payload := make([]byte, 32<<10)
		for i := range payload {
			payload[i] = byte(random.Uint32())
		}
		large.Entries = append(large.Entries, sink.Entry{Seq: seq, Occurred: 1763629675100, Payload: payload})
	}
	for seq := range int64(maxEntries) {
		id := make([]byte, partition.MaxIDLen)
		for i := range id {
			id[i] = '!' + byte(random.Uint32N('~'-'!'))
		}
		small.Entries = append(small.Entries, sink.Entry{Seq: seq, Occurred: 1763629675100 + int64(random.Uint32N(1e6)), ID: id, Payload: []byte("1")})
	}
	for _, compression := range []string{"gzip", "zstd"} {
		s := sinkOn(t, "h", "&compression="+compression)
		for name, b := range map[string]*sink.Batch{"large": large, "small": small} {
			w := []*sink.Batch{b}
			if size := len(s.body(s.split(w)[0], w)); size > maxBytes*14/10 {
				t.Errorf("%s, %s: %d bytes of %d", compression, name, size, maxBytes)
			}
		}
	}
}

func TestOptionsOfTheURL(t *testing.T) {
	t.Parallel()
	s := sinktest.Make[*Sink](t, New,
		"s3://K:a%2Fb%2Bc@s3.eu-central-1.amazonaws.com/bucket/a/b/?region=eu-central-1&linger=500ms&compression=zstd&per=partition")
	if s.endpoint.String() != "https://s3.eu-central-1.amazonaws.com" || s.base != "/bucket/a/b/" || s.secret != "a/b+c" || s.region != "eu-central-1" ||
		s.Caps().Linger != 500*time.Millisecond || s.format.suffix != ".ndjson.zst" || !s.perPartition {
		t.Errorf("got %+v", s)
	}
}

// write is a coalesced Write of n entries of some 230 bytes in each of many partitions.
func write(partitions, n int, from int64) []*sink.Batch {
	w := make([]*sink.Batch, 0, partitions)
	for p := range partitions {
		b := &sink.Batch{Namespace: "kart", Partition: fmt.Sprintf("com.acme.game-%d", p), FirstSeq: from, Attempt: 1}
		for i := range n {
			seq := from + int64(i)
			x := uint64(seq*1_000_003+int64(p)) * 0x9e3779b97f4a7c15 // as good as random
			b.Entries = append(b.Entries, sink.Entry{Seq: seq, Occurred: 1763629675100 + int64(x>>44), Payload: fmt.Appendf(nil,
				`{"event":"race_finished","player":"%016x","session":"%016x","level":%d,"score":%d,"platform":"android","version":"4.12.%d","country":"DE","duration_ms":%d,"vehicle":"kart-%d","items":["shell","banana","star"],"online":true}`,
				x, x*0xbf58476d1ce4e5b9, x>>8%40, x>>16%10007, x>>24%7, x>>32%200003, x>>40%12)})
		}
		w = append(w, b)
	}
	return w
}

func TestTheTokenOfTemporaryCredentialsIsSentAndSigned(t *testing.T) {
	t.Parallel()
	signed := make(chan http.Header, 1)
	store := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { signed <- r.Header }))
	defer store.Close()
	u, err := url.Parse("s3://KEY:SECRET@" + store.Listener.Addr().String() + "/bucket?insecure=1&session_token=t%2Fok%2Ben")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(u)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Open(t.Context()) // the answer is not a list
	defer s.Close(t.Context())
	if h := <-signed; h.Get("X-Amz-Security-Token") != "t/ok+en" || !strings.Contains(h.Get("Authorization"), "x-amz-security-token") {
		t.Errorf("got %v", h)
	}
}

func TestConforms(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{"gzip": "", "zstd by partition": "&compression=zstd&per=partition", "uncompressed": "&compression=none"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
				f := newStore(t)
				fault := func(name string, permanent bool, answer http.HandlerFunc) sinktest.Fault {
					return sinktest.Fault{Name: name, Permanent: permanent, Start: func() func() {
						f.set(answer)
						return func() { f.set(nil) }
					}}
				}
				return sinktest.Fixture{
					Sink:     sinkOn(t, f.Listener.Addr().String(), query),
					Received: func() ([]sinktest.Record, error) { return lines(f.taken()) },
					Stall:    f.stalled,
					Faults: []sinktest.Fault{
						fault("hangs up", false, hangUp),
						fault("SlowDown", false, rejecting(503, "SlowDown")),
						fault("wrong secret", false, rejecting(403, "SignatureDoesNotMatch")),
						fault("no bucket", false, rejecting(404, "NoSuchBucket")),
						fault("no If-None-Match", false, rejecting(501, "NotImplemented")),
						fault("stores and hangs up", false, func(w http.ResponseWriter, r *http.Request) {
							f.keep(t, r)
							hangUp(w, r)
						}),
						// By name it would be given up, and cannot be divided.
						fault("too large", !strings.Contains(query, "per=partition"), rejecting(413, "EntityTooLarge")),
					},
				}
			}})
		})
	}
}

func TestKeepsThePromisesOfHTTPTargets(t *testing.T) {
	t.Parallel()
	sinktest.RunHTTP(t, sinktest.HTTP{
		New: New, URL: "s3://KEY:s3cret@HOST/events/in?insecure=1&session_token=s3cret", TLS: "s3://KEY:s3cret@HOST/events/in",
		Wrong: map[string]string{
			"s3:":                                                "sink s3:: names no host: write s3://KEY:SECRET@host:9000/bucket/prefix",
			"s3:///bucket":                                       "sink s3:…: names no host: write s3://KEY:SECRET@host:9000/bucket/prefix",
			"s3://K:s3cret@:9000/b":                              "sink s3://…@:9000/…: names no host: write s3://KEY:SECRET@host:9000/bucket/prefix",
			"s3://K:s3cret@h:0/bucket":                           "sink s3://…@h:0/…: port is not 1 to 65535",
			"s3://K:s3cret@h/bucket#x":                           "sink s3://…@h/…: a # in the URL is written %23",
			"s3://h/bucket":                                      "sink s3://h/…: names no access key: write s3://KEY:SECRET@host/bucket, and a / in the secret as %2F",
			"s3://K@h/bucket":                                    "sink s3://…@h/…: names no access key: write s3://KEY:SECRET@host/bucket, and a / in the secret as %2F",
			"s3://K%0d:s3cret@h/bucket":                          "sink s3://…@h/…: the access key has other characters than letters, digits and ._=-",
			"s3://K:s3cret@h":                                    "sink s3://…@h: names no bucket, or one that cannot be: write s3://KEY:SECRET@host/bucket",
			"s3://K:s3cret@h/b":                                  "sink s3://…@h/…: names no bucket, or one that cannot be: write s3://KEY:SECRET@host/bucket",
			"s3://K:s3cret@h/bucket/a/../b":                      "sink s3://…@h/…: prefix: want names of letters, digits and ._=- between single slashes",
			"s3://K:s3cret@h/bucket/a//b":                        "sink s3://…@h/…: prefix: want names of letters, digits and ._=- between single slashes",
			"s3://K:s3cret@h/bucket/a%20b":                       "sink s3://…@h/…: prefix: want names of letters, digits and ._=- between single slashes",
			"s3://K:s3cret@h/bucket?region=a%0d":                 `sink s3://…@h/…?…: region: "a\r", want a name such as eu-central-1`,
			"s3://K:s3cret@h/bucket?insecure=yes":                `sink s3://…@h/…?…: insecure: "yes", want 1 or nothing`,
			"s3://K:s3cret@h/bucket?compression=7":               `sink s3://…@h/…?…: compression: "7", want gzip, zstd or none`,
			"s3://K:s3cret@h/bucket?per=batch":                   `sink s3://…@h/…?…: per: "batch", want write or partition`,
			"s3://K:s3cret@h/bucket?linger=0":                    `sink s3://…@h/…?…: linger: "0", want 10ms to 1m`,
			"s3://K:s3cret@h/bucket?linger=2m":                   `sink s3://…@h/…?…: linger: "2m", want 10ms to 1m`,
			"s3://K:s3cret@h/bucket?secret=x":                    `sink s3://…@h/…?…: unknown option "secret": known are region, session_token, insecure, compression, per, linger`,
			"s3://K:s3cret@h/bucket/" + strings.Repeat("p", 513): "sink s3://…@h/…: prefix is longer than 512 bytes",
		},
		Transport: func(s sink.Sink) *http.Transport { return s.(*Sink).client },
		Accept:    func(http.ResponseWriter, *http.Request) {},
		Answer: func(w io.Writer, _ int) {
			_, _ = io.WriteString(w, "<?xml version=\"1.0\"?>\n<Error><Code>Code.1</Code><Message>c4n4ry</Message></Error>")
		},
		Outcome: func(status int) string {
			switch {
			case status/100 == 2, status == 412:
				return "accepted"
			case status == 413:
				return "permanent"
			case slices.Contains([]int{301, 307, 401, 403, 404}, status):
				return "not connected"
			}
			return "throttle 1s"
		},
		Fault: "not connected", Cut: "accepted", Endless: "accepted", Reads: 50_000,
	})
}
