//go:build !race

// The race detector pads allocations and drops pooled values.

package ingest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

func TestTheFootprintOfARequestMatchesTheHeap(t *testing.T) {
	long := strings.Repeat("p", 120)
	mixed := func(items int) []byte {
		var b strings.Builder
		for i := range items {
			fmt.Fprintf(&b, `{"partition":"%s%d","data":1}`+"\n", long, i)
		}
		return []byte(b.String())
	}
	const path, all = "/v1/default/p?ack=none", "/v1/default?ack=none"
	keyed := contextFor(path, "", []byte("x"))
	keyed.Request.Header.Set("Idempotency-Key", strings.Repeat("k", 128))
	packed := contextFor(path, ndjsonType, []byte(gzipped(t, strings.Repeat("x\n", 900))))
	packed.Request.Header.SetContentEncoding("gzip")
	for _, c := range []struct {
		name     string
		ctx      *fasthttp.RequestCtx
		requests int
		after    *fasthttp.RequestCtx // the request that the pooled requests served before
	}{
		{"one byte", contextFor(path, "", []byte("x")), 20_000, nil},
		{"keyed", keyed, 20_000, nil},
		{"128 lines", contextFor(path, ndjsonType, ndjson128()), 1000, nil},
		{"1000 short lines", contextFor(path, ndjsonType, []byte(strings.Repeat("1\n", 1000))), 300, nil},
		{"compressed", packed, 500, nil},
		{"one partition of many", contextFor(all, ndjsonType, mixed(1)), 10_000, nil},
		{"12 partitions", contextFor(all, ndjsonType, mixed(12)), 2000, nil},
		{"1000 partitions", contextFor(all, ndjsonType, mixed(1000)), 50, nil},
		{"1000 bad items", contextFor(all, ndjsonType, []byte(strings.Repeat("7\n", 999)+`{"partition":"a","data":1}`)), 300, nil},
		{"one byte after 1000 partitions", contextFor(path, "", []byte("x")), 50, contextFor(all, ndjsonType, mixed(1000))},
	} {
		cfg := DefaultConfig()
		cfg.MaxInflightBytes = 1 << 40
		s, err := New(cfg, instantStore(), prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		before := heap()
		if c.after != nil {
			for range c.requests {
				s.handle(c.after)
			}
			var held []*part
			for _, l := range s.lanes.all {
				held = append(held, l.queue...)
				l.queue = nil
			}
			for _, p := range held {
				p.request.partDone(s.finish)
			}
		}
		for range c.requests {
			if s.handle(c.ctx); c.ctx.Response.StatusCode() != fasthttp.StatusAccepted {
				t.Fatal(c.ctx.Response.String())
			}
		}
		grown := heap() - before
		reserved := s.memory.Used()
		t.Logf("%s: a request holds %d bytes and reserves %d", c.name, grown/int64(c.requests), reserved/int64(c.requests))
		const server = 16 << 10 // what the server itself allocates
		if reserved < grown-server || reserved > 2*grown {
			t.Errorf("%s: a request holds %d bytes and reserves %d", c.name, grown/int64(c.requests), reserved/int64(c.requests))
		}
		runtime.KeepAlive(s)
	}
}

// heap is what is reachable, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC() // a pool drops its values after the second collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
