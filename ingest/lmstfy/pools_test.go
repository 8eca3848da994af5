package lmstfy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
)

// openPool opens an engine and a store on a redis-server of their own.
func openPool(t testing.TB, name string, namespaces map[string]job.Policy) (Pool, *redistest.Server) {
	t.Helper()
	redis := redistest.Start(t, "--appendonly", "yes")
	b := backendtest.Open(t, backend.Config{URL: redis.URL()})
	store, err := job.Open(job.Config{Prefix: "sw", Namespaces: namespaces}, b, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	engine, err := jobs.New(jobs.DefaultConfig(), store, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	promoter := job.NewPromoter(store)
	for _, start := range []func(context.Context) error{promoter.Start, engine.Start} {
		if err := start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = engine.Stop(ctx) // the test may have killed Redis
		_ = promoter.Stop(ctx)
	})
	return Pool{name, engine, store}, redis
}

// listenPools starts a data port over two real pools: ns and other in the default one, with
// ns over two shards, and quick in the pool fast.
func listenPools(t testing.TB) (*port, *redistest.Server) {
	spread := job.DefaultPolicy()
	spread.Shards, spread.Spread = 2, map[string]int{"spread": 2}
	first, redis := openPool(t, DefaultPool, map[string]job.Policy{"ns": spread, "other": job.DefaultPolicy(), "open": job.DefaultPolicy()})
	second, _ := openPool(t, "fast", map[string]job.Policy{"quick": job.DefaultPolicy()})
	return listen(t, func(c *Config, _ *ingest.Config) { c.Pools = Pools{second, first} }), redis
}

func TestAPausedQueueIsAnEmptyOne(t *testing.T) {
	t.Parallel()
	pool, _ := openPool(t, DefaultPool, map[string]job.Policy{"ns": job.DefaultPolicy()})
	p := listen(t, func(c *Config, _ *ingest.Config) { c.Pools = Pools{pool} })
	store := pool.Store.(*job.Store)
	if err := store.Pause(t.Context(), store.Namespace("ns"), "q", partition.Pause{}); err != nil {
		t.Fatal(err)
	}
	p.play([]step{
		{"PUT", "/api/ns/q?ttl=0", "x", nil, 201, published},
		{"GET", "/api/ns/q", "", nil, 404, noJob},
		{"GET", "/api/ns/q/size", "", nil, 200, `{"namespace":"ns","queue":"q","size":1}`},
	})
	if _, err := store.Resume(t.Context(), store.Namespace("ns"), "q"); err != nil {
		t.Fatal(err)
	}
	p.play([]step{{"GET", "/api/ns/q", "", nil, 200, jobOf("null", "eA==", "q", 0, 0)}})
}

// lmstfy's clients take any answer of a job for one that is not done.
func TestAnAckedJobThatIsKeptIsNoJob(t *testing.T) {
	t.Parallel()
	keeps := job.DefaultPolicy()
	keeps.Rules = []job.Rule{{Match: "*", KeepAcked: job.Span(time.Hour)}}
	pool, _ := openPool(t, DefaultPool, map[string]job.Policy{"ns": keeps})
	p := listen(t, func(c *Config, _ *ingest.Config) { c.Pools = Pools{pool} })
	p.play([]step{
		{"PUT", "/api/ns/q?ttl=0", "x", nil, 201, published},
		{"GET", "/api/ns/q", "", nil, 200, jobOf("null", "eA==", "q", 0, 0)},
		{"DELETE", "/api/ns/q/job/$", "", nil, 204, ""},
		{"GET", "/api/ns/q/job/$", "", nil, 404, text("job not found")},
	})
}

func TestARuleHasTheDefaultsOfADelayAndALease(t *testing.T) {
	t.Parallel()
	ruled := job.DefaultPolicy()
	ruled.Rules = []job.Rule{{Match: "late", Delay: job.Span(time.Hour)}, {Match: "long", TTR: job.Span(30 * time.Minute)}}
	pool, _ := openPool(t, DefaultPool, map[string]job.Policy{"ns": ruled})
	store := pool.Store.(*job.Store)
	p := listen(t, func(c *Config, _ *ingest.Config) { c.Pools = Pools{pool} })
	p.play([]step{
		{"PUT", "/api/ns/late?ttl=0", "x", nil, 201, published},
		{"GET", "/api/ns/late", "", nil, 404, noJob},
		{"PUT", "/api/ns/late?ttl=0&delay=0", "x", nil, 201, published},
		{"GET", "/api/ns/late", "", nil, 200, jobOf("null", "eA==", "late", 0, 0)},
		{"PUT", "/api/ns/long?ttl=0", "x", nil, 201, published},
		{"GET", "/api/ns/long", "", nil, 200, jobOf("null", "eA==", "long", 0, 0)},
	})
	list, _, err := store.List(t.Context(), store.Namespace("ns"), job.List{Queue: "long", State: job.Leased, Limit: 1})
	if err != nil || len(list) != 1 || list[0].At-list[0].Now < (29*time.Minute).Milliseconds() {
		t.Errorf("leased %+v, %v", list, err)
	}
}

func TestPoolsRunTheAPIOnRealStores(t *testing.T) {
	t.Parallel()
	p, redis := listenPools(t)
	shown := strings.Replace(jobOf(`{"a":"1"}`, "eA==", "q", 2, 0), `"msg":"new job",`, "", 1)
	// Without an end, because a process and Redis may be some ms apart: a ttl is in whole seconds.
	p.play([]step{
		{"GET", "/api/ns/q", "", nil, 404, noJob},
		{"PUT", "/api/ns/q?tries=2&ttl=0", "x", []string{"Enable-Job-Version: yes", "Job-Attr-A: 1"}, 201, published},
		{"GET", "/api/ns/q/size", "", nil, 200, `{"namespace":"ns","queue":"q","size":1}`},
		{"GET", "/api/ns/q/peek", "", nil, 200, shown},
		{"GET", "/api/ns/p,q?count=2", "", nil, 200, "[" + jobOf(`{"a":"1"}`, "eA==", "q", 1, 0) + "]"},
		{"GET", "/api/ns/q/job/$", "", nil, 200, strings.Replace(shown, `"remain_tries":2`, `"remain_tries":0`, 1)},
		{"PUT", "/api/ns/q/job/$?ttl=0", "y", nil, 201, published},
		{"GET", "/api/ns/q", "", nil, 200, jobOf("null", "eQ==", "q", 0, 0)},
		{"DELETE", "/api/ns/q/job/$", "", nil, 204, ""},
		{"DELETE", "/api/ns/q/job/$", "", nil, 204, ""},
		{"GET", "/api/ns/q/job/$", "", nil, 404, text("job not found")},
		{"PUT", "/api/ns/q?delay=3600", "x", nil, 201, published},
		{"GET", "/api/ns/q", "", nil, 404, noJob},
		{"PUT", "/api/ns/q/bulk", "[1,2]", nil, 201, `{"job_ids":["ID","ID"],"msg":"published"}`},
		{"DELETE", "/api/ns/q", "", nil, 204, ""},
		{"GET", "/api/ns/q", "", nil, 404, noJob},
		{"PUT", "/api/quick/q?ttl=0", "x", []string{headerToken + ": fast:" + fastToken}, 201, published},
		{"GET", "/api/quick/q", "", []string{headerToken + ": " + fastToken}, 200, strings.Replace(jobOf("null", "eA==", "q", 0, 0), `"ns"`, `"quick"`, 1)},
		{"PUT", "/api/ns/_q/job/x", "x", nil, 400, badQueue},
		{"GET", "/api/ns/_q,-,q?timeout=0", "", nil, 404, noJob},
	})
	for range 8 {
		p.play([]step{{"PUT", "/api/ns/spread", "x", nil, 201, published}})
	}
	var got []struct{ Job_id string }
	for range 4 {
		var page []struct{ Job_id string }
		if r := p.do("GET", "/api/ns/spread?count=100&ttr=0", ""); r.status == 200 {
			if err := json.Unmarshal([]byte(r.raw), &page); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, page...)
	}
	if len(got) != 8 {
		t.Errorf("%d of 8 jobs over two shards came", len(got))
	}
	// Their tries are used up at once.
	redistest.Until(t, 20*time.Second, "8 dead letters", func() bool {
		return strings.Contains(p.do("GET", "/api/ns/spread/deadletter", "").raw, `"deadletter_size":8`)
	})
	p.play([]step{
		{"PUT", "/api/ns/spread/deadletter?ttl=0", "", nil, 200, `{"count":1,"msg":"respawned"}`},
		{"GET", "/api/ns/spread", "", nil, 200, jobOf("null", "eA==", "spread", 0, 0)},
		{"DELETE", "/api/ns/spread/deadletter?limit=9223372036854775807", "", nil, 204, ""},
		{"GET", "/api/ns/spread/deadletter/size", "", nil, 200, `{"namespace":"ns","queue":"spread","size":0}`},
	})
	answer := make(chan reply, 1)
	go func() { answer <- p.do("GET", "/api/ns/later?timeout=30", "") }()
	p.play([]step{{"PUT", "/api/ns/later?ttl=0", "z", nil, 201, published}})
	if r := <-answer; r.body != jobOf("null", "eg==", "later", 0, 0) {
		t.Errorf("a long poll got %d %s", r.status, r.raw)
	}
	redis.Kill()
	for _, c := range []string{"PUT ", "PUT /bulk", "PUT /job/x", "GET ", "GET /peek", "DELETE ", "GET /size", "GET /deadletter", "PUT /deadletter", "DELETE /deadletter"} {
		method, rest, _ := strings.Cut(c, " ")
		p.play([]step{{method, "/api/ns/q" + rest, "[1]", nil, 500, text("internal error")}})
	}
	p.play([]step{{"GET", "/api/quick/q", "", []string{headerToken + ": " + fastToken}, 404, noJob}})
}

func TestClaimsOfManyQueuesWork(t *testing.T) {
	t.Parallel()
	p, _ := listenPools(t)
	var names []string
	for i := range maxQueues {
		names = append(names, fmt.Sprint("q", i))
	}
	p.play([]step{
		{"PUT", "/api/ns/" + names[len(names)-1] + "?ttl=0", "x", nil, 201, published},
		{"GET", "/api/ns/" + strings.Join(names, ",") + "?timeout=5", "", nil, 200, jobOf("null", "eA==", names[len(names)-1], 0, 0)},
		{"GET", "/api/ns/" + strings.Join(names, ",") + "?timeout=1&count=100", "", nil, 404, noJob},
	})
}
