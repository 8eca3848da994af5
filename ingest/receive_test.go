package ingest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

// sends opens a connection and sends text, as far as the server takes it.
func (p *port) sends(text string) net.Conn {
	p.t.Helper()
	c, err := p.dial()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(c, text) }()
	return c
}

// status reads the next answer of a connection.
func status(t testing.TB, c net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestABodyThatIsAnnouncedCostsWhatOfItHasArrived(t *testing.T) {
	t.Parallel()
	const conns, arrives, most = 20, 20_000, 32 << 10
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
			eventually(t, func() bool { return p.inflight.Load() == conns*most })
			if got := p.incomplete.Load(); got != conns*most {
				t.Errorf("%s over %s: %d bytes are awaited, want all", name, over, got)
			}
			p.post("/v1/default/p", "x").expect(t, 200, "")
			for _, c := range all {
				c.Close()
			}
			eventually(t, func() bool { return p.inflight.Load() == 0 && p.incomplete.Load() == 0 })
		}
	}
}

func TestABodyGivesBackWhatItReservedHoweverItEnds(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), func(c *Config) { c.ReadTimeout = 500 * time.Millisecond })
	body := strings.Repeat(strings.Repeat("x", 999)+"\n", 200)
	length := fmt.Sprintf("Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n", len(body))
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"accepted":        {request11("POST /v1/default/p", length, body), 200},
		"not waited for":  {request11("POST /v1/default/p?ack=none", length, body), 202},
		"rejected":        {request11("POST /v1/default/p", "Content-Length: 40000\r\n", body[:40_000]), 413},
		"corrupt":         {request11("POST /v1/default/p", "Content-Encoding: gzip\r\nContent-Length: 40000\r\n", body[:40_000]), 400},
		"too slow":        {request11("POST /v1/default/p", length, body[:100_000]), 408},
		"a broken chunk":  {request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "9c40\r\n"+body[:40_000]+"xx"), 400},
		"a stalled chunk": {request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "9c40\r\n"+body[:40_000]+"\r\n1"), 408},
		"too large":       {request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "200000\r\n"+strings.Repeat("x", 2<<20)), 413},
	} {
		for range 3 {
			if got := status(t, p.sends(c.text)); got != c.want {
				t.Errorf("%s: got %d, want %d", name, got, c.want)
			}
		}
		eventually(t, func() bool { return p.inflight.Load() == 0 && p.incomplete.Load() == 0 })
	}

	ctx := contextFor("/v1/default/p", ndjsonType, nil)
	ctx.Request.SetBodyStream(readerFunc(func([]byte) (int, error) {
		if p.inflight.Load() == 0 {
			t.Error("nothing is reserved before the panic")
		}
		panic("a bug")
	}), len(body))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic")
			}
		}()
		p.produce(ctx, target{namespace: p.store.namespaces["default"]})
	}()
	if got := p.inflight.Load(); got != 0 {
		t.Errorf("a panic leaves %d bytes reserved", got)
	}
}

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

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

func TestWhoNeverEndsHisBodyLeavesRoomForWhoDoes(t *testing.T) {
	t.Parallel()
	const share = 10 << 20
	p := listenTCP(t, newFake(), func(c *Config) { c.MaxInflightBytes, c.ReadTimeout = 2*share, time.Minute })
	for range 30 {
		p.sends(request11("POST /v1/default/p", "Content-Length: 1048576\r\n", strings.Repeat("x", 600<<10)))
	}
	// Each of them holds 1 MiB, or is rejected.
	eventually(t, func() bool {
		if got := p.inflight.Load(); got > share {
			t.Errorf("%d bytes are held by bodies to come, want half of %d at most", got, 2*share)
		}
		return p.metric("refusals_total", "overloaded") >= 20
	})
	p.post("/v1/default/q", strings.Repeat("x", prefetched)).expect(t, 200, "")
	p.post("/v1/default", `{"partition":"q","data":1}`, asNDJSON).expect(t, 200, "")
	p.post("/v1/default/q", gzipped(t, strings.Repeat("y\n", 900)), asNDJSON, "Content-Encoding: gzip").expect(t, 200, "")
}

func TestWhatIsLeftOfABodyIsNoRequest(t *testing.T) {
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
				if small := before < largeBody; answers > 2 || small && answers != 2 {
					t.Errorf("%s, %d bytes and a request in %s: %d answers", line, before, coding, answers)
				}
			}
		}
	}
	if got := p.store.entries("default/smuggled"); len(got) != 0 {
		t.Errorf("stored %q", got)
	}
}

func TestManyHeadersAre431(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	many := func(n int) string { return strings.Repeat("A:b\r\n", n) }
	for _, rest := range []string{"Content-Length: 10\r\n", "Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"} {
		r, closed := p.raw(request11("POST /v1/default/p", many(200)+rest, "")) // the body never comes
		if r.expect(t, 431, "headers_too_large"); !closed {
			t.Errorf("%q: the connection stays", rest)
		}
	}
	r, _ := p.raw(request11("GET /livez", many(200), ""))
	r.expect(t, 431, "headers_too_large")
	r, _ = p.raw(request11("POST /v1/default/p", many(120)+"Content-Length: 1\r\n", "x"))
	r.expect(t, 200, "")
}

func TestBodyBuffersAreKeptUpToABound(t *testing.T) {
	t.Parallel()
	b := newBuffers()
	for _, n := range []int{0, 1, 16 << 10, 16<<10 + 1, 100_000, 1 << 20, 1<<20 + 1, 5 << 20} {
		buffer := b.get(n)
		if cap(buffer) < n || cap(buffer) != bufferSize(n) {
			t.Errorf("for %d bytes: a buffer of %d, said to be %d", n, cap(buffer), bufferSize(n))
		}
	}
	for range 1000 {
		for i := range b {
			b.put(make([]byte, 0, minBuffer<<i))
		}
		b.put(make([]byte, 0, 1<<20+1))
		b.put(nil)
	}
	kept := int64(0)
	for i := range b {
		kept += int64(len(b[i])) * minBuffer << i
	}
	if kept != buffersMemory {
		t.Errorf("%d bytes are kept, want %d", kept, buffersMemory)
	}
	if buffer := b.get(20_000); len(buffer) != 0 || cap(buffer) != 32<<10 {
		t.Errorf("got a buffer of length %d, capacity %d", len(buffer), cap(buffer))
	}
}

// pipeListener hands out connections that hold nothing: a write waits until it
// is read.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if c, open := <-l; open {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l pipeListener) Close() error   { close(l); return nil }
func (l pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

func TestALargeAnswerIsReservedUntilItIsTaken(t *testing.T) {
	t.Parallel()
	ln := make(pipeListener)
	dial := func() (net.Conn, error) {
		ours, theirs := net.Pipe()
		ln <- theirs
		return ours, nil
	}
	p := listenOn(t, newFake(), nil, ln, dial, zap.NewNop())
	body := strings.Repeat("7\n", 999) + `{"partition":"a","data":1}`
	request := request11("POST /v1/default", fmt.Sprintf("Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n", len(body)), body)
	for _, leaves := range []bool{false, true} {
		c := p.sends(request)
		eventually(t, func() bool {
			return p.inflight.Load() > 30_000 && p.inflight.Load() < 80_000 && p.metric("requests_total", "200", "mixed") > 0
		})
		if leaves {
			c.Close()
		} else if got := status(t, c); got != 200 {
			t.Errorf("got %d", got)
		} else {
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
		eventually(t, func() bool { return p.inflight.Load() == 0 })
	}
}

// Not parallel: it measures the process.
func TestAConnectionHoldsWhatIsSaidOfIt(t *testing.T) {
	const conns = 200
	cert := certificate(t)
	for name, limit := range map[string]int64{"plain": connMemory, "TLS": connMemory + tlsMemory} {
		ln := make(pipeListener)
		p := listenOn(t, newFake(), func(c *Config) {
			if name == "TLS" {
				c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
			}
		}, ln, nil, zap.NewNop())
		for what, text := range map[string]string{
			"half a head":    "POST /v1/default/p HTTP/1.1\r\nX-A: " + strings.Repeat("a", 7<<10),
			"a body to come": request11("POST /v1/default/p", "X-A: "+strings.Repeat("a", 7<<10)+"\r\nContent-Length: 1048576\r\n", strings.Repeat("x", prefetched-1)),
			"a large body":   request11("POST /v1/default/p", "X-A: "+strings.Repeat("a", 7<<10)+"\r\nContent-Length: 1048576\r\n", strings.Repeat("x", prefetched+1)),
			"many headers":   request11("POST /v1/default/p", strings.Repeat("A: "+strings.Repeat("b", 50)+"\r\n", 120)+"Content-Length: 1048576\r\n", strings.Repeat("x", prefetched-1)),
		} {
			before := held()
			var all []net.Conn
			for range conns {
				ours, theirs := net.Pipe()
				ln <- theirs
				all = append(all, ours)
				if name == "TLS" {
					ours = tls.Client(ours, &tls.Config{InsecureSkipVerify: true})
				}
				// What is written to a pipe has been read.
				if _, err := io.WriteString(ours, text); err != nil {
					t.Fatal(err)
				}
			}
			each := (held() - before - p.inflight.Load()) / conns
			t.Logf("%s, %s: %d bytes a connection, this side of it included", what, name, each)
			if each > limit {
				t.Errorf("%s, %s: a connection holds %d bytes, want %d at most", what, name, each, limit)
			}
			for _, c := range all {
				c.Close()
			}
			eventually(t, func() bool { return p.conns.Load() == 0 })
		}
	}
}

// held is live memory and stacks, in bytes.
func held() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
