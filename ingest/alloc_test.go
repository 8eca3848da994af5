//go:build !race

// The race detector drops pooled values at random and pads allocations, so they are
// only counted and measured without it.

package ingest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

func TestAllocsOfEncodingEntriesAreNone(t *testing.T) {
	s := &Server{cfg: DefaultConfig()}
	r := newRequest()
	body, path, namespace := ndjson128(), []byte("default/p"), newFake().namespaces["default"]
	encode := func() {
		r.reset()
		r.namespace, r.received = namespace, now
		r.setPartition(path)
		if rejected := s.addLines(r, body, false); rejected != nil {
			t.Error(rejected.Code)
		}
		r.seal()
	}
	if allocs := testing.AllocsPerRun(200, encode); allocs != 0 {
		t.Errorf("got %v allocations for 128 entries, want 0", allocs)
	}
	if len(r.entries) != 128 {
		t.Errorf("encoded %d entries", len(r.entries))
	}
}

// The context of the flush is all: the request, its entries and its answer take what is pooled.
func TestAllocsOfARequestAreThoseOfItsFlush(t *testing.T) {
	pages, otherPages := DefaultConfig(), DefaultConfig()
	pages.CORSOrigins = map[string][]string{"default": {game}}
	otherPages.CORSOrigins = map[string][]string{"small": {game}}
	for who, cfg := range map[string]Config{
		"open": DefaultConfig(), "by token": tokenConfig(true), "of a listed page": pages, "beside pages": otherPages,
	} {
		s, err := New(cfg, instantStore(), prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		s.lanes.start()
		t.Cleanup(func() { _ = s.lanes.stop(context.Background()) })
		for name, contentType := range map[string]string{"one event": "", "NDJSON": ndjsonType} {
			ctx := contextFor("/v1/default/com.acme.kart", contentType, ndjson128())
			ctx.Request.Header.Set("Authorization", "Bearer "+someToken)
			if ctx.Request.Header.SetHost("127.0.0.1:8080"); s.origins["default"] != nil {
				ctx.Request.Header.Set("Origin", game)
			}
			if allocs := testing.AllocsPerRun(500, func() {
				ctx.Response.Reset()
				s.handle(ctx)
			}); allocs != 4 || ctx.Response.StatusCode() != 200 {
				t.Errorf("%s, %s: got %v allocations and status %d, want 4 and 200", name, who, allocs, ctx.Response.StatusCode())
			}
		}
	}
}

func TestAllocsOfAllowingAPageOfAnSDKAreNone(t *testing.T) {
	pages := DefaultConfig()
	withSDKs(&pages)
	pages.CORSOrigins = map[string][]string{"default": {game}}
	for who, cfg := range map[string]Config{"no origins": DefaultConfig(), "a listed page": pages} {
		s, err := New(cfg, instantStore(), prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		ctx := contextFor("/segment/v1/t", "text/plain", nil)
		ctx.Request.Header.Set("Origin", game)
		opened := s.writeKeys.find("wk")
		sdk := target{path: []byte("/segment/v1/t")}
		if opened != nil {
			sdk.listed = opened.origins
		}
		if allocs := testing.AllocsPerRun(500, func() { s.allowOrigin(ctx, &sdk) }); allocs != 0 {
			t.Errorf("%s: got %v allocations, want 0", who, allocs)
		}
		if allowed := len(ctx.Response.Header.Peek("Access-Control-Allow-Origin")) > 0; allowed != (opened != nil) {
			t.Errorf("%s: allowed %t", who, allowed)
		}
	}
}

func TestTheFootprintOfARequestMatchesTheHeap(t *testing.T) {
	long := strings.Repeat("p", 120)
	mixed := func(items int) []byte {
		var b strings.Builder
		for i := range items {
			fmt.Fprintf(&b, `{"partition":"%s%d","data":1}`+"\n", long, i)
		}
		return []byte(b.String())
	}
	const path, all = "/v1/default/p", "/v1/default"
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
			for _, r := range split(t, s, c.after, c.requests) {
				s.release(r)
			}
		}
		held := split(t, s, c.ctx, c.requests)
		grown := heap() - before
		reserved := s.memory.Held.Used()
		t.Logf("%s: a request holds %d bytes and reserves %d", c.name, grown/int64(c.requests), reserved/int64(c.requests))
		const server = 16 << 10 // what the server itself allocates
		if reserved < grown-server || reserved > 2*grown {
			t.Errorf("%s: a request holds %d bytes and reserves %d", c.name, grown/int64(c.requests), reserved/int64(c.requests))
		}
		runtime.KeepAlive(s)
		runtime.KeepAlive(held)
	}
}

// split has a server read requests, and not store them.
func split(t *testing.T, s *Server, ctx *fasthttp.RequestCtx, n int) (held []*request) {
	for range n {
		to := s.newTarget()
		r := s.requests.Get().(*request)
		rejected := s.admit(ctx, to)
		if rejected == nil {
			rejected = s.admitEntries(ctx, to, r)
		}
		var body []byte
		if rejected == nil {
			body, rejected = r.Receive(ctx, s.cfg.MaxBody)
		}
		if rejected == nil {
			rejected = s.split(to, r, mediaType(ctx), body)
		}
		if rejected != nil {
			t.Fatal(rejected.Text())
		}
		held = append(held, r)
	}
	return held
}

// heap is what is reachable, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC() // a pool drops its values after the second collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
