package ingest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/memory"
)

func TestABodyReservesMemoryForWhatHasArrived(t *testing.T) {
	t.Parallel()
	const conns, arrives, each = 20, 20_000, 32 << 10
	plain, secured := listenTCP(t, newFake(), nil), func() *port { p, _ := listenTLS(t, nil); return p }()
	part := strings.Repeat("x", arrives)
	for name, text := range map[string]string{
		"of stated length": request11("POST /v1/default/p", "Content-Length: 1048576\r\n", part),
		"in one chunk":     request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "fffff\r\n"+part),
		"in many chunks":   request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", strings.Repeat("64\r\n"+part[:100]+"\r\n", arrives/100)),
		"after 100":        request11("POST /v1/default/p", "Expect: 100-continue\r\nContent-Length: 1048576\r\n", part),
	} {
		for over, p := range map[string]*port{"HTTP": plain, "TLS": secured} {
			var all []net.Conn
			for range conns {
				all = append(all, p.sends(text))
			}
			eventually(t, func() bool { return p.memory.Held.Used() == conns*each })
			if got := p.memory.Arriving.Used(); got != conns*each {
				t.Errorf("%s over %s: %d bytes count as incomplete, want all", name, over, got)
			}
			p.post("/v1/default/p", "x").expect(t, 200, "")
			for _, c := range all {
				c.Close()
			}
			eventually(t, func() bool { return p.memory.Held.Used() == 0 && p.memory.Arriving.Used() == 0 })
		}
	}
}

func TestABodyThatEndsEarlyIsNotStored(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	for _, sent := range []int{1, 8 << 10, 9_000, 19_999} {
		c := p.sends("")
		_, _ = io.WriteString(c, request11("POST /v1/default/p", "Content-Length: 20000\r\n", strings.Repeat("x", sent)))
		_ = c.(*net.TCPConn).CloseWrite()
		if got := status(t, c); got != 400 {
			t.Errorf("%d of 20000 bytes: got %d, want 400", sent, got)
		}
	}
	if got := p.store.entries("default/p"); len(got) != 0 {
		t.Errorf("stored %d entries", len(got))
	}
}

func TestTheRestOfABodyIsNotReadAsARequest(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	hidden := request11("POST /v1/default/smuggled", "Content-Length: 1\r\n", "x")
	for _, line := range []string{"POST /v1/nobody/p", "GET /livez", "GET /v1/default/p", "PUT /v1/default/p", "POST /v1/default/p?ack=maybe"} {
		for _, before := range []int{0, 9_000, 70_000, 200_000} {
			body := strings.Repeat(" ", before) + hidden
			for coding, text := range map[string]string{
				"length": request11(line, fmt.Sprintf("Content-Length: %d\r\n", len(body)), body),
				"chunks": request11(line, "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)),
			} {
				c := p.sends(text + request11("GET /livez", "Connection: close\r\n", ""))
				in := bufio.NewReader(c)
				answers := 0
				for {
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						break
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					answers++
					if resp.Close {
						break
					}
				}
				if small := before < memory.Large; answers > 2 || small && answers != 2 {
					t.Errorf("%s, %d bytes and a request in %s: %d answers", line, before, coding, answers)
				}
			}
		}
	}
	if got := p.store.entries("default/smuggled"); len(got) != 0 {
		t.Errorf("stored %q", got)
	}
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
		t.Error("the connection stays open with a body that is not read")
	}
	r, _ = p.raw(request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", chunked(fits)))
	r.expect(t, 200, "")
	r, _ = p.raw(request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", chunked(over)))
	r.expect(t, 413, "body_too_large")

	// Rejected without a 100, and the body is never sent.
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

func TestAnEmptyBodyInChunksIsAnEmptyBody(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	r, closed := p.raw(request11("POST /v1/default/p", "Transfer-Encoding: \tChunked \r\n", "0\r\n\r\n"))
	if r.expect(t, 400, "empty_body"); closed {
		t.Error("the connection closes although the framing is right")
	}
}

// headersOnly is a request whose body is never sent. A server that waits for the
// body answers 408.
func headersOnly(path, headers string, n int) string {
	return request11("POST "+path, fmt.Sprintf("%sContent-Length: %d\r\n", headers, n), "")
}

func TestALargeBodyWithoutAValidTokenIsNotRead(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listenTCP(t, store, withTokens(store))
	for _, tt := range []struct{ path, headers, code string }{
		{"/v1/default/p", "", "unauthorized"},
		{"/v1/default?ack=none", "", "unauthorized"},
		{"/v1/default", bearerHeader("small") + "\r\n", "forbidden"},
		{"/v1/default/../open/p", "", "bad_request"},
		{"/v1/nobody/p", "", "unauthorized"},
		{"http://a/v1/default/p", "", "unauthorized"},
		{"http://a", "", "no_such_route"},
		{"/livez", "", "method_not_allowed"},
		{"/nowhere", "", "no_such_route"},
		{"/v1/default%2fp", bearerHeader("first") + "\r\n", "bad_request"},
	} {
		r, closed := p.raw(headersOnly(tt.path, tt.headers, memory.Large))
		if r.body.Error != tt.code || !closed {
			t.Errorf("%s: got %d %s, closed %t, want %s", tt.path, r.status, r.raw, closed, tt.code)
		}
	}
	if n := p.metric("rejections_total", "unauthorized"); n != 4 {
		t.Errorf("%v rejections are counted, want 4", n)
	}
	body := string(make([]byte, memory.Large))
	p.post("/v1/default/p", body, bearerHeader("first")).expect(t, 413, "entry_too_large") // it was read
	p.post("/v1/open/p", body).expect(t, 413, "entry_too_large")
	p.post("/v1/nobody/p", body).expect(t, 401, "unauthorized")
}

func TestALargeBodyWithoutMemoryForItIsNotRead(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	taken := p.cfg.MaxInflightBytes - memory.Large
	p.memory.Held.Give(-taken)
	r, closed := p.raw(headersOnly("/v1/default/p", "", memory.Large+1))
	if r.body.Error != "overloaded" || r.header.Get("Retry-After") == "" || !closed {
		t.Errorf("got %d %s, closed %t", r.status, r.raw, closed)
	}
	r, _ = p.raw(headersOnly("/v1/default/p", "", p.cfg.MaxBody+1))
	r.expect(t, 413, "body_too_large")
	p.post("/v1/default/p", "x").expect(t, 200, "") // there is memory for it
	p.memory.Held.Give(taken)
	p.post("/v1/default/p", string(make([]byte, memory.Large+1))).expect(t, 413, "entry_too_large")
	r, _ = p.raw(request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s", p.cfg.MaxBody+2, make([]byte, p.cfg.MaxBody+1))))
	r.expect(t, 413, "body_too_large")
}
