package ingest

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

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
	p := listenTCP(t, newFake(), hasty)
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

// checksummed is a payload with its checksum.
func checksummed(rng *rand.Rand, size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte('a' + rng.IntN(26))
	}
	return fmt.Sprintf("%08x%s", crc32.ChecksumIEEE(b), b)
}

func intact(entry string) bool {
	_, payload, _ := strings.Cut(entry, " ")
	sum, err := strconv.ParseUint(payload[:8], 16, 32)
	return err == nil && crc32.ChecksumIEEE([]byte(payload[8:])) == uint32(sum)
}

func TestEntriesAreStoredAsTheyWereSentWhileBuffersAreReused(t *testing.T) {
	t.Parallel()
	const writers, requests = 16, 24
	store := newFake()
	p := listenTCP(t, store, longProduceTimeout)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 2))
			for i := range requests {
				payload := checksummed(rng, 1+rng.IntN(2000))
				body, headers := payload+"\n"+checksummed(rng, 30), []string{asNDJSON}
				path := fmt.Sprintf("/v1/default/w%d", w)
				switch i % 4 {
				case 1:
					body = gzipped(t, body)
					headers = append(headers, "Content-Encoding: gzip")
				case 2:
					body = zstded(t, body)
					headers = append(headers, "Content-Encoding: zstd")
				case 3:
					path = "/v1/default"
					var b strings.Builder
					for _, line := range strings.Split(body, "\n") {
						fmt.Fprintf(&b, `{"partition":"w%d","id":"i%d","data":%q}`+"\n", w, i, "-")
						fmt.Fprintf(&b, `{"partition":"w%d","data":"%s"}`+"\n", w, line)
					}
					body = b.String()
				}
				if r := p.post(path, body, headers...); r.status != 200 {
					t.Errorf("got %d %s", r.status, r.raw)
				}
			}
		})
	}
	wg.Wait()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for w := range writers {
		for _, e := range store.entries(fmt.Sprintf("default/w%d", w)) {
			head, payload, _ := strings.Cut(e, " ")
			if payload == `"-"` {
				if !strings.HasPrefix(head, "1763629675100#i") {
					t.Fatalf("entry %q is damaged", e)
				}
				continue
			}
			if n++; !intact(strings.ReplaceAll(e, `"`, "")) {
				t.Fatalf("entry %.60q is damaged", e)
			}
		}
	}
	if want := writers * requests * 2; n != want {
		t.Errorf("stored %d entries, want %d", n, want)
	}
}

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
	for _, line := range []string{"POST /v1/nobody/p", "GET /livez", "GET /v1/default/p", "PUT /v1/default/p", "POST /v1/default/p?x=1"} {
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
		{"/v1/default?x=1", "", "unauthorized"},
		{"/v1/default", bearerHeader("small") + "\r\n", "forbidden"},
		{"/v1/default/../open/p", "", "bad_request"},
		{"/v1/nobody/p", "", "unauthorized"},
		{"http://a/v1/default/p", "", "unauthorized"},
		{"http://a", "", "method_not_allowed"},
		{"/livez", "", "method_not_allowed"},
		{"/nowhere", "", "no_such_route"},
		{"/v1/default%2fp", bearerHeader("first") + "\r\n", "bad_request"},
	} {
		r, closed := p.raw(headersOnly(tt.path, tt.headers, memory.Large))
		if r.body.Error != tt.code || !closed || (r.status == 405) != strings.Contains(r.raw, "the path has GET, ") {
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
