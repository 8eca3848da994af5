package client_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client"
)

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
