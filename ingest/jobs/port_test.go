package jobs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// noBuffers is a store without namespaces.
type noBuffers struct{}

func (noBuffers) Namespace(string) *partition.Namespace       { return nil }
func (noBuffers) Zones() int                                  { return 0 }
func (noBuffers) NowOf(*partition.Namespace) (int64, bool)    { return 0, true }
func (noBuffers) Produce(context.Context, []*partition.Group) {}

func (noBuffers) Stats(context.Context, *partition.Namespace, string) (partition.Stats, error) {
	return partition.Stats{}, partition.ErrNoPartition
}

// port is a data port on loopback with the native routes.
type port struct {
	t      testing.TB
	server *ingest.Server
	engine *Engine
	store  *fakeStore
	addr   string
	reg    *prometheus.Registry
	client *http.Client
}

// listen serves until the test ends.
func listen(t testing.TB, s *fakeStore, e *Engine, edit func(*ingest.Config)) *port {
	t.Helper()
	cfg := ingest.DefaultConfig()
	cfg.Mounts, cfg.Tokens = []ingest.Mount{e.Mount()}, map[string][]ingest.Token{}
	for name := range s.Namespaces {
		cfg.Tokens[name] = nil // it needs none
	}
	if edit != nil {
		edit(&cfg)
	}
	p := &port{t: t, engine: e, store: s, reg: prometheus.NewRegistry()}
	var err error
	if p.server, err = ingest.New(cfg, noBuffers{}, p.reg, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = ln.Addr().String()
	p.server.SetListener(ln)
	if err := p.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	p.client = &http.Client{Transport: transport, Timeout: 30 * time.Second}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.server.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		if held := p.metric("inflight_bytes"); held != 0 {
			t.Errorf("%v bytes are still reserved", held)
		}
	})
	return p
}

func served(t testing.TB, policies map[string]job.Policy, edit func(*ingest.Config)) *port {
	t.Helper()
	s := newFake(t, policies)
	return listen(t, s, start(t, s), edit)
}

// metric reads one metric of ingest, or of the store, by its labels, in the order of their names.
func (p *port) metric(name string, labels ...string) float64 {
	p.t.Helper()
	families, err := p.reg.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "spillway_ingest_"+name && family.GetName() != "spillway_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// reply is an answer. Its fields are those of all routes.
type reply struct {
	status int
	header http.Header
	raw    string

	Error, Message, Outcome, Scope, State string
	Accepted                              int
	Repeated, Exists                      bool
	IDs                                   []string
	Jobs                                  []struct {
		Queue, ID, Data, State string
		Attempt, Tries         int
		Attributes             map[string]string
		Published              int64 `json:"published_ms"`
		Deadline               int64 `json:"deadline_ms"`
	}
	Results []struct {
		I                     int
		State, Error, Message string
	}
}

func (p *port) do(method, path, body string, headers ...string) *reply {
	p.t.Helper()
	req, err := http.NewRequest(method, "http://"+p.addr+path, strings.NewReader(body))
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
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	r := &reply{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, r); err != nil {
			p.t.Errorf("%s %s: %v in %.200q", method, path, err, raw)
		}
	}
	return r
}

const (
	asNDJSON = "Content-Type: application/x-ndjson"
	asJSON   = "Content-Type: application/json"
)

// data are the payloads of claimed jobs, with spaces between.
func (r *reply) data() string {
	var all []string
	for _, j := range r.Jobs {
		text, err := base64.StdEncoding.DecodeString(j.Data)
		if err != nil {
			return err.Error()
		}
		all = append(all, string(text))
	}
	return strings.Join(all, " ")
}

// hold sends a request on a connection of its own, which ends with the test.
func (p *port) hold(text string) net.Conn {
	p.t.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		p.t.Fatal(err)
	}
	return c
}
