package ingest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"strings"
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

// BenchmarkAdmit measures what a token costs a request, without and with limits,
// and compares it with a namespace without tokens.
func BenchmarkAdmit(b *testing.B) {
	for name, cfg := range map[string]Config{"open": DefaultConfig(), "token": tokenConfig(false), "limits": tokenConfig(true)} {
		b.Run(name, func(b *testing.B) {
			s, err := New(cfg, instantStore(), prometheus.NewRegistry(), zap.NewNop())
			if err != nil {
				b.Fatal(err)
			}
			ctx := contextFor("/v1/default/com.acme.kart", "", []byte("x"))
			ctx.Request.Header.Set("Authorization", "Bearer "+someToken)
			b.ReportAllocs()
			for b.Loop() {
				t := s.newTarget()
				if rejected := s.admit(ctx, t); rejected != nil {
					b.Fatal(rejected.Code)
				}
				if t.key.checkRate() != nil || t.key.admitPartition("com.acme.kart") != nil || t.key.charge(1) != nil {
					b.Fatal("limited")
				}
				s.targets.Put(t)
			}
		})
	}
}

// repeatedConn is a client that sends the same request again and again.
type repeatedConn struct {
	net.Conn // an unused pipe, for addresses and deadlines
	text     []byte
	at, left int // position in the text; how often it is still sent
}

func (c *repeatedConn) Read(p []byte) (int, error) {
	if c.at == len(c.text) {
		c.at = 0
		c.left--
	}
	if c.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.text[c.at:])
	c.at += n
	return n, nil
}

func (c *repeatedConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *repeatedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *repeatedConn) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkServed measures a request from its first byte to its answer, by size of
// its body. The store answers at once.
func BenchmarkServed(b *testing.B) {
	s, err := New(DefaultConfig(), instantStore(), prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	s.lanes.start()
	defer s.lanes.stop(context.Background())
	line := strings.Repeat("x", 1000) + "\n"
	for _, c := range []struct{ name, body string }{
		{"60B", oneEvent}, {"8KB", string(ndjson128())}, {"20KB", strings.Repeat(line, 20)}, {"100KB", strings.Repeat(line, 100)}, {"1MB", strings.Repeat(line, 1000)},
	} {
		b.Run(c.name, func(b *testing.B) {
			inner, other := net.Pipe()
			defer other.Close()
			text := request11("POST /v1/default/com.acme.kart", fmt.Sprintf("%sContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n", "User-Agent: bench\r\n", len(c.body)), c.body)
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			b.ResetTimer()
			if err := s.http.ServeConn(&repeatedConn{Conn: inner, text: []byte(text), left: b.N}); err != nil {
				b.Fatal(err)
			}
		})
	}
}
