//go:build !race

// The race detector drops pooled values at random, so allocations are only counted
// without it.

package ingest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/protocol/segment"
)

func TestAllocsOfEncodingEntriesAreNone(t *testing.T) {
	s := &Server{cfg: DefaultConfig()}
	r := newRequest()
	body, path, namespace := ndjson128(), []byte("default/p"), newFake().namespaces["default"]
	encode := func() {
		r.reset()
		r.namespace, r.received = namespace, now
		r.setPartition(path)
		if rejected := s.addLines(r, body); rejected != nil {
			t.Error(rejected.code)
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

func TestAllocsOfARequestFromHandlerToLaneAreNone(t *testing.T) {
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
		for name, ctx := range map[string]func() int{
			"one event": sendNoAck(s, ""), "NDJSON": sendNoAck(s, "application/x-ndjson"),
		} {
			status := 0
			if allocs := testing.AllocsPerRun(500, func() { status = ctx() }); allocs != 0 || status != 202 {
				t.Errorf("%s, %s: got %v allocations and status %d, want 0 and 202", name, who, allocs, status)
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
		sdk := target{adapter: segment.Adapter{}, route: &routes[0]}
		opened := s.writeKeys.find("wk")
		if allocs := testing.AllocsPerRun(500, func() { s.allowOrigin(ctx, &sdk, opened) }); allocs != 0 {
			t.Errorf("%s: got %v allocations, want 0", who, allocs)
		}
		if allowed := len(ctx.Response.Header.Peek("Access-Control-Allow-Origin")) > 0; allowed != (opened != nil) {
			t.Errorf("%s: allowed %t", who, allowed)
		}
	}
}

// sendNoAck sends a request with ack=none to lanes that are not started, so that
// only the handler, the queue and the release are measured.
func sendNoAck(s *Server, contentType string) func() int {
	ctx := contextFor("/v1/default/com.acme.kart?ack=none", contentType, ndjson128())
	ctx.Request.Header.Set("Authorization", "Bearer "+someToken)
	if ctx.Request.Header.SetHost("127.0.0.1:8080"); s.origins["default"] != nil {
		ctx.Request.Header.Set("Origin", game)
	}
	return func() int {
		ctx.Response.Reset()
		s.handle(ctx)
		for _, l := range s.lanes.all {
			for _, p := range l.queue {
				l.complete(p, nil)
			}
			l.queue = l.queue[:0]
		}
		return ctx.Response.StatusCode()
	}
}
