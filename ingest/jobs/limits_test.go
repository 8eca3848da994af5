package jobs

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

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
	store := backendtest.Open(t, backend.Config{URL: "embedded:"})
	c := control.Open("sw", prometheus.NewRegistry(), zap.NewNop())
	c.Use(control.File{}, control.Pools{control.DefaultPool: store})
	hash, rate := control.HashToken("one"), partition.Rate{Count: 10, Per: time.Hour}
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
	p.store.With(func() { p.store.Fail = func(*job.Batch) error { return errAway } })
	post("/v1/mail/q", "[1,2,3,4]", 503)
	p.store.With(func() { p.store.Fail = nil })
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

// A token publishes no faster by schedules than by itself: not by many of them, not by their follow-ups, and not by
// putting them anew when they are due.
func TestTheRateOfATokenHoldsForWhatItsSchedulesPublish(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	c := control.Open("sw", prometheus.NewRegistry(), zap.NewNop())
	c.Use(control.File{Volatile: []string{control.DefaultPool}}, control.Pools{control.DefaultPool: backendtest.Open(t, backend.Config{URL: url})})
	hash := control.HashToken("one")
	token := control.Token{Hash: hash, Name: "crm", Produce: partition.Rate{Count: 20, Per: time.Hour}}
	if err := c.CreateTokenIn(t.Context(), control.Namespace{Name: "mail", Policy: job.DefaultPolicy()}, token); err != nil {
		t.Fatal(err)
	}
	p := startLimited(t, url, job.DefaultPolicy(), c.TakeRate, func(cfg *ingest.Config) {
		cfg.Tokens["mail"] = []ingest.Token{{Hash: hash, Name: "crm", Limiters: c.Snapshot().Token("mail", hash).Limiters}}
	})
	p.fire()
	const by = "Authorization: Bearer one"
	put := func(name, spec string, status int, part string) {
		p.expect(status, part, "PUT", "reports/schedules/"+name, spec, by)
	}
	put("never", `{"every":"1s","shards":11,"on_end":"ends"}`, 413, "too_many_entries")
	for i := range 5 {
		put(fmt.Sprint(i), `{"every":"1s","missed":"all","shards":3,"by":"nobody"}`, 201, "created")
	}
	published := func() int64 {
		l, err := p.store.Ledger(t.Context(), p.store.Namespace("mail"))
		if err != nil {
			t.Error(err)
		}
		return l.Published
	}
	eventually(t, "the rate has no room for a run", func() bool { return published() == 18 })
	for i := range 5 {
		eventually(t, "a tick is due", func() bool {
			next, err := time.Parse(time.RFC3339, p.schedule(fmt.Sprint(i), by).Next[0])
			return err == nil && time.Since(next) > time.Second
		})
		put(fmt.Sprint(i), `{"every":"2s","missed":"all","shards":3}`, 200, "replaced")
	}
	if n := published(); n != 18 {
		t.Errorf("%d jobs were published, want 18", n)
	}
	held := &port{t: t, reg: p.stored}
	if n := held.metric("jobs_claims_held_total", "token"); n < 5 {
		t.Errorf("%v runs were held, want 5 at least", n)
	}
	operators, err := schedule.Parse([]byte(`{"every":"3s"}`))
	if err != nil {
		t.Fatal(err)
	}
	ns := p.store.Namespace("mail")
	if _, err := schedule.Put(t.Context(), p.store, ns, "reports", "0", operators, 0); err != nil {
		t.Fatal(err)
	}
	if kept, err := p.store.GetSchedule(t.Context(), ns, "reports", "0"); err != nil || !strings.Contains(string(kept.Spec), `"by":"crm"`) {
		t.Errorf("%v: an operator's put lifts the rate: %s", err, kept.Spec)
	}
	p.expect(200, `"accepted":1`, "POST", "q?on_end=ends", "x", by) // and its follow-up
	p.expect(429, "rate_limited", "POST", "q", "x", by)
}

func TestLmstfysLimitsHoldForNativeRoutes(t *testing.T) {
	t.Parallel()
	store := backendtest.Open(t, backend.Config{URL: "embedded:"})
	c := control.Open("sw", prometheus.NewRegistry(), zap.NewNop())
	c.Use(control.File{}, control.Pools{control.DefaultPool: store})
	hash := control.HashToken("one")
	made := control.Token{Hash: hash, Name: "crm", Text: "one", Limit: &control.Limit{Read: 1, Write: 2, Interval: 86400}}
	if err := c.CreateTokenIn(t.Context(), control.Namespace{Name: "mail", Policy: job.DefaultPolicy()}, made); err != nil {
		t.Fatal(err)
	}
	p := served(t, nil, func(cfg *ingest.Config) {
		cfg.Tokens["mail"] = []ingest.Token{{Hash: hash, Name: "crm", Limiters: c.Snapshot().Token("mail", hash).Limiters}}
	})
	for i, step := range []struct {
		path string
		want int
	}{
		{"/v1/mail/q?tries=x", 400}, {"/v1/mail/q", 200}, {"/v1/mail/q", 200}, {"/v1/mail/q", 429},
		{"/v1/mail/none/claim", 200}, {"/v1/mail/none/take", 200}, {"/v1/mail/q/claim", 200}, {"/v1/mail/q/claim", 429}, {"/v1/mail/q/take", 429},
	} {
		if r := p.do("POST", step.path, "x", "Authorization: Bearer one"); r.status != step.want {
			t.Errorf("%d %s: got %d %s, want %d", i, step.path, r.status, r.raw, step.want)
		}
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

func TestAPollIsRejectedWhereNoMemoryIsLeft(t *testing.T) {
	t.Parallel()
	p := served(t, nil, func(c *ingest.Config) {
		c.MaxBody, c.MaxDecompressed, c.MaxEntry = 1000, 1000, 1000
		c.MaxInflightBytes = 1<<20 + 4000 // about 400 polls
	})
	rejected := func() float64 { return p.metric("rejections_total", "overloaded") }
	polls := 0
	for ; rejected() == 0 && polls < 600; polls += 50 {
		for range 50 {
			p.hold("POST /v1/mail/q/claim?wait=10m HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		}
		eventually(t, "each waits, or is rejected", func() bool { return p.polls()+int(rejected()) == polls+50 })
	}
	if n := p.polls(); n < 200 || n > 600 {
		t.Errorf("%d polls were taken", n)
	}
	if r := p.do("POST", "/v1/mail/q/claim?wait=10m", ""); r.status != 503 || r.Error != "overloaded" || r.header.Get("Retry-After") == "" {
		t.Errorf("one more: got %d %s", r.status, r.raw)
	}
}

func TestIdleClaimsOfATenantLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	two := map[string]job.Policy{"mail": job.DefaultPolicy(), "sms": job.DefaultPolicy()}
	p := served(t, two, func(c *ingest.Config) { c.MaxConns = 20 })
	idle := "POST /v1/mail/q/claim?wait=10m HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
	const share = 16 // four times what is left
	var first net.Conn
	for i := range share {
		if c := p.hold(idle); i == 0 {
			first = c
		}
		eventually(t, "it waits", func() bool { return p.polls() == i+1 })
	}
	if r := p.do("POST", "/v1/mail/q/claim?wait=10m", ""); r.status != 503 || r.Error != "overloaded" || r.header.Get("Retry-After") == "" {
		t.Errorf("one more: got %d %s", r.status, r.raw)
	}
	if r := p.do("POST", "/v1/sms/q", "x"); r.status != 200 {
		t.Errorf("another tenant publishes: got %d %s", r.status, r.raw)
	}
	if r := p.do("POST", "/v1/sms/q/claim?wait=1m", ""); r.status != 200 || len(r.Jobs) != 1 {
		t.Errorf("another tenant claims: got %d %s", r.status, r.raw)
	}
	if n := p.metric("waiting_connections"); n != share {
		t.Errorf("%v connections wait, want %d", n, share)
	}
	_ = first.Close()
	eventually(t, "it ended", func() bool { return p.polls() == share-1 })
	p.hold(idle)
	eventually(t, "the place is free", func() bool { return p.polls() == share })
}

func TestIdleClaimsOfATenantLeaveMemoryToOthers(t *testing.T) {
	t.Parallel()
	two := map[string]job.Policy{"mail": job.DefaultPolicy(), "sms": job.DefaultPolicy()}
	p := served(t, two, func(c *ingest.Config) {
		c.MaxBody, c.MaxDecompressed, c.MaxEntry = 1000, 1000, 1000
		c.MaxInflightBytes = 2 << 20
	})
	queues := make([]string, job.MaxQueues)
	for i := range queues {
		queues[i] = fmt.Sprint("q", i)
	}
	path := "/v1/mail/" + strings.Join(queues, ",") + "/claim?wait=10m"
	rejected := func() float64 { return p.metric("rejections_total", "overloaded") }
	for held := 25; rejected() == 0; held += 25 {
		for range 25 {
			p.hold("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		}
		if held > 500 {
			t.Fatal("none was rejected")
		}
		eventually(t, "each waits, or is rejected", func() bool { return p.polls()+int(rejected()) == held })
	}
	before := rejected()
	if p.polls() < 100 {
		t.Errorf("only %d claims wait in 2 MiB", p.polls())
	}
	if r := p.do("POST", path, ""); r.status != 503 || r.Error != "overloaded" || rejected() != before+1 {
		t.Errorf("one more: got %d %s, and %v are counted", r.status, r.raw, rejected())
	}
	for range 50 {
		if r := p.do("POST", "/v1/sms/q", "x"); r.status != 200 {
			t.Fatalf("another tenant publishes: got %d %s", r.status, r.raw)
		}
		if r := p.do("POST", "/v1/sms/q/claim?wait=1m", ""); r.status != 200 || len(r.Jobs) != 1 {
			t.Fatalf("another tenant claims: got %d %s", r.status, r.raw)
		}
	}
}

// A claim that waits for a slot of one process gets the job when another process frees it.
func TestAPollHearsOfASlotThatAnotherProcessFrees(t *testing.T) {
	t.Parallel()
	at, policy := redistest.Start(t).URL(), job.DefaultPolicy()
	policy.Rules = []job.Rule{{Match: "*", Concurrency: 1}}
	a, b := startProcess(t, at, policy, nil), startProcess(t, at, policy, nil)
	const jobs = 20
	ids := a.do("POST", "/v1/mail/q", strings.Repeat("1\n", jobs), "Content-Type: application/x-ndjson").IDs
	a.do("POST", "/v1/mail/q/claim", "")
	for i, id := range ids[:jobs-1] {
		next := make(chan *reply, 1)
		go func() { next <- b.do("POST", "/v1/mail/q/claim?wait=60s&count=5", "") }()
		verb := []string{"ack", "bury"}[i%2]
		if r := a.do("POST", "/v1/mail/q/settle", `{"id":"`+id+`","do":"`+verb+`"}`); r.status != 200 {
			t.Fatalf("%s: got %d %s", verb, r.status, r.raw)
		}
		if r := <-next; strings.Count(r.raw, `"id"`) != 1 || !strings.Contains(r.raw, ids[i+1]) {
			t.Fatalf("job %d: got %s", i+1, r.raw)
		}
	}
}

// A rule that becomes looser at run time has the claims ask again that wait.
func TestAPollHearsOfAHigherLimit(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Rules = []job.Rule{{Match: "*", Concurrency: 1}}
	p := startProcess(t, redistest.Start(t).URL(), policy, nil)
	p.do("POST", "/v1/mail/q", "1\n2\n", "Content-Type: application/x-ndjson")
	p.do("POST", "/v1/mail/q/claim", "")
	next := make(chan *reply, 1)
	go func() { next <- p.do("POST", "/v1/mail/q/claim?wait=60s", "") }()
	e := p.engine
	redistest.Until(t, 20*time.Second, "the claim waits", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.polls) == 1
	})
	policy.Rules = []job.Rule{{Match: "*", Concurrency: 2}}
	if err := p.store.SetNamespaces(t.Context(), map[string]job.Policy{"mail": policy}); err != nil {
		t.Fatal(err)
	}
	e.Refresh()
	if r := <-next; !strings.Contains(r.raw, `"data":"Mg=="`) {
		t.Errorf("got %d %s", r.status, r.raw)
	}
}

func TestAPublishGivesItsJobsAttributes(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	p.do("POST", "/v1/mail/q?attribute.tenant=red&attribute.plan="+url.QueryEscape(`"a"/ü`), "[1,2]", asJSON)
	p.do("POST", "/v1/mail/q?attribute.tenant=red&shards=2", "x")
	r := p.do("POST", "/v1/mail/q/claim?count=4", "")
	var answer struct {
		Jobs []struct{ Attributes map[string]string }
	}
	if err := json.Unmarshal([]byte(r.raw), &answer); err != nil || len(answer.Jobs) != 4 {
		t.Fatalf("got %s", r.raw)
	}
	plain := "map[plan:\"a\"/ü tenant:red]"
	for i, want := range []string{plain, plain, "map[shard_index:0 shard_total:2 tenant:red]", "map[shard_index:1 shard_total:2 tenant:red]"} {
		if got := fmt.Sprint(answer.Jobs[i].Attributes); got != want {
			t.Errorf("job %d: got %s, want %s", i, got, want)
		}
	}
	many := ""
	for i := range 17 {
		many += fmt.Sprintf("&attribute.a%d=x", i)
	}
	for query, want := range map[string]string{
		"attribute.=x": "bad_parameter", "attribute.a%20b=x": "bad_parameter", "attribute." + strings.Repeat("x", 129) + "=": "bad_parameter",
		"attribute.tick=1": "bad_parameter", "attribute.sqs=1": "bad_parameter", "attribute.a=1&attribute.a=1": "bad_parameter",
		"attribute.a=%ff": "bad_parameter", many[1:]: "bad_parameter", "attribute.a=" + strings.Repeat("x", 4000): "", "attribute.%c3%bc=1": "bad_parameter",
	} {
		if r := p.do("POST", "/v1/mail/q?"+query, "x"); r.Error != want {
			t.Errorf("%.40s: got %d %s", query, r.status, r.raw)
		}
	}
	if r := p.do("POST", "/v1/mail/q?attribute.a=1", strings.Repeat("x", 32<<10)); r.Error != "entry_too_large" {
		t.Errorf("with its attributes it is too large: got %d %s", r.status, r.raw)
	}
}

func TestWeightsDrawTheOrderOfQueues(t *testing.T) {
	t.Parallel()
	first := map[string]int{}
	for range 6000 {
		queues, rejected := wanted("a*3,b,c*2,a")
		if rejected != nil || len(queues) != 3 {
			t.Fatalf("got %v, %v", queues, rejected)
		}
		first[queues[0]]++
		if slices.Sort(queues); fmt.Sprint(queues) != "[a b c]" {
			t.Fatalf("got %v", queues)
		}
	}
	// Each is off by 5 standard deviations at most.
	for queue, want := range map[string]int{"a": 3000, "b": 1000, "c": 2000} {
		if n := first[queue]; n < want-195 || n > want+195 {
			t.Errorf("%s was first %d times of 6,000, want %d", queue, n, want)
		}
	}
	if queues, _ := wanted("b,a"); fmt.Sprint(queues) != "[b a]" {
		t.Errorf("without weights: %v", queues)
	}
	p := served(t, nil, nil)
	p.do("POST", "/v1/mail/b", "x")
	if r := p.do("POST", "/v1/mail/a*1000,b*1/claim", ""); r.status != 200 || !strings.Contains(r.raw, `"queue":"b"`) {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	for _, queues := range []string{"a*0", "a*1001", "a*", "a*-1", "a*+1", "a*1*2", "*5", "a*1.5", "a*99999999999999999999"} {
		if r := p.do("POST", "/v1/mail/"+queues+"/claim", ""); r.status != 400 || r.Error != "bad_queue" {
			t.Errorf("%s: got %d %s", queues, r.status, r.raw)
		}
	}
}
