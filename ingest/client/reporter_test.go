package spillway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// answers is a transport that answers every request with a status and a body.
type answers struct {
	status int
	body   string
	calls  atomic.Int64
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.calls.Add(1)
	rec := &http.Response{StatusCode: a.status, Header: http.Header{}, Request: r, Body: http.NoBody}
	if a.body != "" {
		rec.Body = readCloser{strings.NewReader(a.body)}
	}
	return rec, nil
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

func open(t testing.TB, cfg spillway.ReporterConfig) *spillway.Reporter {
	t.Helper()
	c, err := spillway.NewReporter("http://127.0.0.1:1", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

func TestWhatCannotBeSentIsRejectedAndCounted(t *testing.T) {
	t.Parallel()
	c := open(t, spillway.ReporterConfig{Transport: &answers{status: 204}, MaxEntry: 10})
	for _, row := range []struct {
		partition, payload, id string
		want                   error
	}{
		{"kart", `"0123456789"`, "", spillway.ErrTooLarge},
		{"kart", "", "", spillway.ErrEmpty},
		{"", "1", "", spillway.ErrBadPartition},
		{"a b", "1", "", spillway.ErrBadPartition},
		{strings.Repeat("p", 129), "1", "", spillway.ErrBadPartition},
		{"kart", "1", "a b", spillway.ErrBadID},
		{"kart", "1", strings.Repeat("i", 65), spillway.ErrBadID},
	} {
		if err := c.ReportEvent(spillway.Event{Partition: row.partition, Payload: []byte(row.payload), ID: row.id}); err != row.want {
			t.Errorf("%.20q %.20q: got %v, want %v", row.partition, row.payload, err, row.want)
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Report("kart", []byte("1")); err != spillway.ErrClosed {
		t.Errorf("after Close: got %v", err)
	}
	s := c.Stats()
	if s.Reported != 8 || s.Dropped[spillway.TooLarge] != 1 || s.Dropped[spillway.Invalid] != 6 || s.Dropped[spillway.Shutdown] != 1 || s.Pending != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestSettingsThatCannotWorkAreRejected(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "127.0.0.1:8080", "ftp://h", "http://", "http://u:p@h", "http://h?x=1", "http://h#x", "http://h/%zz"} {
		if _, err := spillway.NewReporter(url, spillway.ReporterConfig{}); err == nil {
			t.Errorf("%q: got no error", url)
		} else if strings.Contains(err.Error(), "u:p@") {
			t.Errorf("%q: the error shows the password: %v", url, err)
		}
	}
	for name, cfg := range map[string]spillway.ReporterConfig{
		"namespace": {Namespace: "a b"}, "token": {Token: "a\nb"}, "batch": {Batch: 1001}, "negative batch": {Batch: -1},
		"entry beyond the batch": {MaxEntry: 1 << 20}, "queue": {Queue: 1}, "bytes": {QueueBytes: 1}, "in flight": {InFlight: -1},
		"attempts": {Attempts: -1}, "breaker": {BreakAfter: -1}, "linger": {Linger: -2}, "timeout": {Timeout: spillway.None}, "back-off": {BackoffBase: time.Second, BackoffMax: time.Millisecond},
	} {
		if _, err := spillway.NewReporter("http://127.0.0.1:1", cfg); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestNoneIsADurationOfZero(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		transport := clienttest.NewTransport(clienttest.Step{Status: 503}, clienttest.Step{})
		c := open(t, spillway.ReporterConfig{Transport: transport, Linger: spillway.None, BackoffBase: spillway.None, MaxAge: spillway.None})
		began := time.Now()
		if err := c.ReportEvent(spillway.Event{Partition: "kart", Payload: []byte("1"), Time: time.UnixMilli(1)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := c.Stats(); s.Acked != 1 || time.Since(began) != 0 {
			t.Errorf("after %v: %+v", time.Since(began), s)
		}
	})
}

// agesSent is a service that comes back at a time, and knows how old entries are that it is sent: at
// first, and the youngest of each request. Attempts end when that is stale.
type agesSent struct {
	back time.Time

	mu              sync.Mutex
	reported        map[string]time.Time
	seen            map[string]bool
	first, youngest time.Duration // at most
}

var lap = regexp.MustCompile("lap [0-9]+")

func (a *agesSent) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	youngest := time.Hour
	for _, name := range lap.FindAllString(string(body), -1) {
		age := time.Since(a.reported[name])
		youngest = min(youngest, age)
		if !a.seen[name] {
			a.seen[name], a.first = true, max(a.first, age)
		}
	}
	a.youngest = max(a.youngest, youngest)
	if time.Now().Before(a.back) {
		return clienttest.Answer(503, `{"error":"store_unavailable","message":"m"}`), nil
	}
	return clienttest.Answer(204, ""), nil
}

func TestNothingIsSentOnceItIsStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const laps, maxAge = 300, 10 * time.Second
		service := &agesSent{back: time.Now().Add(15 * time.Second), reported: map[string]time.Time{}, seen: map[string]bool{}}
		c := open(t, spillway.ReporterConfig{Transport: service, InFlight: 1, MaxAge: maxAge, Attempts: 1000, BreakAfter: 1000, CompressFrom: 1 << 20})
		for i := range laps {
			name := fmt.Sprint("lap ", i)
			service.mu.Lock()
			service.reported[name] = time.Now()
			service.mu.Unlock()
			if err := c.Report("kart", []byte(strconv.Quote(name))); err != nil {
				t.Fatal(err)
			}
			clocktest.Pass(100 * time.Millisecond)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		s := c.Stats()
		if service.first > maxAge || service.youngest > maxAge || service.first < maxAge/2 {
			t.Errorf("one was sent for the first time at %v, and a request with nothing younger than %v", service.first, service.youngest)
		}
		if stale := s.Dropped[spillway.Stale]; stale == 0 || s.Acked+stale != laps {
			t.Errorf("%+v", s)
		}
	})
}

func TestReportDoesNotAllocate(t *testing.T) {
	c := open(t, spillway.ReporterConfig{Transport: &answers{status: 503}, Linger: time.Hour, Queue: 100, Batch: 1000, MaxAge: time.Hour})
	payload := []byte(strings.Repeat("x", 200))
	for range 1000 { // the queue is full: each takes the memory of the oldest
		_ = c.Report("kart", payload)
	}
	if n := testing.AllocsPerRun(1000, func() { _ = c.Report("kart", payload) }); n > 0 {
		t.Errorf("%v allocations a report", n)
	}
}

func TestOnDropHearsOfWhatCloseDrops(t *testing.T) {
	t.Parallel()
	for range 30 {
		var told atomic.Int64
		c, err := spillway.NewReporter("http://127.0.0.1:1", spillway.ReporterConfig{
			Transport: clienttest.NewTransport(clienttest.Step{Hang: true}), Batch: 10, Linger: time.Millisecond,
			OnDrop: func(_ spillway.Reason, n int64) { told.Add(n) },
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			_ = c.Report("kart", []byte("1"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = c.Close(ctx)
		if n := c.Stats().Dropped[spillway.Shutdown]; n != 100 || told.Load() != n {
			t.Fatalf("%d dropped, OnDrop heard of %d", n, told.Load())
		}
	}
}

// counted is a service that counts the connections that are open.
func counted(t *testing.T, answer string) (url string, open func() int64) {
	var n atomic.Int64
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	web.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			n.Add(1)
		case http.StateClosed:
			n.Add(-1)
		}
	}
	web.Start()
	t.Cleanup(web.Close)
	return web.URL, n.Load
}

func TestCloseEndsTheConnectionsOfItsOwn(t *testing.T) {
	t.Parallel()
	eventually := func(what string, true func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !true(); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%s: not within 20 s", what)
			}
		}
	}
	url, events := counted(t, `{"accepted":1}`)
	c, err := spillway.NewReporter(url, spillway.ReporterConfig{Linger: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Report("kart", []byte("1"))
	if err := c.Close(t.Context()); err != nil || c.Stats().Acked != 1 {
		t.Fatalf("%v, %+v", err, c.Stats())
	}
	eventually("the connections of Reporter are closed", func() bool { return events() == 0 })

	url, jobs := counted(t, `{"ready":1}`)
	j, err := spillway.NewQueues(url, spillway.QueuesConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it can be used again
		if _, err := j.Counts(t.Context(), "welcome"); err != nil || jobs() != 1 {
			t.Fatalf("%v, %d connections", err, jobs())
		}
		j.Close()
		eventually("the connections of Queues are closed", func() bool { return jobs() == 0 })
	}

	url, shared := counted(t, `{"ready":1}`)
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	if j, err = spillway.NewQueues(url, spillway.QueuesConfig{Transport: own}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // on one connection
		if _, err := j.Counts(t.Context(), "welcome"); err != nil || shared() != 1 {
			t.Fatalf("%v, %d connections", err, shared())
		}
		j.Close()
	}
}

// early answers before it has read the body, which RoundTripper allows until the body
// is closed.
type early struct {
	second chan struct{}
	bodies chan []byte
	calls  int
}

func (e *early) RoundTrip(r *http.Request) (*http.Response, error) {
	e.calls++
	if e.calls == 1 {
		go func() {
			<-e.second
			body, _ := io.ReadAll(r.Body)
			_ = r.Body.Close()
			e.bodies <- body
		}()
	} else {
		close(e.second)
	}
	return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func TestABodyIsNotChangedWhileATransportMayReadIt(t *testing.T) {
	t.Parallel()
	e := &early{second: make(chan struct{}), bodies: make(chan []byte, 1)}
	c := open(t, spillway.ReporterConfig{Transport: e, InFlight: 1, Batch: 1, Linger: time.Millisecond, CompressFrom: -1})
	for _, payload := range []string{`"aaaaaaaa"`, `"bbbbbbbb"`} {
		if err := c.Report("kart", []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	if body := <-e.bodies; !bytes.Contains(body, []byte("aaaaaaaa")) {
		t.Errorf("the first request carried %s", body)
	}
}

// spillway report's tests are those of the retries of a Poster.
func TestPostSaysWhatBecameOfEachEntry(t *testing.T) {
	t.Parallel()
	var path, token, body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		path, token, body = r.URL.Path, r.Header.Get("Authorization"), string(text)
		_, _ = io.WriteString(w, `{"accepted":1,"evicted":3,"results":[{"i":1,"result":"drop","reason":"stale"}]}`)
	}))
	defer server.Close()
	p := spillway.NewPoster(server.URL+"/", spillway.PosterConfig{Namespace: "kart", Token: "secret", Timeout: time.Minute})
	got, err := p.Post(t.Context(), [][]byte{[]byte("{\"a\":1}\n"), []byte("{\"b\":2}\n")})
	if err != nil || got.Accepted != 1 || got.Evicted != 3 || got.Retried != 0 || !maps.Equal(got.Rejected, map[string]int{"stale": 1}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if path != "/v1/kart" || token != "Bearer secret" || body != "{\"a\":1}\n{\"b\":2}\n" {
		t.Errorf("sent %q with %q to %s", body, token, path)
	}
}

func TestAPostWhoseContextEndedFinishesItsRequestAndRepeatsNone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		cancel()
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":"overloaded","message":"full"}`)
	}))
	defer server.Close()
	p := spillway.NewPoster(server.URL, spillway.PosterConfig{Namespace: "kart", Timeout: time.Minute})
	got, err := p.Post(ctx, [][]byte{[]byte("1\n")})
	if err == nil || !strings.Contains(err.Error(), "503 overloaded: full") || requests != 1 || got.Rejected["overloaded"] != 1 {
		t.Errorf("got %+v, %v after %d requests", got, err, requests)
	}
}

// sdk is the Reporter as the suite drives it.
type sdk struct {
	*spillway.Reporter
	said
}

func (s sdk) Report(partition, payload string) { _ = s.Reporter.Report(partition, []byte(payload)) }

func (s sdk) ReportAt(partition, payload string, at time.Time) {
	_ = s.ReportEvent(spillway.Event{Partition: partition, Payload: []byte(payload), Time: at})
}

func (s sdk) Flush(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.Reporter.Flush(ctx)
}

func (s sdk) Close(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.Reporter.Close(ctx)
}

func (s sdk) Counts() clienttest.Counts {
	now := s.Stats()
	c := clienttest.Counts{Reported: now.Reported, Acked: now.Acked, Pending: now.Pending, Dropped: map[string]int64{}}
	for why, n := range now.Dropped {
		c.Dropped[string(why)] = n
	}
	return c
}

func TestConformance(t *testing.T) {
	t.Parallel()
	clienttest.Run(t, func(t testing.TB, url string, o clienttest.Options) clienttest.SDK {
		before := len(slogged.Said())
		var drops, failures atomic.Int64
		hook := func(n *atomic.Int64, name string) {
			slog.Info(fmt.Sprint(name, " ", n.Add(1)))
			panic(fmt.Sprintf("fault %d of %s", n.Load(), name))
		}
		cfg := spillway.ReporterConfig{
			Token: o.Token, Batch: o.Batch, Queue: o.Queue, Linger: o.Linger, MaxAge: o.MaxAge, Timeout: o.Timeout,
			Attempts: o.Attempts, BackoffBase: o.BackoffBase, BackoffMax: o.BackoffMax, BreakAfter: o.BreakAfter, ProbeEvery: o.ProbeEvery,
		}
		if o.ThrowHooks {
			cfg.OnDrop = func(spillway.Reason, int64) { hook(&drops, "drop_hook") }
			cfg.OnError = func(error) { hook(&failures, "error_hook") }
		}
		c, err := spillway.NewReporter(url, cfg.WithKeyWindow(o.KeyWindow))
		if err != nil {
			t.Fatal(err)
		}
		return sdk{c, said{before: before}}
	})
}
