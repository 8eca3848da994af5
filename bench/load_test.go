package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition"
)

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"accepted\":1}"

// server answers on pipes, so that time in its tests is the bubble's.
type server struct {
	seen   atomic.Int64
	answer func(i int64) string // "" hangs up instead
	wg     sync.WaitGroup
}

func (s *server) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	s.wg.Go(func() {
		defer func() { _ = far.Close() }()
		br := bufio.NewReader(far)
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			answer := s.answer(s.seen.Add(1) - 1)
			if answer == "" {
				return
			}
			if _, err := io.WriteString(far, answer); err != nil {
				return
			}
		}
	})
	return near, nil
}

// drive runs l against s in virtual time.
func drive(t *testing.T, l Load, s *server) (res Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if res, err = l.run(t.Context(), s.dial, time.Sleep); err != nil {
			t.Error(err)
		}
		s.wg.Wait()
	})
	return res
}

func load(rate float64, d time.Duration, connections int) Load {
	return Load{
		URL: "http://test:80", Namespace: "default", Rate: rate, Duration: d,
		Partitions: 3, Entries: 1, PayloadBytes: 200, Connections: connections, Timeout: 5 * time.Second,
	}
}

func TestAStallIsSeenByEveryRequestThatWasDueMeanwhile(t *testing.T) {
	t.Parallel()
	// 200 requests, 10 ms apart, one connection. Request 50 takes a second, so
	// 51 to 149 wait 990 ms, 980 ms … 10 ms. A loader that measures from the
	// sending would report one slow request of 200, and a p99 of nothing.
	s := &server{answer: func(i int64) string {
		if i == 50 {
			time.Sleep(time.Second) // virtual: the stall itself
		}
		return ok
	}}
	res := drive(t, load(100, 2*time.Second, 1), s)
	if res.Acked != 200 || res.Errors() != 0 {
		t.Fatalf("got %d acked and %d errors, want 200 and 0", res.Acked, res.Errors())
	}
	near := func(name string, got, want time.Duration) {
		if got < want-2*time.Millisecond || got > want+2*time.Millisecond {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	near("latency max", res.Latency.Max, time.Second)
	near("latency p99.9", res.Latency.P999, time.Second)
	near("latency p99", res.Latency.P99, 980*time.Millisecond)
	near("lag max", res.Lag.Max, 990*time.Millisecond)
	near("elapsed", res.Elapsed, 1990*time.Millisecond)
}

func TestAnotherConnectionTakesOverFromAStalledOne(t *testing.T) {
	t.Parallel()
	s := &server{answer: func(i int64) string {
		if i == 50 {
			time.Sleep(time.Second)
		}
		return ok
	}}
	res := drive(t, load(100, 2*time.Second, 2), s)
	if res.Latency.Max != time.Second || res.Latency.P99 != 0 || res.Lag.Max != 0 {
		t.Errorf("got max %v, p99 %v, lag %v; want 1s for one request only", res.Latency.Max, res.Latency.P99, res.Lag.Max)
	}
}

func TestAHangingServerEndsTheRun(t *testing.T) {
	t.Parallel()
	l := load(10, 20*time.Second, 2)
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := &server{answer: func(int64) string { <-hang; return "" }}
		began := time.Now()
		res, err := l.run(t.Context(), s.dial, time.Sleep)
		if err != nil {
			t.Fatal(err)
		}
		if took, most := time.Since(began), l.Duration+2*l.Timeout; took > most {
			t.Errorf("took %v, want at most %v", took, most)
		}
		if res.Acked != 0 || res.Unknown == 0 || res.Unknown+res.Rejected["overdue"] != 200 {
			t.Errorf("got acked %d, unknown %d, rejected %v; want 200 unknown or overdue", res.Acked, res.Unknown, res.Rejected)
		}
		if res.Latency.Max < l.Timeout {
			t.Errorf("latency max: got %v, want the timeout or more", res.Latency.Max)
		}
		close(hang)
		s.wg.Wait()
	})
}

func TestALostAnswerIsUnknownAndNotSentAgain(t *testing.T) {
	t.Parallel()
	s := &server{answer: func(i int64) string {
		if i%10 == 0 {
			return ""
		}
		return ok
	}}
	res := drive(t, load(100, time.Second, 4), s)
	if res.Acked != 90 || res.Unknown != 10 || s.seen.Load() != 100 {
		t.Errorf("got acked %d, unknown %d, seen by the server %d; want 90, 10, 100", res.Acked, res.Unknown, s.seen.Load())
	}
}

func TestAConnectionTheServerEndsIsReplaced(t *testing.T) {
	t.Parallel()
	s := &server{answer: func(int64) string {
		return "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
	}}
	res := drive(t, load(100, time.Second, 2), s)
	if res.Acked != 100 || res.Errors() != 0 {
		t.Errorf("got acked %d, errors %d; want 100, 0", res.Acked, res.Errors())
	}
}

func TestAnIdleConnectionIsNotTrusted(t *testing.T) {
	t.Parallel()
	s := &server{answer: func(int64) string { return ok }}
	var dials atomic.Int64
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return s.dial(ctx, network, addr)
	}
	synctest.Test(t, func(t *testing.T) {
		res, err := load(0.1, 30*time.Second, 1).run(t.Context(), dial, time.Sleep)
		if err != nil || res.Acked != 3 {
			t.Errorf("got acked %d, %v; want 3", res.Acked, err)
		}
		s.wg.Wait()
	})
	if dials.Load() != 3 {
		t.Errorf("got %d dials, want one a request: they are 10 s apart", dials.Load())
	}
}

func TestTheEndOfTheContextEndsTheLoad(t *testing.T) {
	t.Parallel()
	s := &server{answer: func(int64) string { return ok }}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1005*time.Millisecond)
		defer cancel()
		res, err := load(100, time.Hour, 2).run(ctx, s.dial, time.Sleep)
		if err != nil || res.Acked != 101 {
			t.Errorf("got acked %d, %v; want the 101 that were due", res.Acked, err)
		}
		s.wg.Wait()
	})
}

func TestAClosedLoopSendsWhenItWasAnswered(t *testing.T) {
	t.Parallel()
	// Two connections, 10 ms an answer, one second: a hundred each, whose
	// latency is the server's alone.
	slow := func(int64) string {
		time.Sleep(10 * time.Millisecond) // virtual: the server's work
		return ok
	}
	s := &server{answer: slow}
	res := drive(t, load(0, time.Second, 2), s)
	if res.Acked != 200 || res.Errors() != 0 || res.Latency.Max != 10*time.Millisecond || res.Lag.Max != 0 {
		t.Errorf("got acked %d, errors %d, latency max %v, lag max %v; want 200, 0, 10ms, 0", res.Acked, res.Errors(), res.Latency.Max, res.Lag.Max)
	}

	counted := load(0, time.Minute, 2)
	counted.Requests = 7
	s = &server{answer: slow}
	if res := drive(t, counted, s); res.Acked != 7 || s.seen.Load() != 7 {
		t.Errorf("got acked %d, seen %d; want 7 requests and no more", res.Acked, s.seen.Load())
	}
}

func TestZipfPrefersTheFirstPartitionsAndRepeatsItself(t *testing.T) {
	t.Parallel()
	l := load(1, time.Second, 1)
	l.Partitions, l.Zipf, l.Prefix = 50, true, "game-"
	a, b := newRequestBuilder(l, "test:80"), newRequestBuilder(l, "test:80")
	counts := make([]int, l.Partitions)
	for i := range int64(10_000) {
		p := a.partition(i)
		if p != b.partition(i) {
			t.Fatalf("request %d: got %d and %d", i, p, b.partition(i))
		}
		counts[p]++
	}
	if counts[0] < 2*counts[1]-counts[0]/4 || counts[0] < 5*counts[20] || counts[49] == 0 {
		t.Errorf("got %v, want a long tail behind the first", counts)
	}
	if path := string(a.append(nil, 0)); !strings.HasPrefix(path, "POST /v1/default/game-") {
		t.Errorf("got %.40s, want the prefix in the path", path)
	}
}

func TestAMissingListenerIsAnError(t *testing.T) {
	t.Parallel()
	down := errors.New("rejected")
	_, err := load(1, time.Second, 1).run(t.Context(),
		func(context.Context, string, string) (net.Conn, error) { return nil, down }, time.Sleep)
	if !errors.Is(err, down) {
		t.Errorf("got %v, want the dialer's error", err)
	}
}

func TestUnusableLoadsAreErrors(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Load){
		"https":            func(l *Load) { l.URL = "https://test:80" },
		"no port":          func(l *Load) { l.URL = "http://test" },
		"no namespace":     func(l *Load) { l.Namespace = "" },
		"no request":       func(l *Load) { l.Duration = time.Millisecond },
		"no partition":     func(l *Load) { l.Partitions = 0 },
		"a tiny payload":   func(l *Load) { l.PayloadBytes = MinPayload - 1 },
		"no timeout":       func(l *Load) { l.Timeout = 0 },
		"no connection":    func(l *Load) { l.Connections = 0 },
		"negative entries": func(l *Load) { l.Entries = -1 },
	} {
		l := load(10, time.Second, 1)
		spoil(&l)
		if _, err := Run(t.Context(), l); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestAnswersAreReadByTheWireContract(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status, n int
		body      string
		want      outcome
	}{
		{204, 5, "", outcome{acked: 5}},
		{200, 1, `{"accepted":1,"evicted":3,"depth":9}`, outcome{acked: 1, evicted: 3}},
		{200, 3, `{"accepted":1,"rejected":2,"results":[{"i":0,"result":"drop","reason":"stale"},{"i":2,"result":"retry","reason":"unknown"}]}`,
			outcome{acked: 1, unknown: 1, reasons: []string{"stale"}}},
		{200, 1, `{"accepted":1,"results":[{"i":0,"result":"warning","reason":"unskewed"}]}`, outcome{acked: 1}},
		{200, 2, `{"accepted":1}`, allRejected("bad_answer", 2)},
		{429, 2, `{"error":"too_many_partitions","message":"…"}`, allRejected("too_many_partitions", 2)},
		{503, 1, `{"error":"store_unavailable","message":"…"}`, allRejected("store_unavailable", 1)},
		{503, 4, `{"error":"store_unavailable","message":"…","outcome":"unknown"}`, outcome{unknown: 4}},
		{502, 1, "a proxy's page", allRejected("status_502", 1)},
	} {
		if got := readAnswer(tt.status, []byte(tt.body), tt.n); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%d %s: got %+v, want %+v", tt.status, tt.body, got, tt.want)
		}
	}
}

func TestRequestsAreWellFormed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		entries     int
		contentType string
	}{{1, "application/json"}, {3, "application/x-ndjson"}} {
		l := load(1, time.Second, 1)
		l.Entries, l.Token = tt.entries, "secret"
		b := newRequestBuilder(l, "test:80")
		seen := map[string]bool{}
		for i := range int64(4) {
			req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(b.append(nil, i)))))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				t.Fatal(err)
			}
			want := "/v1/default/bench-" + string("0120"[i])
			if req.URL.Path != want || req.Header.Get("Content-Type") != tt.contentType || req.Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("got %s with %v, want %s", req.URL.Path, req.Header, want)
			}
			lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
			if len(lines) != tt.entries {
				t.Errorf("got %d lines, want %d", len(lines), tt.entries)
			}
			for _, line := range lines {
				if len(line) != l.PayloadBytes || seen[line] {
					t.Errorf("got %d bytes (seen before: %v), want %d and never twice: %s", len(line), seen[line], l.PayloadBytes, line)
				}
				seen[line] = true
			}
		}
	}
}

func TestProgressIsReportedEachSecondUntilTheEnd(t *testing.T) {
	t.Parallel()
	l := load(10, 3500*time.Millisecond, 1)
	var acked []int64
	l.Progress = func(r Result) { acked = append(acked, r.Acked) }
	res := drive(t, l, &server{answer: func(int64) string { return ok }})
	if len(acked) != 3 || acked[0] < 9 || acked[2] < 29 || acked[2] > res.Acked || res.Acked != 35 {
		t.Errorf("got %v, then %d", acked, res.Acked)
	}
}

func TestALoadGoesOverTLS(t *testing.T) {
	t.Parallel()
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"accepted":1}`) }))
	target.Config.ErrorLog = log.New(io.Discard, "", 0)
	target.StartTLS()
	t.Cleanup(target.Close)
	l := load(100, 100*time.Millisecond, 1)
	l.URL = target.URL
	if _, err := Run(t.Context(), l); !errors.As(err, new(x509.UnknownAuthorityError)) {
		t.Errorf("got %v, want an unknown authority", err)
	}
	trusting := &tls.Dialer{Config: target.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
	if res, err := l.run(t.Context(), trusting.DialContext, time.Sleep); err != nil || res.Acked != 10 {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestMixedRequestsScatterTheirEntries(t *testing.T) {
	t.Parallel()
	l := load(1, time.Second, 1)
	l.Entries, l.Partitions, l.Mixed = 100, 1000, true
	b := newRequestBuilder(l, "test:80")
	seen, hit := map[string]bool{}, map[string]int{}
	for i := range int64(100) {
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(b.append(nil, i)))))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(req.Body) // as long as the head says, or it fails
		if err != nil {
			t.Fatal(err)
		}
		if req.URL.Path != "/v1/default" || req.Header.Get("Content-Type") != "application/x-ndjson" {
			t.Fatalf("got %s with %v", req.URL.Path, req.Header)
		}
		for line := range strings.Lines(string(body)) {
			var item struct {
				Partition string
				Data      json.RawMessage
			}
			if err := json.Unmarshal([]byte(line), &item); err != nil || !strings.HasSuffix(line, "\n") {
				t.Fatalf("%q: %v", line, err)
			}
			if data := string(item.Data); len(data) != l.PayloadBytes || seen[data] {
				t.Fatalf("got %d bytes (seen before: %v): %s", len(data), seen[data], data)
			}
			seen[string(item.Data)] = true
			hit[item.Partition]++
		}
	}
	// 10,000 entries over 1,000 partitions: ten each, more or less.
	if len(seen) != 10_000 || len(hit) < 990 {
		t.Errorf("got %d entries in %d partitions, want 10000 in nearly all of 1000", len(seen), len(hit))
	}
	for name, n := range hit {
		if n > 40 || !strings.HasPrefix(name, "bench-") {
			t.Errorf("%d entries in %s", n, name)
		}
	}
}

func TestSegmentRequestsAreBatchesOfEventsOfTheSizeAskedFor(t *testing.T) {
	t.Parallel()
	l := load(1, time.Second, 1)
	l.Entries, l.Partitions, l.Segment, l.PayloadBytes = 100, 1000, true, 400
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(newRequestBuilder(l, "test:80").append(nil, 7)))))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(req.Body) // as long as the head says, or it fails
	if err != nil {
		t.Fatal(err)
	}
	if user, _, _ := req.BasicAuth(); req.URL.Path != "/segment/v1/batch" || user != "default" {
		t.Fatalf("got %s of %q", req.URL.Path, user)
	}
	var batch struct {
		SentAt time.Time
		Batch  []json.RawMessage
	}
	if err := json.Unmarshal(body, &batch); err != nil || len(batch.Batch) != 100 || time.Since(batch.SentAt) > time.Minute {
		t.Fatalf("%d events sent at %v: %v", len(batch.Batch), batch.SentAt, err)
	}
	for i, raw := range batch.Batch {
		var event struct {
			MessageID  string `json:"messageId"`
			Properties struct{ Game string }
		}
		if err := json.Unmarshal(raw, &event); err != nil || len(raw) != 400 || !strings.HasPrefix(event.Properties.Game, "bench-") {
			t.Errorf("event %d of %d bytes: %+v %v", i, len(raw), event, err)
		}
	}
	l.PayloadBytes = 100
	if _, err := l.validate(); err == nil {
		t.Error("events of 100 bytes are no Segment events")
	}
}

func TestTheAccountIsReadFromTheAdminPort(t *testing.T) {
	t.Parallel()
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := `{"ledger":{"accepted":7,"delivered":4,"buffered":3}}`
		switch {
		case r.URL.Path == "/api/v1/namespaces/old":
		case r.URL.Path != "/api/v1/namespaces/default":
			http.Error(w, `{"error":"no_such_namespace"}`, http.StatusNotFound)
			return
		case r.URL.RawQuery == "audit=1":
			body = strings.TrimSuffix(body, "}") + `,"residual":2}`
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(admin.Close)
	a, err := ReadAccount(t.Context(), admin.URL, "default", false)
	if want := (partition.Ledger{Accepted: 7, Delivered: 4, Buffered: 3}); err != nil || a.Ledger != want || a.Residual != nil {
		t.Errorf("got %+v, %v; want %+v", a, err, want)
	}
	if a, err = ReadAccount(t.Context(), admin.URL, "default", true); err != nil || a.Residual == nil || *a.Residual != 2 {
		t.Errorf("audit: got %+v, %v; want a residual of 2", a, err)
	}
	if _, err = ReadAccount(t.Context(), admin.URL, "old", true); err == nil {
		t.Error("an audit without a residual: got no error")
	}
	if _, err = ReadAccount(t.Context(), admin.URL, "other", false); err == nil || !strings.Contains(err.Error(), "no_such_namespace") {
		t.Errorf("got %v, want what the server said", err)
	}
}

func TestAwaitingTheDrainEndsWithTheBufferOrTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		left := int64(3)
		at, err := AwaitDrained(t.Context(), func(context.Context) (partition.Ledger, error) {
			left--
			return partition.Ledger{Buffered: left}, nil
		})
		if err != nil || at.Sub(start) != 10*time.Millisecond {
			t.Errorf("got %v, %v; want the third look", at.Sub(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = AwaitDrained(ctx, func(context.Context) (partition.Ledger, error) { return partition.Ledger{Buffered: 9}, nil })
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "9 entries left") {
			t.Errorf("got %v, want the end of the context and what is left", err)
		}
		broken := errors.New("broken")
		if _, err = AwaitDrained(t.Context(), func(context.Context) (partition.Ledger, error) { return partition.Ledger{}, broken }); !errors.Is(err, broken) {
			t.Errorf("got %v, want the reader's error", err)
		}
	})
}

func TestOneSeriesIsReadFromTheMetrics(t *testing.T) {
	t.Parallel()
	text := []byte("# TYPE x_sum counter\nx_sum{namespace=\"other\"} 3\nx_sum{namespace=\"default\"} 1.28e+06\n")
	if got := Metric(text, `x_sum{namespace="default"}`); got != 1.28e6 {
		t.Errorf("got %v, want 1.28e6", got)
	}
	if got := Metric(text, "y_sum"); got != 0 {
		t.Errorf("absent: got %v, want 0", got)
	}
}

func TestAssertionsCompareNumbersAndDurations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list string
		got  float64
		hold bool
	}{
		{"p99<5ms", 0.0049, true}, {"p99<5ms", 0.005, false}, {"p99<=5ms", 0.005, true}, {" p99.9 > 1s ", 2, true},
		{"residual=0", 0, true}, {"residual==0", 1, false}, {"rate>=1e4", 9999, false}, {"errors!=0", 1, true}, {"max<0", 0, false},
	} {
		list, err := ParseAsserts(tt.list)
		if err != nil || len(list) != 1 {
			t.Errorf("%s: got %v, %v", tt.list, list, err)
			continue
		}
		if got := list[0].holds(tt.got); got != tt.hold {
			t.Errorf("%s with %v: got %v", tt.list, tt.got, got)
		}
	}
	for _, broken := range []string{"p99", "p99<", "p99<5", "p98<5ms", "residual=0ms", "p99=<5ms", "p99<5ms,x", "<5ms"} {
		if list, err := ParseAsserts(broken); err == nil {
			t.Errorf("%q: got %v, want an error", broken, list)
		}
	}
	if list, err := ParseAsserts("p99<5ms, residual=0,"); err != nil || len(list) != 2 {
		t.Errorf("a list: got %v, %v; want two", list, err)
	}
}

func FuzzAsserts(f *testing.F) {
	for _, list := range []string{"p99<5ms,residual=0", "p99<5", "=", "p99<>5ms", "rate>=1e400", "lost!=NaN", ",,", "p99 < 5ms", "delivered==0x10", "p99<<5ms", "rate<=+Inf", "<5ms", " p99 < 5ms , , ", "requests=5ms"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		asserts, err := ParseAsserts(list)
		if err != nil {
			return
		}
		for _, a := range asserts {
			if !slices.Contains(Figures, a.Key) || a.op == "" || !strings.HasPrefix(a.text, a.Key) {
				t.Fatalf("%q: got %+v", list, a)
			}
			if a.holds(a.want) != slices.Contains([]string{"<=", ">=", "=", "=="}, a.op) {
				t.Fatalf("%q: %+v compared with itself", list, a)
			}
		}
	})
}

func TestTheRateOfADrainIsWithoutItsTail(t *testing.T) {
	t.Parallel()
	began := time.Now()
	d := &DrainCurve{}
	d.Start(began, partition.Ledger{Delivered: 1000})
	// 1,000 a second for 9 s, then 1,000 more after a second's wait.
	for i := range 10 {
		d.Add(began.Add(time.Duration(i)*time.Second), partition.Ledger{Delivered: 1000 + int64(i)*1000})
	}
	d.Add(began.Add(11*time.Second), partition.Ledger{Delivered: 11_000})
	d.Add(began.Add(12*time.Second), partition.Ledger{Delivered: 11_000})
	if got := d.Rate(); got != 1000 {
		t.Errorf("got %v, want 1000", got)
	}
	if got := new(DrainCurve).Rate(); got != 0 {
		t.Errorf("nothing delivered: got %v", got)
	}
	// A burst of less than half of the entries is no rate.
	d = &DrainCurve{began: began}
	d.Add(began.Add(time.Millisecond), partition.Ledger{Delivered: 40})
	d.Add(began.Add(time.Second), partition.Ledger{Delivered: 100})
	if got := d.Rate(); got != 100 {
		t.Errorf("got %v, want 100", got)
	}
}
