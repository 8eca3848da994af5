package client_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

func TestOnDropHearsOfWhatCloseDrops(t *testing.T) {
	t.Parallel()
	for range 30 {
		var told atomic.Int64
		c, err := client.New("http://127.0.0.1:1", client.Config{
			Transport: clienttest.NewTransport(clienttest.Step{Hang: true}), Batch: 10, Linger: time.Millisecond,
			OnDrop: func(_ client.Reason, n int64) { told.Add(n) },
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
		if n := c.Stats().Dropped[client.Shutdown]; n != 100 || told.Load() != n {
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
	c, err := client.New(url, client.Config{Linger: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Report("kart", []byte("1"))
	if err := c.Close(t.Context()); err != nil || c.Stats().Acked != 1 {
		t.Fatalf("%v, %+v", err, c.Stats())
	}
	eventually("the client's connections are closed", func() bool { return events() == 0 })

	url, jobs := counted(t, `{"ready":1}`)
	j, err := client.NewJobs(url, client.JobsConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it can be used again
		if _, err := j.Counts(t.Context(), "welcome"); err != nil || jobs() != 1 {
			t.Fatalf("%v, %d connections", err, jobs())
		}
		j.Close()
		eventually("the connections of Jobs are closed", func() bool { return jobs() == 0 })
	}

	url, shared := counted(t, `{"ready":1}`)
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	if j, err = client.NewJobs(url, client.JobsConfig{Transport: own}); err != nil {
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
	c := open(t, client.Config{Transport: e, InFlight: 1, Batch: 1, Linger: time.Millisecond, CompressFrom: -1})
	for _, payload := range []string{`"aaaaaaaa"`, `"bbbbbbbb"`} {
		if err := c.Report("kart", []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	if body := <-e.bodies; !bytes.Contains(body, []byte("aaaaaaaa")) {
		t.Errorf("the first request carried %s", body)
	}
}
