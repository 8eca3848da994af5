package ingest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
)

// scriptedConn is a client that sends everything at once and then closes.
type scriptedConn struct {
	net.Conn // an unused pipe, for addresses and deadlines
	in       io.Reader
	out      bytes.Buffer
}

func (c *scriptedConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *scriptedConn) Write(p []byte) (int, error) { return c.out.Write(p) }

// FuzzConnection sends any bytes. The server must not panic, and must answer in
// HTTP, with JSON bodies of the table of codes, or of an SDK's protocol.
func FuzzConnection(f *testing.F) {
	store := newFake()
	cfg := DefaultConfig()
	cfg.SDKs = map[string]SDK{"default": {WriteKeys: []WriteKey{{Key: "default"}}}}
	s, err := New(cfg, store, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		f.Fatal(err)
	}
	s.lanes.start()
	f.Cleanup(func() { _ = s.lanes.stop(context.Background()) })

	body := `{"sent_at":1763629675100,"batch":[{"id":"a","ts":1,"data":{}}]}`
	f.Add([]byte(request11("POST /v1/default/p", "Content-Type: application/json\r\nContent-Length: 63\r\n", body)))
	f.Add([]byte(request11("POST /v1/default", "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n", "1a\r\n{\"partition\":\"a\",\"data\":1}\r\n0\r\n\r\n")))
	f.Add([]byte(request11("POST /v1/small/p?ack=none", "X-Sent-At: 5\r\nX-Event-Ts: 1\r\nContent-Length: 1\r\n", "x")))
	f.Add([]byte(request11("POST /v1/default/p", "Content-Encoding: gzip\r\nContent-Length: 25\r\n", gzipped(f, "x"))))
	f.Add([]byte(request11("POST /v1/default/p", "Content-Encoding: zstd\r\nContent-Length: 14\r\n", zstded(f, "x"))))
	f.Add([]byte(request11("POST /v1/default/p", "Expect: 100-continue\r\nContent-Length: 1\r\n", "x")))
	f.Add([]byte(request11("GET /v1/default/p", "Prefer: return=minimal\r\nX-Client-Discards: stale=1\r\n", "") + request11("HEAD /livez", "", "")))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01\r\n\r\n"))
	for _, seed := range connectionSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		inner, other := net.Pipe()
		defer other.Close()
		c := &scriptedConn{Conn: inner, in: bytes.NewReader(sent)}
		_ = s.http.ServeConn(c)
		if testutil.ToFloat64(s.metrics.panics) != 0 {
			t.Fatalf("%q: a handler panicked", sent)
		}
		if store.wrong != nil {
			t.Fatal(store.wrong)
		}
		out := bufio.NewReader(&c.out)
		for {
			if _, err := out.Peek(1); err != nil {
				return
			}
			resp, err := http.ReadResponse(out, nil)
			if err != nil {
				t.Fatalf("%q is answered %v", sent, err)
			}
			if bytes.Contains(sent, []byte("HEAD ")) {
				return // the answer to HEAD has a length but no body
			}
			text, err := io.ReadAll(resp.Body)
			if err != nil || len(text) > 0 && !json.Valid(text) {
				t.Fatalf("%q is answered %q, %v", sent, text, err)
			}
			says := func(part string) bool { return bytes.Contains(text, []byte(part)) }
			if resp.StatusCode >= 400 && !says(`"error":"`) && !says(`{"success":false,"code":"`) && !says(`_error","code":"`) {
				t.Fatalf("%q is answered %d %q", sent, resp.StatusCode, text)
			}
		}
	})
}
