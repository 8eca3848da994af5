package ingest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

var (
	absoluteForm  = regexp.MustCompile(`\A(?i:https?)://[^/?]*`)
	namespacePath = regexp.MustCompile(`\A/v1/[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z`)
	partitionPath = regexp.MustCompile(`\A/v1/[A-Za-z0-9][A-Za-z0-9._-]{0,63}/[A-Za-z0-9][A-Za-z0-9._-]{0,127}\z`)
)

// FuzzPath holds every request target that names a partition to one spelling:
// what is taken is, byte for byte, what the contract says a path looks like.
func FuzzPath(f *testing.F) {
	for _, target := range []string{
		"/v1/default/p", "/v1/default", "/v1/default/p?ack=none", "/v1/default/p#f", "//v1/default/p", "/v1/default/%70",
		"/v1/../v1/default/p", "/v1/default/p/", "http://x/v1/default/p", "/v1/default/a}{p1}b", "*", "", "//x/v1/default/p", "ftp://x/v1/default/p", "HTTPS://x/v1/default",
	} {
		f.Add([]byte(target))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var ctx fasthttp.RequestCtx
		ctx.Request.Header.SetRequestURIBytes(raw)
		ctx.Request.Header.SetMethod(fasthttp.MethodPost)
		var to target
		if to.match(&ctx) != nil {
			return
		}
		path, _, _ := strings.Cut(string(raw), "?")
		if absolute := absoluteForm.FindString(path); absolute != "" {
			path = path[len(absolute):]
		}
		switch to.route.pattern {
		case patternPartition:
			if !partitionPath.MatchString(path) || !strings.HasSuffix(path, "/"+string(to.partition)) {
				t.Fatalf("%q is taken for partition %q", raw, to.partition)
			}
		case patternNamespace:
			if !namespacePath.MatchString(path) {
				t.Fatalf("%q is taken for namespace %q", raw, to.path)
			}
		default:
			t.Fatalf("%q is taken for a POST to %s", raw, to.route.pattern)
		}
	})
}

// FuzzFraming holds what we read against what net/http reads from the same
// bytes: as long as both take a request, they agree where it ends. A proxy that
// disagrees with us is how requests are smuggled.
func FuzzFraming(f *testing.F) {
	s, err := New(DefaultConfig(), newFake(), prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		f.Fatal(err)
	}
	var bodies []string // of the connection that is being served
	s.http.Handler = func(ctx *fasthttp.RequestCtx) {
		r := newRequest()
		defer s.release(r)
		_, skipped := bodyLength(&ctx.Request.Header)
		body, rejected := s.readBody(ctx, r)
		if skipped || rejected != nil || checkFraming(&ctx.Request.Header) != nil {
			ctx.SetConnectionClose()
			return
		}
		bodies = append(bodies, string(body))
	}
	next := request11("GET /livez", "", "")
	for _, text := range []string{
		request11("POST /v1/default/p", "Content-Length: 1\r\n", "x") + next,
		request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "1;a=b\r\nx\r\n0\r\nA: b\r\n\r\n") + next,
		request11("POST /v1/default/p", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n") + next,
		request11("GET /v1/default/p", "Content-Length: 1\r\n", "x") + next,
		request11("HEAD /v1/default/p", "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n") + next,
		request11("POST /v1/default/p", "Expect: 100-continue\r\nContent-Length: 1\r\n", "x") + next,
		request11("POST /v1/default/p", "", "") + next,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		inner, other := net.Pipe()
		defer other.Close()
		bodies = bodies[:0]
		_ = s.http.ServeConn(&scriptedConn{Conn: inner, in: bytes.NewReader(sent)})
		in := bufio.NewReader(bytes.NewReader(sent))
		for i, got := range bodies {
			req, err := http.ReadRequest(in)
			if err != nil {
				return // net/http rejects what we take; nobody is misled
			}
			want, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			if got != string(want) {
				t.Fatalf("%q: the body of request %d is %q here and %q to net/http", sent, i, got, want)
			}
		}
	})
}
