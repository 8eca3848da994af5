package ingest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/memory"

	"github.com/spillway-io/spillway/partition"
)

func TestAClientThatIsStillSendingLearnsWhyItIsRejected(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	body := strings.Repeat("x", 5<<20)
	for range 30 {
		p.post("/v1/default/p", body).expect(t, 413, "body_too_large")
	}
	p.post("/v1/default/p", body, "Expect: 100-continue").expect(t, 413, "body_too_large")
	p.post("/v1/default/p", "x", "X-A: "+strings.Repeat("a", 2<<20)).expect(t, 431, "headers_too_large")
}

// pipeListener returns connections without a buffer: a write waits until it is
// read.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if c, open := <-l; open {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l pipeListener) Close() error   { close(l); return nil }
func (l pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

func TestALargeAnswerIsReservedUntilTheClientHasReadIt(t *testing.T) {
	t.Parallel()
	ln := make(pipeListener)
	dial := func() (net.Conn, error) {
		client, server := net.Pipe()
		ln <- server
		return client, nil
	}
	p := listenOn(t, newFake(), nil, ln, dial, zap.NewNop())
	body := strings.Repeat("7\n", 999) + `{"partition":"a","data":1}`
	request := request11("POST /v1/default", fmt.Sprintf("Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n", len(body)), body)
	for _, leaves := range []bool{false, true} {
		c := p.sends(request)
		eventually(t, func() bool {
			return p.memory.Held.Used() > 30_000 && p.memory.Held.Used() < 80_000 && p.metric("requests_total", "200", "mixed") > 0
		})
		if leaves {
			c.Close()
		} else if got := status(t, c); got != 200 {
			t.Errorf("got %d", got)
		} else {
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
		eventually(t, func() bool { return p.memory.Held.Used() == 0 })
	}
}

// Not parallel: it measures the memory of the process.
func TestAConnectionHoldsAtMostItsDocumentedMemory(t *testing.T) {
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
			"a body to come": request11("POST /v1/default/p", "X-A: "+strings.Repeat("a", 7<<10)+"\r\nContent-Length: 1048576\r\n", strings.Repeat("x", memory.Prefetched-1)),
			"a large body":   request11("POST /v1/default/p", "X-A: "+strings.Repeat("a", 7<<10)+"\r\nContent-Length: 1048576\r\n", strings.Repeat("x", memory.Prefetched+1)),
			"many headers":   request11("POST /v1/default/p", strings.Repeat("A: "+strings.Repeat("b", 50)+"\r\n", 120)+"Content-Length: 1048576\r\n", strings.Repeat("x", memory.Prefetched-1)),
		} {
			before := liveMemory()
			var all []net.Conn
			for range conns {
				client, server := net.Pipe()
				ln <- server
				all = append(all, client)
				if name == "TLS" {
					client = tls.Client(client, &tls.Config{InsecureSkipVerify: true})
				}
				// What is written to a pipe has been read.
				if _, err := io.WriteString(client, text); err != nil {
					t.Fatal(err)
				}
			}
			each := (liveMemory() - before - p.memory.Held.Used()) / conns
			t.Logf("%s, %s: %d bytes a connection, the client's side included", what, name, each)
			if each > limit {
				t.Errorf("%s, %s: a connection holds %d bytes, want at most %d", what, name, each, limit)
			}
			for _, c := range all {
				c.Close()
			}
			eventually(t, func() bool { return p.conns.Load() == 0 })
		}
	}
}

// liveMemory is the reachable heap and the stacks, in bytes.
func liveMemory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func TestRetireLetsTheNextServerAnswerOpenConnections(t *testing.T) {
	t.Parallel()
	before, after := newFake(), newFake()
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	keep := before.produce
	before.produce = func(ctx context.Context, groups []*partition.Group) {
		if groups[0].Partition == "slow" {
			<-gate
		}
		keep(ctx, groups)
	}
	old, next := listenTCP(t, before, longProduceTimeout), listenTCP(t, after, longProduceTimeout)

	idle, err := old.dial() // sent one request
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	ask := func() *http.Response {
		if _, err := io.WriteString(idle, "POST /v1/default/p HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(idle), nil)
		if err != nil {
			t.Fatal(err)
		}
		readReply(t, resp)
		return resp
	}
	unused, err := old.dial() // has sent nothing
	if err != nil {
		t.Fatal(err)
	}
	defer unused.Close()
	if resp := ask(); resp.Close {
		t.Error("the first answer closes")
	}
	answered := make(chan *reply)
	go func() { answered <- old.post("/v1/default/slow", "begun") }()
	eventually(t, func() bool { return old.Requests() == 1 })
	eventually(t, func() bool { return old.Connections() == 3 })

	retired := make(chan error)
	go func() { retired <- old.Retire(t.Context(), next.Server) }()
	eventually(t, func() bool { return old.next.Load() != nil })
	if resp := ask(); !resp.Close {
		t.Error("the connection of the retired server stays open")
	}
	eventually(t, func() bool { return len(after.entries("default/p")) == 1 })
	select {
	case err := <-retired:
		t.Fatalf("retire did not wait: %v", err)
	default:
	}
	open()
	(<-answered).expect(t, 200, "")
	if err := <-retired; err != nil {
		t.Error(err)
	}
	if got := before.entries("default/slow"); len(got) != 1 {
		t.Errorf("stored %q before", got)
	}
	idle = unused
	if resp := ask(); !resp.Close {
		t.Error("the connection of the retired server stays open")
	}
	if got := len(before.entries("default/p")); got != 1 {
		t.Errorf("%d entries went to the former store", got)
	}
	if c, err := old.dial(); err == nil {
		_ = c.Close()
		t.Error("the retired server's listener is open")
	}
}

func TestRetireEndsWithItsContext(t *testing.T) {
	t.Parallel()
	store := newFake()
	_, open := store.blockProduce()
	defer open()
	old, next := listenTCP(t, store, longProduceTimeout), listenTCP(t, newFake(), nil)
	half, err := old.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	if _, err := io.WriteString(half, "POST /v1/default/p HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n"+strings.Repeat("x", 10_000)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return old.Requests() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := old.Retire(ctx, next.Server); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// scriptedConn is a client that sends everything at once and then closes.
type scriptedConn struct {
	net.Conn // an unused pipe, for addresses and deadlines
	in       io.Reader
	out      bytes.Buffer
}

func (c *scriptedConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *scriptedConn) Write(p []byte) (int, error) { return c.out.Write(p) }

// FuzzConnection sends any bytes. The server must not panic, and must answer in
// HTTP, with JSON bodies of the table of codes, or of an SDK's protocol.
func FuzzConnection(f *testing.F) {
	store := newFake()
	cfg := DefaultConfig()
	cfg.SDKs = map[string]SDK{"default": {WriteKeys: []WriteKey{{Key: "default"}}}}
	s, err := New(cfg, store, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		f.Fatal(err)
	}
	s.lanes.start()
	f.Cleanup(func() { _ = s.lanes.stop(context.Background()) })

	body := `{"sent_at":1763629675100,"batch":[{"id":"a","ts":1,"data":{}}]}`
	f.Add([]byte(request11("POST /v1/default/p", "Content-Type: application/json\r\nContent-Length: 63\r\n", body)))
	f.Add([]byte(request11("POST /v1/default", "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n", "1a\r\n{\"partition\":\"a\",\"data\":1}\r\n0\r\n\r\n")))
	f.Add([]byte(request11("POST /v1/small/p", "X-Sent-At: 5\r\nX-Event-Ts: 1\r\nContent-Length: 1\r\n", "x")))
	f.Add([]byte(request11("POST /v1/default/p", "Content-Encoding: gzip\r\nContent-Length: 25\r\n", gzipped(f, "x"))))
	f.Add([]byte(request11("POST /v1/default/p", "Content-Encoding: zstd\r\nContent-Length: 14\r\n", zstded(f, "x"))))
	f.Add([]byte(request11("POST /v1/default/p", "Expect: 100-continue\r\nContent-Length: 1\r\n", "x")))
	f.Add([]byte(request11("GET /v1/default/p", "Prefer: return=minimal\r\nX-Client-Discards: stale=1\r\n", "") + request11("HEAD /livez", "", "")))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01\r\n\r\n"))
	for _, seed := range connectionSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		inner, other := net.Pipe()
		defer other.Close()
		c := &scriptedConn{Conn: inner, in: bytes.NewReader(sent)}
		_ = s.http.ServeConn(c)
		if testutil.ToFloat64(s.metrics.panics) != 0 {
			t.Fatalf("%q: a handler panicked", sent)
		}
		if store.wrong != nil {
			t.Fatal(store.wrong)
		}
		out := bufio.NewReader(&c.out)
		for {
			if _, err := out.Peek(1); err != nil {
				return
			}
			resp, err := http.ReadResponse(out, nil)
			if err != nil {
				t.Fatalf("%q is answered %v", sent, err)
			}
			if bytes.Contains(sent, []byte("HEAD ")) {
				return // the answer to HEAD has a length but no body
			}
			text, err := io.ReadAll(resp.Body)
			isJSON := resp.Header.Get("Content-Type") == jsonType // that of some SDKs is not
			if err != nil || len(text) > 0 && isJSON && !json.Valid(text) {
				t.Fatalf("%q is answered %q, %v", sent, text, err)
			}
			says := func(part string) bool { return bytes.Contains(text, []byte(part)) }
			ofSDK := says(`"code":`) || string(text) == "0"
			if resp.StatusCode >= 400 && isJSON && !says(`"error":"`) && !ofSDK {
				t.Fatalf("%q is answered %d %q", sent, resp.StatusCode, text)
			}
		}
	})
}
