package ingest

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/ingest/memory"
)

func TestAPanickingHandlerIs500AndTheServerLives(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, nil)
	store.now = func() (int64, bool) { var none []int64; return none[7], true }
	for range 3 {
		r := p.post("/v1/default/p", "x")
		r.expect(t, 500, "internal")
	}
	store.now = func() (int64, bool) { return now, true }
	p.post("/v1/default/p", "x").expect(t, 200, "")
	if panics, answers := p.metric("panics_total"), p.metric("requests_total", "500", "produce"); panics != 3 || answers != 3 {
		t.Errorf("counted %v panics, %v answers", panics, answers)
	}
}

func TestAPanicOutsideOfAHandlerIs500Too(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	large := strings.Repeat("x", memory.Large)
	for name, sent := range map[string]string{
		"expect":     "POST /v1/panics/p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
		"large body": fmt.Sprintf("POST /v1/panics/p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", memory.Large, large),
	} {
		r, closed := p.raw(sent)
		if r.expect(t, 500, "internal"); !closed {
			t.Errorf("%s: the connection stays open", name)
		}
	}
	p.post("/v1/default/p", "x").expect(t, 200, "")
	if panics := p.metric("panics_total"); panics < 2 {
		t.Errorf("counted %v panics", panics)
	}
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

func TestTheLogNeverQuotesAHeader(t *testing.T) {
	t.Parallel()
	const secret = "c4n4ry"
	core, logged := observer.New(zap.DebugLevel)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dial := func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) }
	p := listenOn(t, newFake(), nil, ln, dial, zap.New(core))
	for _, head := range []string{"Authorization: " + secret + "\x00", secret + " : b", secret, "X: " + secret + "\x01", "Content-Length: " + secret, "Transfer-Encoding: " + secret, "Host: " + secret} {
		r, _ := p.raw(request11("POST /v1/default/p", head+"\r\n", "x"))
		r.expect(t, 400, "bad_request")
	}
	for _, e := range logged.All() {
		if text := fmt.Sprint(e.Message, e.ContextMap()); strings.Contains(text, secret) {
			t.Errorf("logged %s", text)
		}
	}
	if logged.Len() == 0 {
		t.Error("nothing was logged, so nothing was tested")
	}
}
