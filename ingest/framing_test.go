package ingest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/transport"
)

// request11 is a raw HTTP/1.1 request: request line, headers and body.
func request11(line, headers, body string) string {
	return line + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n" + body
}

func TestAmbiguousRequestsAreRejectedAndTheConnectionCloses(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	const post = "POST /v1/default/p"
	const smuggled = "POST /v1/default/smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
	for name, text := range map[string]string{
		"CL and TE, then another request": request11(post, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n") + smuggled,
		"TE and CL":                       request11(post, "transfer-encoding: chunked\r\ncontent-length: 5\r\n", "0\r\n\r\n") + smuggled,
		"CL and TE identity":              request11(post, "Content-Length: 1\r\nTransfer-Encoding: identity\r\n", "x"),
		"TE identity alone":               request11(post, "Transfer-Encoding: identity\r\n", smuggled),
		"two equal lengths":               request11(post, "Content-Length: 1\r\nContent-Length: 1\r\n", "x"),
		"two lengths":                     request11(post, "Content-Length: 1\r\nContent-Length: 2\r\n", "xy"),
		"length list":                     request11(post, "Content-Length: 1, 1\r\n", "x"),
		"length with sign":                request11(post, "Content-Length: +1\r\n", "x"),
		"negative length":                 request11(post, "Content-Length: -1\r\n", "x"),
		"hexadecimal length":              request11(post, "Content-Length: 0x1\r\n", "x"),
		"length past 64 bits":             request11(post, "Content-Length: 18446744073709551617\r\n", "x"),
		"two codings":                     request11(post, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
		"unknown coding":                  request11(post, "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
		"coding list":                     request11(post, "Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
		"TE on HTTP/1.0":                  post + " HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"space before the colon":          request11(post, "Content-Length : 1\r\n", "x"),
		"folded header":                   request11(post, "X-A: b\r\n c\r\nContent-Length: 1\r\n", "x"),
		"header folded with a tab":        request11(post, "X-A: b\r\n\tc\r\nContent-Length: 1\r\n", "x"),
		"bare LF in the head":             request11(post, "X-A: b\nContent-Length: 1\r\n", "x"),
		"bare CR in a value":              request11(post, "X-A: b\rc\r\nContent-Length: 1\r\n", "x"),
		"NUL in a value":                  request11(post, "X-A: b\x00\r\nContent-Length: 1\r\n", "x"),
		"NUL in a name":                   request11(post, "X\x00A: b\r\nContent-Length: 1\r\n", "x"),
		"no colon":                        request11(post, "X-A\r\nContent-Length: 1\r\n", "x"),
		"no Host":                         post + " HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
		"two Hosts":                       request11(post, "Host: y\r\nContent-Length: 1\r\n", "x"),
		"control character in the method": "PO\x01ST /v1/default/p HTTP/1.1\r\nHost: x\r\n\r\n",
		"control character in the path":   "POST /v1/default/p\x01 HTTP/1.1\r\nHost: x\r\n\r\n",
		"space in the path":               request11("POST /v1/default/p q", "Content-Length: 1\r\n", "x"),
		"negative chunk size":             request11(post, "Transfer-Encoding: chunked\r\n", "-1\r\nx\r\n0\r\n\r\n"),
		"huge chunk size":                 request11(post, "Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\nx\r\n0\r\n\r\n"),
		"chunk ended by a bare LF":        request11(post, "Transfer-Encoding: chunked\r\n", "1\nx\n0\n\n"),
		"space before a chunk extension":  request11(post, "Transfer-Encoding: chunked\r\n", "1 ;a=b\r\nx\r\n0\r\n\r\n"),
		"chunk longer than it says":       request11(post, "Transfer-Encoding: chunked\r\n", "1\r\nxy\r\n0\r\n\r\n"),
		"forbidden trailer":               request11(post, "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\nContent-Length: 5\r\n\r\n"),
		"TLS hello":                       "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"not HTTP":                        "hello\r\n\r\n",
		"HTTP/0.9":                        "GET /livez\r\n\r\n",
	} {
		r, closed := p.raw(text)
		if r.status != 400 || r.body.Error != "bad_request" || !closed {
			t.Errorf("%s: got %d %s, closed %v", name, r.status, r.raw, closed)
		}
	}
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	if len(p.store.lists) != 0 {
		t.Errorf("stored %v", p.store.lists)
	}
}

func TestRepeatedHeadersAreRejected(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listenTCP(t, store, withTokens(store))
	const token = "Authorization: Bearer first\r\n"
	for _, lines := range []string{
		"Idempotency-Key: a\r\nIdempotency-Key: b\r\n", "Idempotency-Key: a\r\nidempotency-key: a\r\n", "Idempotency-Key:\r\nIdempotency-Key: a\r\n",
		"X-Sent-At: 1\r\nX-Sent-At: 1763629675100\r\n", "X-Event-Ts: 1\r\nX-EVENT-TS: 1763629675100\r\n",
		"Content-Type: application/json\r\nContent-Type: application/x-ndjson\r\n", "Content-Encoding: gzip\r\nContent-Encoding: identity\r\n",
		"Content-Encoding: gzip\r\nX-A: b\r\nContent-Encoding: gzip\r\n", token, "Authorization: Bearer third\r\n",
		"X-Client-Discards: stale=1\r\nX-Client-Discards: stale=2\r\n",
	} {
		for _, path := range []string{"/v1/default/p", "/v1/default", "/v1/open/p"} {
			r, closed := p.raw(request11("POST "+path, token+lines+"Content-Length: 1\r\n", "x"))
			if r.expect(t, 400, "bad_header"); closed {
				t.Errorf("%q closes the connection, although the framing is right", lines)
			}
			if !strings.Contains(r.body.Message, "twice") {
				t.Errorf("%q: the message is %q", lines, r.body.Message)
			}
		}
	}
	for _, lines := range []string{"X-A: b\r\nX-A: b\r\n", "Prefer: wait=1\r\nPrefer: return=minimal\r\n", "Idempotency-Ke: a\r\nIdempotency-Key: a\r\nIdempotency-Key2: a\r\n"} {
		r, _ := p.raw(request11("POST /v1/default/p", token+lines+"Content-Length: 1\r\n", "x"))
		r.expect(t, 200, "")
	}
}

func TestOtherHTTPVersionsAre505(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	for _, version := range []string{"HTTP/9.9", "HTTP/2.0", "HTTP/1.2", "HTTP/0.9"} {
		r, closed := p.raw("POST /v1/default/p " + version + "\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
		if r.expect(t, 505, "version_unsupported"); !closed {
			t.Errorf("%s: the connection stays open", version)
		}
	}
	r, _ := p.raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	r.expect(t, 505, "version_unsupported")
	r, _ = p.raw("POST /v1/default/p HTTP/1.0\r\nContent-Length: 1\r\n\r\nx")
	r.expect(t, 200, "")
}

func TestHeadersTooLargeAre431(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	for name, text := range map[string]string{
		"one header":    request11("POST /v1/default/p", "X-A: "+strings.Repeat("a", 8<<10)+"\r\n", ""),
		"5,000 headers": request11("POST /v1/default/p", strings.Repeat("A: b\r\n", 5000), ""),
		"the path":      request11("POST /v1/default/"+strings.Repeat("p", 8<<10), "", ""),
	} {
		r, closed := p.raw(text)
		if r.status != 431 || r.body.Error != "headers_too_large" || !closed {
			t.Errorf("%s: got %d %s, closed %v", name, r.status, r.raw, closed)
		}
	}
	r, _ := p.raw(request11("POST /v1/default/p", "X-A: "+strings.Repeat("a", 7<<10)+"\r\nContent-Length: 1\r\n", "x"))
	r.expect(t, 200, "")
}

// FuzzFraming compares what the server reads with what net/http reads from the same
// bytes. If both accept a request, they must agree where it ends. Requests can be
// smuggled through a proxy that disagrees with the server behind it.
func FuzzFraming(f *testing.F) {
	s, err := New(DefaultConfig(), newFake(), prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		f.Fatal(err)
	}
	var bodies []string // of the connection that is being served
	s.http.Handler = func(ctx *fasthttp.RequestCtx) {
		b := s.memory.Get(nil)
		defer s.memory.Put(b)
		_, skipped := transport.BodyLength(&ctx.Request.Header)
		body, rejected := b.Read(ctx, s.cfg.MaxBody)
		if skipped || rejected != nil || transport.CheckFraming(&ctx.Request.Header) != nil {
			ctx.SetConnectionClose()
			return
		}
		bodies = append(bodies, string(body))
	}
	next := request11("GET /livez", "", "")
	for _, text := range []string{
		request11("POST /v1/default/p", "Content-Length: 1\r\n", "x") + next,
		request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "1;a=b\r\nx\r\n0\r\nA: b\r\n\r\n") + next,
		request11("POST /v1/default/p", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n") + next,
		request11("GET /v1/default/p", "Content-Length: 1\r\n", "x") + next,
		request11("HEAD /v1/default/p", "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n") + next,
		request11("POST /v1/default/p", "Expect: 100-continue\r\nContent-Length: 1\r\n", "x") + next,
		request11("POST /v1/default/p", "", "") + next,
	} {
		f.Add([]byte(text))
	}
	for _, seed := range connectionSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		inner, other := net.Pipe()
		defer other.Close()
		bodies = bodies[:0]
		_ = s.http.ServeConn(&scriptedConn{Conn: inner, in: bytes.NewReader(sent)})
		in := bufio.NewReader(bytes.NewReader(sent))
		for i, got := range bodies {
			req, err := http.ReadRequest(in)
			if err != nil {
				return // net/http rejects what the server accepts: nothing can be smuggled
			}
			want, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			if got != string(want) {
				t.Fatalf("%q: the body of request %d is %q here and %q to net/http", sent, i, got, want)
			}
		}
	})
}

func TestManyHeadersAre431(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	many := func(n int) string { return strings.Repeat("A:b\r\n", n) }
	for _, rest := range []string{"Content-Length: 10\r\n", "Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"} {
		r, closed := p.raw(request11("POST /v1/default/p", many(200)+rest, "")) // the body is never sent
		if r.expect(t, 431, "headers_too_large"); !closed {
			t.Errorf("%q: the connection stays open", rest)
		}
	}
	r, _ := p.raw(request11("GET /livez", many(200), ""))
	r.expect(t, 431, "headers_too_large")
	r, _ = p.raw(request11("POST /v1/default/p", many(120)+"Content-Length: 1\r\n", "x"))
	r.expect(t, 200, "")
}
