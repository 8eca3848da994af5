package ingest

import (
	"fmt"
	"testing"
)

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
		r, closed := p.raw(headersOnly(tt.path, tt.headers, largeBody))
		if r.body.Error != tt.code || !closed {
			t.Errorf("%s: got %d %s, closed %t, want %s", tt.path, r.status, r.raw, closed, tt.code)
		}
	}
	if n := p.metric("refusals_total", "unauthorized"); n != 4 {
		t.Errorf("%v rejections are counted, want 4", n)
	}
	body := string(make([]byte, largeBody))
	p.post("/v1/default/p", body, bearerHeader("first")).expect(t, 413, "entry_too_large") // it was read
	p.post("/v1/open/p", body).expect(t, 413, "entry_too_large")
	p.post("/v1/nobody/p", body).expect(t, 401, "unauthorized")
}

func TestALargeBodyWithoutMemoryForItIsNotRead(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	taken := p.cfg.MaxInflightBytes - largeBody
	p.memory.Give(-taken)
	r, closed := p.raw(headersOnly("/v1/default/p", "", largeBody+1))
	if r.body.Error != "overloaded" || r.header.Get("Retry-After") == "" || !closed {
		t.Errorf("got %d %s, closed %t", r.status, r.raw, closed)
	}
	r, _ = p.raw(headersOnly("/v1/default/p", "", p.cfg.MaxBody+1))
	r.expect(t, 413, "body_too_large")
	p.post("/v1/default/p", "x").expect(t, 200, "") // there is memory for it
	p.memory.Give(taken)
	p.post("/v1/default/p", string(make([]byte, largeBody+1))).expect(t, 413, "entry_too_large")
	r, _ = p.raw(request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s", p.cfg.MaxBody+2, make([]byte, p.cfg.MaxBody+1))))
	r.expect(t, 413, "body_too_large")
}
