package lmstfy

import (
	"bufio"
	"context"
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp's own, see package ingest.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"))
}

// noBuffers is the store of a server without buffers.
type noBuffers struct{}

func (noBuffers) Namespace(string) *partition.Namespace       { return nil }
func (noBuffers) Zones() int                                  { return 1 }
func (noBuffers) NowOf(*partition.Namespace) (int64, bool)    { return 0, false }
func (noBuffers) Produce(context.Context, []*partition.Group) {}
func (noBuffers) Stats(context.Context, *partition.Namespace, string) (s partition.Stats, err error) {
	return s, err
}

// port is a data port with the API over a fake, and a client.
type port struct {
	t      testing.TB
	server *ingest.Server
	tokens map[string][]ingest.Token // that it has
	fake   *fakeQueues
	client *http.Client
	addr   string
}

const (
	token      = "01M81GK9ES9Y8647GNE0CVMRGF" // of the namespace ns
	otherToken = "01M81GK9ESOTHEROTHEROTHER"  // of the namespace other
	fastToken  = "01M81GK9ESFASTFASTFASTFAST" // of the namespace quick, in the pool fast
)

func hashed(texts ...string) (tokens []ingest.Token) {
	for _, text := range texts {
		tokens = append(tokens, ingest.Token{Hash: sha256.Sum256([]byte(text)), Name: text[:4]})
	}
	return tokens
}

// listen starts a data port with the namespaces ns, other and quick (in the pool fast),
// each with a token, and open without any.
func listen(t testing.TB, edit func(*Config, *ingest.Config)) *port {
	t.Helper()
	p := &port{t: t, fake: newFake(t, "ns", "other", "quick", "open")}
	p.fake.pools["quick"] = "fast"
	cfg := Config{Pools: p.fake.both(), AccessLog: &AccessLog{}, Log: zap.NewNop()}
	in := ingest.DefaultConfig()
	in.Tokens = map[string][]ingest.Token{"ns": hashed(token), "other": hashed(otherToken), "quick": hashed(fastToken), "open": nil}
	if edit != nil {
		edit(&cfg, &in)
	}
	in.Mounts = []ingest.Mount{NewAPI(cfg).Mount(), {
		Name: "jobs", Owns: func(name string) bool { return p.fake.Namespaces[name] != nil },
		Handler: func(*ingest.Exchange) *ingest.Rejection { return nil },
	}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.tokens = in.Tokens
	if p.server, err = ingest.New(in, noBuffers{}, prometheus.NewRegistry(), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	p.server.SetListener(ln)
	if err := p.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	p.addr, p.client = ln.Addr().String(), &http.Client{Transport: transport, Timeout: 30 * time.Second}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.server.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return p
}

// reply is an answer. Ids and times, which differ from run to run, are masked in body.
type reply struct {
	status    int
	body, raw string
	header    http.Header
}

// do sends a request; headers are "Name: value". A token that is not given is that of ns.
func (p *port) do(method, path, body string, headers ...string) reply {
	p.t.Helper()
	req, err := http.NewRequest(method, "http://"+p.addr, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.URL.Opaque, req.URL.RawQuery, _ = strings.Cut(path, "?") // as it is, without cleaning
	req.Header.Set(headerToken, token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == headerToken {
			req.Header.Del(headerToken)
		}
		if value != "none" {
			req.Header.Add(name, value)
		}
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	return reply{resp.StatusCode, masked(string(text)), string(text), resp.Header}
}

// raw sends bytes and returns the first line and the body of the answer.
func (p *port) raw(request string) (status string, body string) {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		p.t.Fatalf("%.80q: %v", request, err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.Status, string(text)
}
