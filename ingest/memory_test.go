package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/memory"
)

func TestEveryRequestReleasesWhatItReserved(t *testing.T) {
	t.Parallel()
	p, late := listenTCP(t, newFake(), nil), listenTCP(t, newFake(), hasty)
	body := strings.Repeat(strings.Repeat("x", 999)+"\n", 200)
	length := fmt.Sprintf("Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n", len(body))
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"accepted":        {request11("POST /v1/default/p", length, body), 200},
		"rejected":        {request11("POST /v1/default/p", "Content-Length: 40000\r\n", body[:40_000]), 413},
		"corrupt":         {request11("POST /v1/default/p", "Content-Encoding: gzip\r\nContent-Length: 40000\r\n", body[:40_000]), 400},
		"too slow":        {request11("POST /v1/default/p", length, body[:100_000]), 408},
		"a broken chunk":  {request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "9c40\r\n"+body[:40_000]+"xx"), 400},
		"a stalled chunk": {request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "9c40\r\n"+body[:40_000]+"\r\n1"), 408},
		"too large":       {request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "200000\r\n"+strings.Repeat("x", 2<<20)), 413},
	} {
		to := p
		if c.want == 408 {
			to = late
		}
		for range 3 {
			if got := status(t, to.sends(c.text)); got != c.want {
				t.Errorf("%s: got %d, want %d", name, got, c.want)
			}
		}
		eventually(t, func() bool { return to.memory.Held.Used() == 0 && to.memory.Arriving.Used() == 0 })
	}

	ctx := contextFor("/v1/default/p", ndjsonType, nil)
	ctx.Request.SetBodyStream(readerFunc(func([]byte) (int, error) {
		if p.memory.Held.Used() == 0 {
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
		p.produce(ctx, &target{namespace: p.store.namespaces["default"]})
	}()
	if got := p.memory.Held.Used(); got != 0 {
		t.Errorf("a panic leaves %d bytes reserved", got)
	}
}

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestIncompleteBodiesLeaveMemoryForCompleteRequests(t *testing.T) {
	t.Parallel()
	const half = 10 << 20
	p := listenTCP(t, newFake(), func(c *Config) { c.MaxInflightBytes, c.ReadTimeout = 2*half, time.Minute })
	for range 30 {
		p.sends(request11("POST /v1/default/p", "Content-Length: 1048576\r\n", strings.Repeat("x", 600<<10)))
	}
	// Each of them holds 1 MiB, or is rejected.
	eventually(t, func() bool {
		if got := p.memory.Held.Used(); got > half {
			t.Errorf("%d bytes are reserved by incomplete bodies, want at most half of %d", got, 2*half)
		}
		return p.metric("rejections_total", "overloaded") >= 20
	})
	p.post("/v1/default/q", strings.Repeat("x", memory.Prefetched)).expect(t, 200, "")
	p.post("/v1/default", `{"partition":"q","data":1}`, asNDJSON).expect(t, 200, "")
	p.post("/v1/default/q", gzipped(t, strings.Repeat("y\n", 900)), asNDJSON, "Content-Encoding: gzip").expect(t, 200, "")
}
