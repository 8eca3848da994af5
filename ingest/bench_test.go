package ingest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

// handler returns a server whose lanes run, without a listener, and a call of
// its handler as fasthttp would make it.
func handler(tb testing.TB, store Store, ctx *fasthttp.RequestCtx) func() int {
	tb.Helper()
	return handlerWith(tb, func(*Config) {}, store, ctx)
}

func handlerWith(tb testing.TB, edit func(*Config), store Store, ctx *fasthttp.RequestCtx) func() int {
	tb.Helper()
	cfg := DefaultConfig()
	edit(&cfg)
	s, err := New(cfg, store, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		tb.Fatal(err)
	}
	s.lanes.start()
	tb.Cleanup(func() {
		if err := s.lanes.stop(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return func() int {
		ctx.Response.Reset()
		s.handle(ctx)
		return ctx.Response.StatusCode()
	}
}

// contextFor is a request as fasthttp gives it to the handler.
func contextFor(path, contentType string, body []byte) *fasthttp.RequestCtx {
	ctx := &fasthttp.RequestCtx{}
	ctx.Init(&fasthttp.Request{}, nil, nil)
	ctx.Request.Header.SetMethod(fasthttp.MethodPost)
	ctx.Request.Header.SetProtocol("HTTP/1.1")
	ctx.Request.Header.SetHost("x")
	if contentType != "" {
		ctx.Request.Header.SetContentType(contentType)
	}
	ctx.Request.SetRequestURI(path)
	ctx.Request.SetBody(body)
	_ = ctx.URI() // fasthttp has parsed it before the handler runs
	return ctx
}

const oneEvent = `{"type":"purchase","time":88,"key":"magic_stick","charges":2}`

func ndjson128() []byte { return bytes.Repeat([]byte(oneEvent+"\n"), 128) }

func BenchmarkOneEvent(b *testing.B) {
	call := handler(b, instantStore(), contextFor("/v1/default/com.acme.kart", "", []byte(oneEvent)))
	b.ReportAllocs()
	for b.Loop() {
		if status := call(); status != 200 {
			b.Fatal(status)
		}
	}
}

func BenchmarkNDJSON128(b *testing.B) {
	body := ndjson128()
	call := handler(b, instantStore(), contextFor("/v1/default/com.acme.kart", "application/x-ndjson", body))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if status := call(); status != 200 {
			b.Fatal(status)
		}
	}
}

// someToken is as long as the tokens of `spillway token`.
const someToken = "sw_q7Jr0f1c0n3bWm8b8Qe2yYk2l5p9v4xT6uZ1aD3sE8g"

// tokenConfig gives "default" a thousand tokens, among them someToken, with all
// limits or with none.
func tokenConfig(limited bool) Config {
	cfg := DefaultConfig()
	tokens := []Token{{Hash: sha256.Sum256([]byte(someToken)), Name: "some"}}
	if limited {
		tokens[0].Rate, tokens[0].NewPartitions = Quota{maxQuota, time.Second}, Quota{100, time.Minute}
	}
	for i := range 999 {
		tokens = append(tokens, Token{Hash: sha256.Sum256([]byte{byte(i), byte(i >> 8)}), Name: "another"})
	}
	cfg.Tokens = map[string][]Token{"default": tokens}
	return cfg
}
