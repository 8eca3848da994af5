package jobs

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/control"
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
	for name := range s.namespaces {
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

// metric reads one metric of ingest by its labels, in the order of their names.
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

func TestPublishTakesTheFormsOfEntries(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	for i, c := range []struct {
		body, kind string
		want       string
	}{
		{"hello", "", "hello"},
		{"a\nb\n", "", "a\nb\n"},
		{"a\nb\n\nc", "application/x-ndjson", "a b c"},
		{`[1,"two",{"three":[4]}]`, "application/json", `1 "two" {"three":[4]}`},
		{` {"batch":[1,2]}`, "application/json; charset=utf-8", ` {"batch":[1,2]}`},
		{`{"sent_at":"x","batch":[1,2]}`, "application/json", `{"sent_at":"x","batch":[1,2]}`},
		{"\x00\xff\"", "application/octet-stream", "\x00\xff\""},
	} {
		queue := fmt.Sprint("q", i)
		r := p.do("POST", "/v1/mail/"+queue, c.body, "Content-Type: "+c.kind)
		got := p.do("POST", "/v1/mail/"+queue+"/claim?count=9", "")
		if r.status != 200 || r.Accepted != len(got.Jobs) || len(r.IDs) != len(got.Jobs) || got.data() != c.want {
			t.Errorf("%q: got %s and then %s", c.body, r.raw, got.raw)
			continue
		}
		for j := range r.IDs {
			if got.Jobs[j].ID != r.IDs[j] || got.Jobs[j].Attempt != 1 || got.Jobs[j].Tries != 3 || got.Jobs[j].Queue != queue || got.Jobs[j].Deadline != 3500+60_000 {
				t.Errorf("%q: got %+v", c.body, got.Jobs[j])
			}
		}
	}
}

func TestPublishPassesItsOptionsOn(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	var seen job.Publish
	p.store.with(func() {
		p.store.fail = func(b *job.Batch) error {
			if len(b.Publishes) == 1 {
				seen = *b.Publishes[0]
			}
			return nil
		}
	})
	r := p.do("POST", "/v1/mail/q?delay=1.5s&ttl=1h&tries=7&id=order-7&dedup=24h", "x", "Idempotency-Key: k", "Prefer: return=minimal")
	if r.status != 204 || seen.Delay != 1500*time.Millisecond || seen.TTL != time.Hour || seen.Tries != 7 || seen.CallerID != "order-7" || seen.Key != "k" || seen.KeyTTL != 24*time.Hour {
		t.Errorf("got %d %s and %+v", r.status, r.raw, seen)
	}
	if p.do("POST", "/v1/mail/q?ttl=100us", "x"); seen.TTL != time.Millisecond {
		t.Errorf("a ttl of less than a millisecond became %v: 0 is for ever", seen.TTL)
	}
	r = p.do("POST", "/v1/mail/s?shards=3", "x")
	got := p.do("POST", "/v1/mail/s/take?count=9", "")
	if len(r.IDs) != 3 || len(got.Jobs) != 3 || got.Jobs[2].Attributes["shard_index"] != "2" || got.Jobs[2].Attributes["shard_total"] != "3" {
		t.Errorf("got %s and %s", r.raw, got.raw)
	}
}

func TestRepeatsOfAQueueOverShardsMeetTheFirst(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread = 8, map[string]int{"q": 8}
	p := served(t, map[string]job.Policy{"mail": policy}, nil)
	used := map[int]bool{}
	p.store.with(func() {
		p.store.fail = func(b *job.Batch) error {
			for _, x := range b.Publishes {
				used[x.Shard] = true
			}
			return nil
		}
	})
	for _, headers := range [][]string{{"Idempotency-Key: a"}, nil} {
		for range 8 {
			path := "/v1/mail/q?id=x"
			if headers != nil {
				path = "/v1/mail/q"
			}
			p.do("POST", path, "x", headers...)
		}
		if len(used) != 1 {
			t.Errorf("%v: repeats went to %d shards", headers, len(used))
		}
		clear(used)
	}
	for range 16 {
		p.do("POST", "/v1/mail/q", "x")
	}
	if len(used) != 8 {
		t.Errorf("others went to %d shards", len(used))
	}
}

// A higher spread moves the keys that the shard more takes, and no others.
func TestAHigherSpreadMovesAsFewKeysAsItCan(t *testing.T) {
	t.Parallel()
	const keys = 600
	var before [keys]int
	for spread := 1; spread <= 5; spread++ {
		policy := job.DefaultPolicy()
		policy.Shards = 8
		if spread > 1 {
			policy.Spread = map[string]int{"q": spread}
		}
		p := served(t, map[string]job.Policy{"mail": policy}, nil)
		ns := p.store.Namespace("mail")
		last, moved := ns.Shards("q")[spread-1], 0
		for i := range keys {
			id := p.do("POST", fmt.Sprint("/v1/mail/q?id=order-", i), "x").IDs[0]
			ref, ok := ns.ParseID("q", id)
			if !ok || ref.Shard != before[i] && ref.Shard != last {
				t.Fatalf("spread %d: key %d is in shard %d, was in %d", spread, i, ref.Shard, before[i])
			}
			if ref.Shard != before[i] || spread == 1 {
				moved++
			}
			before[i] = ref.Shard
		}
		if share := keys / spread; moved < share*3/4 || moved > share*5/4 {
			t.Errorf("spread %d: %d of %d keys moved, want about %d", spread, moved, keys, share)
		}
	}
}

// TestEachRejectionOfARouteHasItsCode is the table of what clients do wrong.
func TestEachRejectionOfARouteHasItsCode(t *testing.T) {
	t.Parallel()
	p := served(t, nil, func(c *ingest.Config) { c.MaxBody = 200_000 })
	big := strings.Repeat("x", 33<<10)
	long := strings.Repeat("q", 256)
	many := strings.Repeat("q,", 3) + strings.Join(slices.Collect(func(yield func(string) bool) {
		for i := range 65 {
			if !yield(fmt.Sprint("q", i)) {
				return
			}
		}
	}), ",")
	for _, c := range []struct {
		method, path, body string
		status             int
		code               wire.Code
		headers            []string
	}{
		{"POST", "/v1/mail/q?delay=5", "x", 400, "bad_delay", nil},
		{"POST", "/v1/mail/q?delay=-5s", "x", 400, "bad_delay", nil},
		{"POST", "/v1/mail/q?delay=", "x", 400, "bad_delay", nil},
		{"POST", "/v1/mail/q?delay=1200000h", "x", 400, "bad_delay", nil},
		{"POST", "/v1/mail/q?ttl=x", "x", 400, "bad_ttl", nil},
		{"POST", "/v1/mail/q?ttl=5s&delay=5s", "x", 400, "bad_ttl", nil},
		{"POST", "/v1/mail/q?tries=0", "x", 400, "bad_tries", nil},
		{"POST", "/v1/mail/q?tries=65536", "x", 400, "bad_tries", nil},
		{"POST", "/v1/mail/q?tries=%2b1", "x", 400, "bad_tries", nil},
		{"POST", "/v1/mail/q?tries=18446744073709551617", "x", 400, "bad_tries", nil},
		{"POST", "/v1/mail/q?id=", "x", 400, "bad_id", nil},
		{"POST", "/v1/mail/q?id=a.b", "x", 400, "bad_id", nil},
		{"POST", "/v1/mail/q?id=" + strings.Repeat("x", 65), "x", 400, "bad_id", nil},
		{"POST", "/v1/mail/q?id=a", "[1,2]", 400, "bad_id", []string{asJSON}},
		{"POST", "/v1/mail/q?shards=0", "x", 400, "bad_shards", nil},
		{"POST", "/v1/mail/q?shards=1001", "x", 400, "bad_shards", nil},
		{"POST", "/v1/mail/q?shards=2&id=a", "x", 400, "bad_shards", nil},
		{"POST", "/v1/mail/q?shards=2", "[1,2]", 400, "bad_shards", []string{asJSON}},
		{"POST", "/v1/mail/q?dedup=25h", "x", 400, "bad_dedup", []string{"Idempotency-Key: k"}},
		{"POST", "/v1/mail/q?dedup=1h", "x", 400, "bad_dedup", nil},
		{"POST", "/v1/mail/q?dealy=5s", "x", 400, "bad_parameter", nil},
		{"POST", "/v1/mail/q?delay=5s&delay=6s", "x", 400, "bad_parameter", nil},
		{"POST", "/v1/mail/q", "x", 400, "bad_header", []string{"Idempotency-Key: " + strings.Repeat("k", 129)}},
		{"POST", "/v1/mail/q", "", 400, "empty_body", nil},
		{"POST", "/v1/mail/q", "\n\n", 400, "empty_batch", []string{asNDJSON}},
		{"POST", "/v1/mail/q", "[]", 400, "empty_batch", []string{asJSON}},
		{"POST", "/v1/mail/q", "{", 400, "bad_json", []string{asJSON}},
		{"POST", "/v1/mail/q", big, 413, "entry_too_large", nil},
		{"POST", "/v1/mail/q", "1\n" + big, 413, "entry_too_large", []string{asNDJSON}},
		{"POST", "/v1/mail/q", strings.Repeat("1\n", 1001), 413, "too_many_entries", []string{asNDJSON}},
		{"POST", "/v1/mail/q", strings.Repeat("x", 200_001), 413, "body_too_large", nil},
		{"POST", "/v1/mail/q", "x", 415, "unsupported_encoding", []string{"Content-Encoding: br"}},

		{"POST", "/v1/mail/_q", "x", 400, "bad_queue", nil},
		{"POST", "/v1/mail/.q", "x", 400, "bad_queue", nil},
		{"POST", "/v1/mail/" + long, "x", 400, "bad_queue", nil},
		{"POST", "/v1/mail/q,r", "x", 400, "bad_queue", nil},
		{"POST", "/v1/mail/q,r/settle", "x", 400, "bad_queue", nil},
		{"POST", "/v1/mail/q,/claim", "", 400, "bad_queue", nil},
		{"POST", "/v1/mail/" + many + "/claim", "", 400, "bad_queue", nil},
		{"POST", "/v1/mail/q/claim?count=0", "", 400, "bad_count", nil},
		{"POST", "/v1/mail/q/claim?count=1001", "", 400, "bad_count", nil},
		{"POST", "/v1/mail/q/claim?ttr=0s", "", 400, "bad_ttr", nil},
		{"POST", "/v1/mail/q/take?ttr=60", "", 400, "bad_ttr", nil},
		{"POST", "/v1/mail/q/take?ttr=721h", "", 400, "bad_ttr", nil},
		{"POST", "/v1/mail/q/claim?wait=10m1s", "", 400, "bad_wait", nil},
		{"POST", "/v1/mail/q/claim?wait=-1s", "", 400, "bad_wait", nil},
		{"POST", "/v1/mail/q/claim?timeout=1s", "", 400, "bad_parameter", nil},

		{"POST", "/v1/mail/q/settle?x=1", "{}", 400, "bad_parameter", nil},
		{"POST", "/v1/mail/q/settle", "", 400, "empty_body", nil},
		{"POST", "/v1/mail/q/settle", "\n", 400, "empty_batch", nil},
		{"POST", "/v1/mail/q/settle", strings.Repeat("{}\n", 1001), 413, "too_many_entries", nil},

		{"DELETE", "/v1/mail/q", "", 400, "bad_state", nil},
		{"DELETE", "/v1/mail/q?state=dead", "", 400, "bad_state", nil},
		{"GET", "/v1/mail/q/forecast?step=1ms", "", 400, "bad_step", nil},
		{"GET", "/v1/mail/q/forecast?steps=1001", "", 400, "bad_steps", nil},
		{"GET", "/v1/mail/q/dead?limit=0", "", 400, "bad_limit", nil},
		{"GET", "/v1/mail/q/dead?limit=101", "", 400, "bad_limit", nil},
		{"GET", "/v1/mail/q/dead?offset=-1", "", 400, "bad_offset", nil},
		{"GET", "/v1/mail/q/dead?offset=1000000001", "", 400, "bad_offset", nil},
		{"GET", "/v1/mail/q/dead?do=respawn", "", 400, "bad_parameter", nil},
		{"POST", "/v1/mail/q/dead", "", 400, "bad_do", nil},
		{"POST", "/v1/mail/q/dead?do=burn", "", 400, "bad_do", nil},
		{"POST", "/v1/mail/q/dead?do=delete&limit=0", "", 400, "bad_limit", nil},
		{"POST", "/v1/mail/q/dead?do=delete&limit=10001", "", 400, "bad_limit", nil},
		{"POST", "/v1/mail/q/dead?do=respawn&ttl=-1s", "", 400, "bad_ttl", nil},
		{"POST", "/v1/mail/q/dead?do=delete&ttl=1s", "", 400, "bad_ttl", nil},
		{"GET", "/v1/mail/q/peek", "", 404, "no_such_job", nil},
		{"GET", "/v1/mail/q/jobs/x", "", 404, "no_such_job", nil},
		{"DELETE", "/v1/mail/q/jobs/00000000000000000000000000", "", 404, "no_such_job", nil},

		{"GET", "/v1/mail/q/claim", "", 405, "method_not_allowed", nil},
		{"PUT", "/v1/mail/q", "", 405, "method_not_allowed", nil},
		{"POST", "/v1/mail", "x", 404, "no_such_route", nil},
		{"POST", "/v1/mail/", "x", 404, "no_such_route", nil},
		{"POST", "/v1/mail/q/", "x", 404, "no_such_route", nil},
		{"POST", "/v1/mail/q", "x", 200, "", nil},
		{"GET", "/v1/mail/q/", "", 404, "no_such_route", nil},
		{"DELETE", "/v1/mail/q/?state=all", "", 404, "no_such_route", nil},
		{"GET", "/v1/mail/q/jobs/", "", 404, "no_such_route", nil},
		{"GET", "/v1/mail/q/jobs/a/b", "", 404, "no_such_route", nil},
		{"POST", "/v1/nobody/q", "x", 404, "no_such_namespace", nil},
	} {
		r := p.do(c.method, c.path, c.body, c.headers...)
		if r.status != c.status || r.Error != string(c.code) {
			t.Errorf("%s %.80s %.20q: got %d %.300s, want %d %s", c.method, c.path, c.body, r.status, r.raw, c.status, c.code)
		}
		if r.status >= 400 && p.metric("refusals_total", r.Error) == 0 {
			t.Errorf("%s is not counted", r.Error)
		}
	}
	if r := p.do("PUT", "/v1/mail/q/jobs/x", ""); r.header.Get("Allow") != "GET, HEAD, DELETE, OPTIONS" {
		t.Errorf("Allow: %q", r.header.Get("Allow"))
	}
	if runs, _ := p.store.ran(); runs != 1 {
		t.Errorf("the store was asked %d times", runs)
	}
}

func TestErrorsOfTheStoreAreAnswered(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	id := p.do("POST", "/v1/mail/q", "x").IDs[0]
	routes := []struct{ method, path, body string }{
		{"POST", "/v1/mail/q", "x"}, {"POST", "/v1/mail/q/claim", ""}, {"POST", "/v1/mail/q/claim?wait=10ms", ""}, {"POST", "/v1/mail/q/settle", `{"id":"` + id + `","do":"nack"}`},
		{"POST", "/v1/mail/q/settle", `{"id":"` + id + `","do":"ack"}`}, {"DELETE", "/v1/mail/q/jobs/" + id, ""},
		{"GET", "/v1/mail/q", ""}, {"GET", "/v1/mail/q/peek", ""}, {"GET", "/v1/mail/q/forecast", ""}, {"GET", "/v1/mail/q/dead", ""}, {"GET", "/v1/mail/q/jobs/" + id, ""},
		{"DELETE", "/v1/mail/q?state=all", ""}, {"POST", "/v1/mail/q/dead?do=respawn", ""}, {"POST", "/v1/mail/q/dead?do=delete", ""},
	}
	for _, c := range []struct {
		err     error
		status  int
		code    string
		unknown bool
	}{
		{partition.ErrUnavailable, 503, "store_unavailable", false},
		{partition.ErrFull, 503, "store_full", false},
		{partition.ErrBroken, 503, "store_unavailable", false},
		{partition.ErrUnknown, 503, "store_unavailable", true},
		{fmt.Errorf("a slow replica: %w", partition.ErrUnconfirmed), 503, "store_unavailable", true},
		{job.ErrTooManyJobs, 429, "too_many_jobs", false},
		{job.ErrTooManyQueues, 429, "too_many_queues", false},
		{job.ErrBadArgument, 500, "internal", false},
	} {
		p.store.with(func() {
			p.store.fail = func(*job.Batch) error { return c.err }
			p.store.readErr = c.err
		})
		for _, route := range routes {
			r := p.do(route.method, route.path, route.body)
			want := c.unknown && (route.method != "GET" || c.err != partition.ErrUnknown)
			if r.status != c.status || r.Error != c.code || (r.Outcome == "unknown") != want {
				t.Errorf("%v, %s %s: got %d %s", c.err, route.method, route.path, r.status, r.raw)
			}
			if retry := r.header.Get("Retry-After"); (retry == "") != (c.status == 500) {
				t.Errorf("%v: Retry-After %q", c.err, retry)
			}
		}
	}
}

func TestDeadLettersAreListed(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	if r := p.do("GET", "/v1/mail/q/dead", ""); r.status != 200 || r.raw != `{"total":0,"jobs":[]}`+"\n" {
		t.Errorf("none: got %d %s", r.status, r.raw)
	}
	p.store.with(func() {
		for i := range 30 {
			p.store.dead = append(p.store.dead, job.Job{Queue: "q", ID: fmt.Sprint("id", i), Tries: 3, Attempt: 3, Reason: job.Lapsed, Published: 5, At: int64(100 + i), Payload: []byte(fmt.Sprint(i))})
		}
	})
	first := `{"queue":"q","id":"id7","attempt":3,"tries":3,"published_ms":5,"data":"Nw==","state":"dead","reason":"lapsed","died_ms":107}`
	if r := p.do("GET", "/v1/mail/q/dead?offset=7&limit=1", ""); r.status != 200 || r.raw != `{"total":30,"jobs":[`+first+"]}\n" {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	if r := p.do("GET", "/v1/mail/q/dead", ""); len(r.Jobs) != 20 || r.Jobs[19].ID != "id19" {
		t.Errorf("got %d jobs: %s", len(r.Jobs), r.raw)
	}
	if r := p.do("HEAD", "/v1/mail/q/dead", ""); r.status != 200 || r.raw != "" {
		t.Errorf("HEAD: got %d %s", r.status, r.raw)
	}
	if r := p.do("PUT", "/v1/mail/q/dead", ""); r.status != 405 || r.header.Get("Allow") != "POST, GET, HEAD, OPTIONS" {
		t.Errorf("PUT: got %d, Allow %q", r.status, r.header.Get("Allow"))
	}
	p.store.with(func() { p.store.dead[0].Payload = make([]byte, 60<<20) })
	if r := p.do("GET", "/v1/mail/q/dead", ""); r.status != 503 || r.Error != "overloaded" {
		t.Errorf("more than memory has room for: got %d %.200s", r.status, r.raw)
	}
}

func TestAForecastEndsWithTheLastStepThatHasJobs(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	for due, want := range map[string][]int64{"": nil, "0,3": {0, 3}, "1": {1, 0, 0}} {
		p.store.with(func() { p.store.due = want })
		if r := p.do("GET", "/v1/mail/q/forecast", ""); r.status != 200 || r.raw != `{"step_ms":600000,"due":[`+due+"]}\n" {
			t.Errorf("%v: got %d %s", want, r.status, r.raw)
		}
	}
}

func TestSettleAnswersEachLine(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	p.do("POST", "/v1/mail/q", "[1,2,3,4,5,6]", asJSON)
	jobs := p.do("POST", "/v1/mail/q/claim?count=5", "").Jobs
	other := p.do("POST", "/v1/mail/r", "x").IDs[0]
	ready := p.do("GET", "/v1/mail/q/peek", "")
	var next struct{ ID string }
	if err := json.Unmarshal([]byte(ready.raw), &next); err != nil || ready.State != "ready" {
		t.Fatalf("%s: %v", ready.raw, err)
	}
	var body bytes.Buffer
	var want []string
	line := func(result, format string, args ...any) {
		fmt.Fprintf(&body, format+"\n", args...)
		want = append(want, result)
	}
	line("acked", `{"id":%q,"attempt":1,"do":"ack"}`, jobs[0].ID)
	line("ready", `{"id":%q,"attempt":1,"do":"nack","ms":0}`, jobs[1].ID)
	line("dead", `{"id":%q,"attempt":1,"do":"bury"}`, jobs[2].ID)
	line("leased", `{"id":%q,"attempt":1,"do":"touch","ms":5000}`, jobs[3].ID)
	line("ready", `{"id":%q,"do":"requeue"}`, jobs[4].ID)
	line("gone", `{"id":%q,"attempt":2,"do":"nack"}`, jobs[3].ID)
	line("dead", `{"id":%q,"do":"kill"}`, jobs[3].ID)
	line("gone", `{"id":%q,"do":"ack"}`, other) // of another queue
	line("gone", `{"id":"x\"y","do":"nack"}`)
	line("deleted", `{"id":%q,"do":"ack"}`, next.ID)
	for _, wrong := range []string{
		`{"id":"x"}`, `{"id":"x","do":"eat"}`, `{`, `[]`, `{"id":"x","do":"ack"}{}`, `{"id":"x","do":"ack","attempt":-1}`, `{"id":"x","do":"ack","attempt":65536}`,
		`{"id":"x","do":"ack","attempt":1.5}`, `{"id":"x","do":"nack","ms":-1}`, `{"id":"x","do":"nack","ms":2592000001}`, `{"id":"x","do":"nack","ms":99999999999999999999}`,
		`{"id":"x","do":"ack","ms":1}`, `{"id":"x","do":"touch"}`, `{"id":"x","do":"ack","when":1}`, `{"id":7,"do":"ack"}`,
	} {
		line("bad_item", "%s", wrong)
	}
	r := p.do("POST", "/v1/mail/q/settle", body.String())
	if r.status != 200 || len(r.Results) != len(want) {
		t.Fatalf("got %d %s", r.status, r.raw)
	}
	for i, x := range r.Results {
		if x.I != i || x.State+x.Error != want[i] || (x.Error != "") != (x.Message != "") {
			t.Errorf("line %d, %s: got %+v, want %s", i, strings.Split(body.String(), "\n")[i], x, want[i])
		}
	}
}

func TestJobsAreReadAndDeleted(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	p.store.counts = job.Counts{Ready: 3, Delayed: -1, Leased: -1, Pending: 5, Dead: 2, OldestReady: 4000}
	id := p.do("POST", "/v1/mail/q?id=mine", "\xffx").IDs[0]
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/v1/mail/q", `{"namespace":"mail","queue":"q","ready":3,"pending":5,"dead":2,"oldest_age_ms":1000}`},
		{"GET", "/v1/mail/q/jobs/" + id, `{"queue":"q","id":"` + id + `","attempt":0,"tries":3,"published_ms":1000,"data":"/3g=","state":"ready"}`},
		{"GET", "/v1/mail/q/peek", `{"queue":"q","id":"` + id + `","attempt":0,"tries":3,"published_ms":1000,"data":"/3g=","state":"ready"}`},
		{"GET", "/v1/mail/q/forecast?step=1h&steps=3", `{"step_ms":3600000,"due":[]}`},
		{"DELETE", "/v1/mail/q/jobs/" + id, `{"state":"deleted"}`},
		{"DELETE", "/v1/mail/q/jobs/" + id, ``},
		{"DELETE", "/v1/mail/q?state=ready", `{"deleted":1}`},
		{"DELETE", "/v1/mail/q?state=all", `{"deleted":9}`},
		{"POST", "/v1/mail/q/dead?do=respawn&limit=7&ttl=1h", `{"respawned":7}`},
		{"POST", "/v1/mail/q/dead?do=delete", `{"deleted":100}`},
	} {
		r := p.do(c.method, c.path, "")
		if want := c.want + "\n"; c.want != "" && r.raw != want || c.want == "" && r.status != 404 {
			t.Errorf("%s %s: got %d %s, want %s", c.method, c.path, r.status, r.raw, want)
		}
	}
	if r := p.do("HEAD", "/v1/mail/q", ""); r.status != 200 || r.raw != "" {
		t.Errorf("HEAD: %d %q", r.status, r.raw)
	}
	if p.metric("requests_total", "200", "purge") != 2 || p.metric("requests_total", "404", "delete_job") != 1 {
		t.Error("requests are not counted by route")
	}
}

// How often a buried job was claimed is not known, and so not said.
func TestADeadJobSaysWhyItDied(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	p.do("POST", "/v1/mail/q", "x")
	j := p.do("POST", "/v1/mail/q/claim", "").Jobs[0]
	p.do("POST", "/v1/mail/q/settle", `{"id":"`+j.ID+`","do":"bury"}`)
	want := `{"queue":"q","id":"` + j.ID + `","tries":3,"published_ms":1000,"data":"eA==","state":"dead","reason":"buried"}` + "\n"
	if r := p.do("GET", "/v1/mail/q/jobs/"+j.ID, ""); r.raw != want {
		t.Errorf("got %s, want %s", r.raw, want)
	}
}

func TestTokensOfAQueueNamespace(t *testing.T) {
	t.Parallel()
	two := map[string]job.Policy{"mail": job.DefaultPolicy(), "sms": job.DefaultPolicy()}
	of := func(text string) ingest.Token { return ingest.Token{Hash: sha256.Sum256([]byte(text)), Name: text} }
	p := served(t, two, func(c *ingest.Config) {
		c.Tokens = map[string][]ingest.Token{"mail": {of("m")}, "sms": {of("s")}}
	})
	for _, c := range []struct {
		path, token string
		status      int
	}{
		{"/v1/mail/q", "", 401}, {"/v1/mail/q", "x", 401}, {"/v1/mail/q", "s", 403}, {"/v1/mail/q/claim", "s", 403}, {"/v1/nobody/q", "s", 403},
		{"/v1/mail/q?delay=x", "s", 403}, {"/v1/mail/q", "m", 200}, {"/v1/sms/q", "m", 403}, {"/v1/sms/q", "s", 200},
	} {
		r := p.do("POST", c.path, "x", "Authorization: Bearer "+c.token)
		if r.status != c.status {
			t.Errorf("%s with %q: got %d %s, want %d", c.path, c.token, r.status, r.raw, c.status)
		}
	}
	if r := p.do("OPTIONS", "/v1/mail/q", ""); r.status != 204 || r.header.Get("Allow") != "POST, GET, HEAD, DELETE, OPTIONS" {
		t.Errorf("OPTIONS: %d %q", r.status, r.header.Get("Allow"))
	}
}

func TestRatesOfATokenCountJobs(t *testing.T) {
	t.Parallel()
	store, err := backend.Open(backend.Config{URL: "embedded:"}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	c := control.Open("sw", prometheus.NewRegistry(), zap.NewNop())
	c.Use(control.File{}, control.Pools{control.DefaultPool: store})
	hash, rate := control.HashToken("one"), control.Rate{Count: 10, Per: time.Hour}
	if err := c.CreateTokenIn(t.Context(), control.Namespace{Name: "mail", Policy: job.DefaultPolicy()}, control.Token{Hash: hash, Name: "crm", Produce: rate, Consume: rate}); err != nil {
		t.Fatal(err)
	}
	p := served(t, nil, func(cfg *ingest.Config) {
		cfg.Tokens["mail"] = []ingest.Token{{Hash: hash, Name: "crm", Limiters: c.Snapshot().Token("mail", hash).Limiters}}
	})
	post := func(path, body string, want int) *reply {
		t.Helper()
		r := p.do("POST", path, body, asJSON, "Authorization: Bearer one")
		if r.status != want {
			t.Errorf("%s: got %d %s, want %d", path, r.status, r.raw, want)
		}
		return r
	}
	post("/v1/mail/q", "[1,2,3,4,5,6]", 200)
	post("/v1/mail/q", "[1,2,3,4,5]", 429)
	p.store.with(func() { p.store.fail = func(*job.Batch) error { return errAway } })
	post("/v1/mail/q", "[1,2,3,4]", 503)
	p.store.with(func() { p.store.fail = nil })
	post("/v1/mail/q", "[1,2,3,4]", 200) // what was not stored does not count
	for range 20 {
		post("/v1/mail/none/claim?count=1000", "", 200) // what is not there does not count
	}
	post("/v1/mail/q/claim?count=8", "", 200)
	more := &job.Publish{Namespace: p.store.Namespace("mail"), Queue: "q", Tries: 1, Messages: make([]job.Message, 3)}
	if p.engine.Publish(more); more.Err != nil {
		t.Fatal(more.Err)
	}
	if r := post("/v1/mail/q/claim?count=9", "", 200); len(r.Jobs) != 1 { // five are there, and two are left of the rate
		t.Errorf("got %s", r.raw)
	}
	p.engine.returns.Wait()
	post("/v1/mail/q/claim", "", 200)
	p.do("POST", "/v1/mail/q/claim", "") // without the token
	post("/v1/mail/q/claim", "", 429)
	if _, leased := p.store.ready("q"); leased != 10 {
		t.Errorf("%d jobs are leased, want 10", leased)
	}
}

func TestJobsBeyondARateGoBack(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	p.do("POST", "/v1/mail/q", "[1,2]", asJSON)
	jobs, err := p.engine.Claim(&Claim{Namespace: p.store.Namespace("mail"), Queues: []string{"q"}, Count: 2, TTR: time.Hour})
	if err != nil || len(jobs) != 2 {
		t.Fatal(jobs, err)
	}
	p.engine.GiveBack(p.store.Namespace("mail"), jobs)
	p.engine.returns.Wait()
	if r := p.do("POST", "/v1/mail/q/claim?count=2", ""); r.data() != "1 2" || r.Jobs[0].Attempt != 1 {
		t.Errorf("got %s", r.raw)
	}
}

func TestAPollIsRefusedWhereNoMemoryIsLeft(t *testing.T) {
	t.Parallel()
	p := served(t, nil, func(c *ingest.Config) {
		c.MaxBody, c.MaxDecompressed, c.MaxEntry = 1000, 1000, 1000
		c.MaxInflightBytes = 1<<20 + 4000 // about 400 polls
	})
	polls := 0
	for {
		r := p.hold("POST /v1/mail/q/claim?wait=10m HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		if polls++; polls%50 > 0 {
			continue
		}
		_ = r.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		resp, err := http.ReadResponse(bufio.NewReader(r), nil)
		if err != nil {
			continue // it waits
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 503 || !strings.Contains(string(body), "overloaded") || resp.Header.Get("Retry-After") == "" {
			t.Errorf("poll %d: got %d %s", polls, resp.StatusCode, body)
		}
		break
	}
	if polls < 200 || polls > 600 {
		t.Errorf("%d polls were taken", polls)
	}
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

func TestTheOpenAPIDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Parameters stand beside the methods of a path, and are a list.
	text = regexp.MustCompile(`(?m)^    parameters:\n(      - .*\n)+`).ReplaceAll(text, nil)
	var d struct {
		Paths map[string]map[string]struct {
			OperationID string `yaml:"operationId"`
			Tags        []string
		}
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for path, methods := range d.Paths {
		for method, operation := range methods {
			if slices.Contains(operation.Tags, "queues") {
				got = append(got, strings.ToUpper(method)+" "+path+" "+operation.OperationID)
			}
		}
	}
	for _, r := range routes {
		path := "/v1/{namespace}/{queue}/" + r.tail
		switch r.name {
		case "publish", "counts":
			continue // in those of a partition, whose path is the same
		case "purge":
			path = "/v1/{namespace}/{partition}"
		case "claim", "take":
			path = "/v1/{namespace}/{queues}/" + r.tail
		}
		want = append(want, r.method+" "+path+" "+r.name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the document has\n%s\nand the engine\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
