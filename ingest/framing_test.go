package ingest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// request11 is a raw HTTP/1.1 request with its head lines and body.
func request11(line, headers, body string) string {
	return line + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n" + body
}

func TestRequestsThatMightBeReadTwoWaysAreRejectedAndTheConnectionCloses(t *testing.T) {
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

func TestAHeaderThatSaysOneThingIsSentOnce(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listenTCP(t, store, guard(store))
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
				t.Errorf("%q closes the connection, although nothing is wrong with the framing", lines)
			}
			if !strings.Contains(r.body.Message, "twice") {
				t.Errorf("%q: the message is %q", lines, r.body.Message)
			}
		}
	}
	for _, lines := range []string{"X-A: b\r\nX-A: b\r\n", "Prefer: wait=1\r\nPrefer: respond-async\r\n", "Idempotency-Ke: a\r\nIdempotency-Key: a\r\nIdempotency-Key2: a\r\n"} {
		r, _ := p.raw(request11("POST /v1/default/p", token+lines+"Content-Length: 1\r\n", "x"))
		r.expect(t, 200, "")
	}
}

func TestOtherVersionsAre505(t *testing.T) {
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

func TestOnlyTheCanonicalPathIsTaken(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	long := strings.Repeat("p", 128)
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		"/v1/default/p": {200, ""}, "/v1/default/" + long: {200, ""}, "/v1/default/A.b_c-9": {200, ""},
		"/v1/default/__proto__x": {400, "bad_partition"}, "/v1/default/p?x=1&y": {200, ""},

		"/v1/../admin": {400, "bad_request"}, "/v1/%2e%2e%2fadmin": {400, "bad_request"}, "//admin": {400, "bad_request"},
		"/v1/default/./p": {400, "bad_request"}, "/v1/default//p": {400, "bad_request"}, "/v1/default/..": {400, "bad_request"},
		"/v1/default/a%2Eb": {400, "bad_request"}, "/v1/default/p%00": {400, "bad_request"}, "/v1/default/p%0d%0a": {400, "bad_request"},
		"/v1/default/%257B": {400, "bad_request"}, "/v1/default/%7Bp%7D": {400, "bad_request"},
		"/v1/default/%zz": {400, "bad_partition"}, // not an escape, so it stands for itself

		"//x/v1/default/p": {400, "bad_request"}, "///v1/default/p": {400, "bad_request"}, "ftp://x/v1/default/p": {400, "bad_request"},
		"/v1/default/p#f": {400, "bad_request"}, "/v1/default/p?x#": {400, "bad_request"}, "http://x/v1/default/p#f": {400, "bad_request"},

		"/v1/default/": {400, "bad_partition"}, "/v1/default/" + long + "p": {400, "bad_partition"},
		"/v1/default/p/q": {400, "bad_partition"}, "/v1/default/-p": {400, "bad_partition"}, "/v1/default/.p": {400, "bad_partition"},
		"/v1/default/a}{p1}b": {400, "bad_partition"}, "/v1/default/{}": {400, "bad_partition"}, "/v1/default/*": {400, "bad_partition"},
		"/v1/default/a:b": {400, "bad_partition"}, "/v1/default/p\u202eq": {400, "bad_partition"}, "/v1/default/\u0440": {400, "bad_partition"},
		"/v1/": {400, "bad_namespace"}, "/v1/" + long + "/p": {400, "bad_namespace"}, "/v1/-d/p": {400, "bad_namespace"}, "/v1/d{}": {400, "bad_namespace"},
		"/v1/nobody/p": {404, "no_such_namespace"}, "/v1/Default/p": {404, "no_such_namespace"}, "/v1/nobody": {404, "no_such_namespace"},
		"/": {404, "no_such_route"}, "/v1": {404, "no_such_route"}, "/v2/default/p": {404, "no_such_route"}, "/metrics": {404, "no_such_route"},
		"/v1x/default/p": {404, "no_such_route"}, "/livez/": {404, "no_such_route"}, "/debug/pprof/": {404, "no_such_route"},
	} {
		r, _ := p.raw(request11("POST "+path, "Content-Length: 1\r\n", "x"))
		if r.status != want.status || r.body.Error != want.code {
			t.Errorf("%s: got %d %s, want %d %s", path, r.status, r.raw, want.status, want.code)
		}
		if strings.Contains(r.raw, "admin") || strings.ContainsAny(r.body.Message, "\x00\r\n") {
			t.Errorf("%s: the answer echoes the path: %s", path, r.raw)
		}
	}
	r, _ := p.raw(request11("POST http://x/v1/default/absolute", "Content-Length: 1\r\n", "x"))
	r.expect(t, 200, "")
}

func TestWrongMethodsAre405WithAllow(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	for line, allow := range map[string]string{
		"PUT /v1/default/p": "POST, GET, HEAD", "DELETE /v1/default/p": "POST, GET, HEAD", "OPTIONS /v1/default/p": "POST, GET, HEAD",
		"GET /v1/default": "POST", "HEAD /v1/default": "POST", "POST /livez": "GET, HEAD", "POST /readyz": "GET, HEAD",
		"TRACE /v1/default/p": "POST, GET, HEAD", "CONNECT x:443": "GET, HEAD, POST", "OPTIONS *": "GET, HEAD, POST",
		"TRACE /nowhere": "GET, HEAD, POST", "BREW /v1/../x": "GET, HEAD, POST", "post /v1/default/p": "POST, GET, HEAD",
	} {
		c, err := p.dial()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, request11(line, "Content-Length: 0\r\n", ""))
		method, _, _ := strings.Cut(line, " ")
		resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if resp.StatusCode != 405 || resp.Header.Get("Allow") != allow {
			t.Errorf("%s: got %d, Allow %q, want %q", line, resp.StatusCode, resp.Header.Get("Allow"), allow)
		}
		_ = c.Close()
	}
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

func TestTheWireLimitIsExactByLengthByChunksAndByExpect(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), func(c *Config) { c.MaxBody, c.MaxEntry = 10_000, 10_000 })
	fits, over := strings.Repeat("x", 10_000), strings.Repeat("x", 10_001)
	chunked := func(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }
	length := func(body string) string { return fmt.Sprintf("Content-Length: %d\r\n", len(body)) }

	r, _ := p.raw(request11("POST /v1/default/p", length(fits), fits))
	r.expect(t, 200, "")
	r, closed := p.raw(request11("POST /v1/default/p", length(over), over))
	if r.expect(t, 413, "body_too_large"); !closed {
		t.Error("the connection stays open with a body nobody reads")
	}
	r, _ = p.raw(request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", chunked(fits)))
	r.expect(t, 200, "")
	r, _ = p.raw(request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", chunked(over)))
	r.expect(t, 413, "body_too_large")

	// Rejected without a 100, and the body never sent.
	r, closed = p.raw(request11("POST /v1/default/p", "Expect: 100-continue\r\nContent-Length: 5242880\r\n", ""))
	if r.expect(t, 413, "body_too_large"); !closed {
		t.Error("the connection stays open after a rejected expectation")
	}
	r, _ = p.raw(request11("POST /v1/nobody/p", "Expect: 100-continue\r\nContent-Length: 5\r\n", ""))
	r.expect(t, 404, "no_such_namespace")
	r, _ = p.raw(request11("POST /v1/default/p", "Expect: 100-continue\r\nContent-Length: 1\r\n", ""))
	if r.status != 100 {
		t.Errorf("got %d, want 100", r.status)
	}
}

func TestAClientThatIsStillSendingLearnsWhyItIsRejected(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	body := strings.Repeat("x", 5<<20)
	for range 30 {
		p.post("/v1/default/p", body).expect(t, 413, "body_too_large")
	}
	p.post("/v1/default/p", body, "Expect: 100-continue").expect(t, 413, "body_too_large")
	p.post("/v1/default/p", "x", "X-A: "+strings.Repeat("a", 2<<20)).expect(t, 431, "headers_too_large")
}

func TestSlowRequestsAre408(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), func(c *Config) { c.ReadTimeout = 200 * time.Millisecond })
	for name, text := range map[string]string{
		"in the head":  "POST /v1/default/p HTTP/1.1\r\nHost: x\r\nConte",
		"in the body":  request11("POST /v1/default/p", "Content-Length: 10\r\n", "x"),
		"in a chunk":   request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "5\r\nx"),
		"before one":   request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n"),
		"in a trailer": request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n"),
		"bare LF only": "POST /v1/default/p HTTP/1.1\nHost: x\nContent-Length: 1\n\nx",
	} {
		r, closed := p.raw(text)
		if r.status != 408 || r.body.Error != "request_timeout" || !closed {
			t.Errorf("%s: got %d %s, closed %v", name, r.status, r.raw, closed)
		}
	}
}

func TestAnswersDoNotNameTheServer(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	for _, text := range []string{
		request11("GET /livez", "", ""), request11("POST /nowhere", "", ""), "nonsense\r\n\r\n",
	} {
		if r, _ := p.raw(text); r.header.Get("Server") != "" || strings.Contains(strings.ToLower(r.raw), "fasthttp") {
			t.Errorf("%.20q: %v %s", text, r.header, r.raw)
		}
	}
}

func TestAnEmptyBodyInChunksIsAnEmptyBody(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	r, closed := p.raw(request11("POST /v1/default/p", "Transfer-Encoding: \tChunked \r\n", "0\r\n\r\n"))
	if r.expect(t, 400, "empty_body"); closed {
		t.Error("the connection closes although nothing is wrong with the framing")
	}
}

func TestAckGivenTwiceIsRejected(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	for _, query := range []string{"?ack=none&ack=commit", "?ack=none&ack=none", "?ack=commit&%61ck=none"} {
		p.post("/v1/default/p"+query, "x").expect(t, 400, "bad_request")
	}
	p.post("/v1/default/p?x=1&ack=none", "x").expect(t, 202, "")
}

func TestTheLogNeverQuotesAHeader(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry"
	core, logged := observer.New(zap.DebugLevel)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dial := func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) }
	p := listenOn(t, newFake(), nil, ln, dial, zap.New(core))
	for _, head := range []string{"Authorization: " + canary + "\x00", canary + " : b", canary, "X: " + canary + "\x01", "Content-Length: " + canary, "Transfer-Encoding: " + canary, "Host: " + canary} {
		r, _ := p.raw(request11("POST /v1/default/p", head+"\r\n", "x"))
		r.expect(t, 400, "bad_request")
	}
	for _, e := range logged.All() {
		if text := fmt.Sprint(e.Message, e.ContextMap()); strings.Contains(text, canary) {
			t.Errorf("logged %s", text)
		}
	}
	if logged.Len() == 0 {
		t.Error("nothing was logged, which proves nothing")
	}
}
