package client_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client"
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

func open(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New("http://127.0.0.1:1", cfg)
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
	c := open(t, client.Config{Transport: &answers{status: 204}, MaxEntry: 10})
	for _, row := range []struct {
		partition, payload, id string
		want                   error
	}{
		{"kart", `"0123456789"`, "", client.ErrTooLarge},
		{"kart", "", "", client.ErrEmpty},
		{"", "1", "", client.ErrBadPartition},
		{"a b", "1", "", client.ErrBadPartition},
		{strings.Repeat("p", 129), "1", "", client.ErrBadPartition},
		{"kart", "1", "a b", client.ErrBadID},
		{"kart", "1", strings.Repeat("i", 65), client.ErrBadID},
	} {
		if err := c.ReportAt(row.partition, []byte(row.payload), time.Now(), row.id); err != row.want {
			t.Errorf("%.20q %.20q: got %v, want %v", row.partition, row.payload, err, row.want)
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Report("kart", []byte("1")); err != client.ErrClosed {
		t.Errorf("after Close: got %v", err)
	}
	s := c.Stats()
	if s.Reported != 8 || s.Dropped[client.TooLarge] != 1 || s.Dropped[client.Invalid] != 6 || s.Dropped[client.Shutdown] != 1 || s.Pending != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestSettingsThatCannotWorkAreRejected(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "127.0.0.1:8080", "ftp://h", "http://", "http://u:p@h", "http://h?x=1", "http://h#x", "http://h/%zz"} {
		if _, err := client.New(url, client.Config{}); err == nil {
			t.Errorf("%q: got no error", url)
		} else if strings.Contains(err.Error(), "u:p@") {
			t.Errorf("%q: the error shows the password: %v", url, err)
		}
	}
	for name, cfg := range map[string]client.Config{
		"namespace": {Namespace: "a b"}, "token": {Token: "a\nb"}, "batch": {Batch: 1001}, "negative batch": {Batch: -1},
		"entry beyond the batch": {MaxEntry: 1 << 20}, "queue": {Queue: 1}, "bytes": {QueueBytes: 1}, "in flight": {InFlight: -1},
		"attempts": {Attempts: -1}, "breaker": {BreakAfter: -1}, "linger": {Linger: -1}, "back-off": {BackoffBase: time.Second, BackoffMax: time.Millisecond},
	} {
		if _, err := client.New("http://127.0.0.1:1", cfg); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestReportDoesNotAllocate(t *testing.T) {
	c := open(t, client.Config{Transport: &answers{status: 503}, Linger: time.Hour, Queue: 100, Batch: 1000, MaxAge: time.Hour})
	payload := []byte(strings.Repeat("x", 200))
	for range 1000 { // the queue is full: each takes the memory of the oldest
		_ = c.Report("kart", payload)
	}
	if n := testing.AllocsPerRun(1000, func() { _ = c.Report("kart", payload) }); n > 0 {
		t.Errorf("%v allocations a report", n)
	}
}

func BenchmarkReport(b *testing.B) {
	c := open(b, client.Config{Transport: &answers{status: 204}})
	payload := []byte(`{"text":"` + strings.Repeat("x", 190) + `"}`)
	b.ReportAllocs()
	for b.Loop() {
		_ = c.Report("kart", payload)
	}
}

func BenchmarkReportManyGoroutines(b *testing.B) {
	c := open(b, client.Config{Transport: &answers{status: 204}})
	payload := []byte(`{"text":"` + strings.Repeat("x", 190) + `"}`)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = c.Report("kart", payload)
		}
	})
}
