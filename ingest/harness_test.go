package ingest

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp/fasthttputil"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most of them wait for Redis, or for a time
	goleak.VerifyTestMain(m,
		// fasthttp's own: one clock for Date headers, and cleaners that sleep
		// up to 10 s after their server or client has ended.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"))
}

// port is a running server and a way to talk to it.
type port struct {
	*Server
	t      testing.TB
	store  *fakeStore // nil with a real store
	reg    *prometheus.Registry
	dial   func() (net.Conn, error)
	client *http.Client
}

// listen starts a server in memory; edit may change its configuration.
func listen(t testing.TB, store Store, edit func(*Config)) *port {
	ln := fasthttputil.NewInmemoryListener()
	return listenOn(t, store, edit, ln, ln.Dial, zap.NewNop())
}

// listenTCP starts a server on a loopback socket.
func listenTCP(t testing.TB, store Store, edit func(*Config)) *port {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dial := func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) }
	return listenOn(t, store, edit, ln, dial, zap.NewNop())
}

// hasty waits for so little that only what tests of a 408 send may come to it.
func hasty(c *Config) { c.ReadTimeout = 200 * time.Millisecond }

// listenRead is listenTCP that says when the server has read from a connection and waits for
// more.
func listenRead(t testing.TB, store Store, edit func(*Config)) (*port, <-chan struct{}) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dial := func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) }
	read := make(chan struct{}, 1)
	return listenOn(t, store, edit, readListener{ln, read}, dial, zap.NewNop()), read
}

type readListener struct {
	net.Listener
	read chan<- struct{}
}

func (l readListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &readConn{Conn: c, read: l.read}, err
}

type readConn struct {
	net.Conn
	some bool
	read chan<- struct{}
}

func (c *readConn) Read(p []byte) (int, error) {
	if c.some {
		select {
		case c.read <- struct{}{}:
		default:
		}
	}
	n, err := c.Conn.Read(p)
	c.some = c.some || n > 0
	return n, err
}

// listenOn runs a server until the test ends, and then checks that it released all
// it had reserved.
func listenOn(t testing.TB, store Store, edit func(*Config), ln net.Listener, dial func() (net.Conn, error), log *zap.Logger) *port {
	t.Helper()
	cfg := DefaultConfig()
	if edit != nil {
		edit(&cfg)
	}
	reg := prometheus.NewRegistry()
	s, err := New(cfg, store, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return dial() },
		DisableCompression: true, MaxIdleConnsPerHost: 256,
	}
	fake, _ := store.(*fakeStore)
	p := &port{
		Server: s, t: t, store: fake, reg: reg, dial: dial,
		client: &http.Client{Transport: transport, Timeout: 30 * time.Second},
	}
	s.SetListener(ln)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		if err := <-s.Failed(); err != nil {
			t.Errorf("serve: %v", err)
		}
		if fake != nil && fake.wrong != nil {
			t.Error(fake.wrong)
		}
		if bytes, incomplete, conns := s.memory.Held.Used(), s.memory.Arriving.Used(), s.conns.Load(); bytes != 0 || incomplete != 0 || conns != 0 {
			t.Errorf("%d bytes are still reserved, %d of them for incomplete bodies, %d connections open", bytes, incomplete, conns)
		}
	})
	return p
}

// do sends a request; headers are "Name: value".
func (p *port) do(method, path, body string, headers ...string) *reply {
	p.t.Helper()
	return readReply(p.t, p.send(method, path, body, headers...))
}

// send is do, and leaves the answer to be read.
func (p *port) send(method, path, body string, headers ...string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequest(method, "http://data"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

const (
	asNDJSON = "Content-Type: application/x-ndjson"
	asJSON   = "Content-Type: application/json"
)

func (p *port) post(path, body string, headers ...string) *reply {
	p.t.Helper()
	return p.do(http.MethodPost, path, body, headers...)
}

// raw sends bytes on a new connection and returns the first answer, and
// whether the server closed the connection after it.
func (p *port) raw(text string) (r *reply, closed bool) {
	p.t.Helper()
	c, err := p.dial()
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(c, text) }()
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodPost})
	if err != nil {
		p.t.Fatalf("%.80q: %v", text, err)
	}
	r = readReply(p.t, resp)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if resp.Close {
		if extra, err := in.ReadByte(); err == nil {
			p.t.Errorf("%.80q: %q follows the last answer", text, extra)
		}
	}
	return r, resp.Close
}

// metric reads one counter by name and label values in the order of the names.
func (p *port) metric(name string, labels ...string) float64 {
	p.t.Helper()
	families, err := p.reg.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "spillway_ingest_"+name {
			continue
		}
	metrics:
		for _, m := range family.GetMetric() {
			for i, l := range m.GetLabel() {
				if i >= len(labels) || l.GetValue() != labels[i] {
					continue metrics
				}
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return 0
}

func gzipped(t testing.TB, text string) string { return deflate(t, text, newGzipWriter) }
func zstded(t testing.TB, text string) string  { return deflate(t, text, newZstdWriter) }

func deflate(t testing.TB, text string, make func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var b bytes.Buffer
	w := make(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// eventually waits until another goroutine makes a condition true.
func eventually(t testing.TB, holds func() bool) {
	t.Helper()
	redistest.Until(t, 20*time.Second, "the condition holds", holds)
}

// sends opens a connection and sends text, as far as the server reads it.
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

// now is the fake store's clock.
const now int64 = 1_763_629_675_100

var _ Store = (*fakeStore)(nil)
var _, _ Store = (*partition.Store)(nil), (*partition.Stores)(nil)

// fakeStore keeps entries in memory unless a func says otherwise.
type fakeStore struct {
	namespaces map[string]*partition.Namespace
	now        func() (int64, bool)
	produce    func(ctx context.Context, groups []*partition.Group)
	stats      func(ctx context.Context, ns *partition.Namespace, name string) (partition.Stats, error)

	mu    sync.Mutex
	lists map[string][]string // by "namespace/partition", entries as encoded
	seen  map[string]partition.Group
	calls int
	wrong error // how a caller broke the contract of Store.Produce
}

func newFake() *fakeStore {
	policy := partition.DefaultPolicy()
	small := policy
	small.Capacity = 5
	f := &fakeStore{
		namespaces: map[string]*partition.Namespace{
			"default": {Name: "default", Policy: policy},
			"small":   {Name: "small", Policy: small},
		},
		now:   func() (int64, bool) { return now, true },
		lists: map[string][]string{},
		seen:  map[string]partition.Group{},
	}
	f.produce = f.keep
	f.stats = func(context.Context, *partition.Namespace, string) (partition.Stats, error) {
		return partition.Stats{}, partition.ErrNoPartition
	}
	return f
}

func (f *fakeStore) Namespace(name string) *partition.Namespace {
	if name == "panics" {
		panic("a bug")
	}
	return f.namespaces[name]
}
func (f *fakeStore) Zones() int                               { return 1 }
func (f *fakeStore) NowOf(*partition.Namespace) (int64, bool) { return f.now() }
func (f *fakeStore) Produce(ctx context.Context, groups []*partition.Group) {
	f.produce(ctx, groups)
}
func (f *fakeStore) Stats(ctx context.Context, ns *partition.Namespace, name string) (partition.Stats, error) {
	return f.stats(ctx, ns, name)
}

// keep implements the store's contract in memory, and checks that the caller follows it.
func (f *fakeStore) keep(_ context.Context, groups []*partition.Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	for _, g := range groups {
		key := g.Namespace.Name + "/" + g.Partition
		if len(g.Entries) == 0 || g.Accepted+g.Evicted+g.Depth != 0 || g.Err != nil || g.Repeated {
			f.wrong = fmt.Errorf("group of %s breaks the contract: %+v", key, g)
		}
		if first, ok := f.seen[key+" "+g.IdempotencyKey]; ok {
			g.Accepted, g.Evicted, g.Depth, g.Repeated = first.Accepted, first.Evicted, first.Depth, true
			continue
		}
		list := f.lists[strings.Clone(key)]
		for _, e := range g.Entries {
			if _, err := partition.ParseEntry(e); err != nil {
				f.wrong = fmt.Errorf("entry %q: %w", e, err)
			}
			list = append(list, string(e))
		}
		g.Accepted = len(g.Entries)
		g.Evicted = max(0, len(list)-g.Namespace.Policy.Capacity)
		list = list[g.Evicted:]
		g.Depth = len(list)
		f.lists[key] = list
		if g.IdempotencyKey != "" {
			f.seen[key+" "+g.IdempotencyKey] = *g
		}
	}
}

// entries returns what a partition holds, "namespace/partition".
func (f *fakeStore) entries(key string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.lists[key]...)
}

// failWith answers every group with err.
func failWith(err error) func(context.Context, []*partition.Group) {
	return func(_ context.Context, groups []*partition.Group) {
		for _, g := range groups {
			g.Err = err
		}
	}
}

// blockProduce makes calls of Produce wait until unblock is called. entered receives
// when a call waits.
func (f *fakeStore) blockProduce() (entered <-chan struct{}, unblock func()) {
	in, gate := make(chan struct{}, 64), make(chan struct{})
	inner := f.produce
	f.produce = func(ctx context.Context, groups []*partition.Group) {
		select {
		case in <- struct{}{}:
		default:
		}
		<-gate
		inner(ctx, groups)
	}
	return in, sync.OnceFunc(func() { close(gate) })
}

// longProduceTimeout lets requests wait for blockProduce on a slow machine.
func longProduceTimeout(c *Config) { c.ProduceTimeout = time.Minute }

// failPartitions fails the groups of the partitions in errs and stores the others.
func (f *fakeStore) failPartitions(errs map[string]error) {
	f.produce = func(ctx context.Context, groups []*partition.Group) {
		var kept []*partition.Group
		for _, g := range groups {
			if g.Err = errs[g.Partition]; g.Err == nil {
				kept = append(kept, g)
			}
		}
		f.keep(ctx, kept)
	}
}

// instantStore accepts everything at once and allocates nothing.
func instantStore() *fakeStore {
	f := newFake()
	f.produce = func(_ context.Context, groups []*partition.Group) {
		for _, g := range groups {
			g.Accepted, g.Depth = len(g.Entries), len(g.Entries)
		}
	}
	return f
}
