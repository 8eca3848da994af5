package client_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client"
)

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
	p := client.NewPoster(server.URL+"/", client.PosterConfig{Namespace: "kart", Token: "secret", Timeout: time.Minute})
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
	p := client.NewPoster(server.URL, client.PosterConfig{Namespace: "kart", Timeout: time.Minute})
	got, err := p.Post(ctx, [][]byte{[]byte("1\n")})
	if err == nil || !strings.Contains(err.Error(), "503 overloaded: full") || requests != 1 || got.Rejected["overloaded"] != 1 {
		t.Errorf("got %+v, %v after %d requests", got, err, requests)
	}
}
