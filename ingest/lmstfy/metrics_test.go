package lmstfy

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

// values are the metrics of a registry: "name{label values, in the order of their names}" →
// value, or count of a histogram.
func values(t testing.TB, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "infra_lmstfy_") + "{" + strings.Join(labels, ",") + "}"
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				got[name] = float64(m.GetHistogram().GetSampleCount())
			case dto.MetricType_COUNTER:
				got[name] = m.GetCounter().GetValue()
			default:
				got[name] = m.GetGauge().GetValue()
			}
		}
	}
	return got
}

func TestMetricsHaveLmstfysNames(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	p := listen(t, func(c *Config, _ *ingest.Config) { c.Metrics = NewMetrics(reg, nil) })
	p.limit(t, control.Token{Limit: &control.Limit{Write: 3, Interval: 86400}})
	space, err := job.NewNamespace("sw", "ns", job.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	reply := space.ID(0, "q", 1, "")
	p.play([]step{
		{"PUT", "/api/ns/q?delay=1", "x", nil, 201, published},
		{"PUT", "/api/ns/q/bulk", "[1,2]", nil, 201, `{"job_ids":["ID","ID"],"msg":"published"}`},
		{"PUT", "/api/ns/" + reply, "x", nil, 201, published},
		{"PUT", "/api/ns/q", "x", nil, 429, `{"msg":"token(ID) produce reach the limit rate, please retry later"}`},
		{"GET", "/api/ns/q,p?count=2", "", nil, 200, "[" + jobOf("null", "MQ==", "q", 0, 86400) + "," + jobOf("null", "Mg==", "q", 0, 86400) + "]"},
	})
	id := p.fake.of(reply)[0].ID
	p.do("GET", "/api/ns/"+reply, "")
	p.do("DELETE", "/api/ns/"+reply+"/job/"+id, "")
	p.do("DELETE", "/api/ns/"+reply+"/job/"+id, "")
	p.do("GET", "/api/ns/q/size", "")
	p.do("GET", "/api/ns/none/job/x", "")
	p.do("GET", "/api/made-up-by-a-client/q", "")
	p.do("MADEUP", "/api/ns/q", "")
	got := values(t, reg)
	for name, want := range map[string]float64{
		"redis_publish_jobs{default}": 4, "redis_consume_jobs{default}": 1, "redis_consume_multi_jobs{default}": 2,
		"redis_pool_add_jobs{default}": 4, "redis_pool_get_jobs{default}": 3, "redis_pool_delete_jobs{default}": 1,
		"redis_timer_add_jobs{default}": 4, "redis_queue_direct_push_jobs{default}": 3, "redis_queue_pop_jobs{default}": 3,
		"redis_publish_queue_jobs{ns,default,q}": 3, "redis_publish_queue_jobs{ns,default,reply}": 1,
		"redis_consume_queue_jobs{ns,default,q}": 2, "redis_job_elapsed_ms{ns,default,q}": 2, "redis_job_ack_elapsed_ms{ns,default,reply}": 1,
		"http_http_codes{/api/:namespace/:queue,201,PUT,ns,default}": 2, "http_http_codes{/api/:namespace/:queue,429,PUT,ns,default}": 1,
		"http_http_codes{/api/:namespace/:queue,200,GET,ns,default}": 2, "http_http_codes{/api/:namespace/:queue/size,200,GET,ns,default}": 1,
		"http_http_codes{/api/:namespace/:queue/job/:job_id,204,DELETE,ns,default}": 2, "http_http_codes{/api/:namespace/:queue/job/:job_id,404,GET,ns,default}": 1,
		"http_http_codes{/api/:namespace/:queue,401,GET,,}": 1, "http_http_codes{,404,OTHER,,}": 1,
		"http_latency_milliseconds{/api/:namespace/:queue,PUT,ns,default}": 2,
		"http_rate_limit{produce,ns,default,limited}":                      1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
		delete(got, name)
	}
	for name := range got {
		if strings.Contains(name, token) || strings.Contains(name, "made") {
			t.Errorf("a metric is named by a client: %s", name)
		}
	}
}

func TestAClientCannotMakeMetricsWithoutEnd(t *testing.T) {
	t.Parallel()
	m := NewMetrics(prometheus.NewRegistry(), nil)
	ns, err := job.NewNamespace("sw", "ns", job.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	c := &call{namespace: ns}
	labels := map[string]bool{}
	for i := range 5000 {
		labels[m.queueLabel(c, strings.Repeat("q", 1+i%200)+strings.Repeat("-", i/200))] = true
	}
	if len(labels) != maxQueueLabels+1 || !labels[otherQueues] {
		t.Errorf("%d labels, want %d", len(labels), maxQueueLabels+1)
	}
}

func TestGaugesReadTheStore(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "noeviction")
	reg := prometheus.NewRegistry()
	b := backendtest.Open(t, backend.Config{URL: redis.URL()})
	store, err := job.Open(job.Config{Prefix: "sw", Namespaces: map[string]job.Policy{"ns": job.DefaultPolicy()}}, b, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := NewMetrics(reg, NewGauges([]GaugedPool{{"default", store, b}}, zap.NewNop()))
	m.Watch(b)
	ns := store.Namespace("ns")
	batch := &job.Batch{Publishes: []*job.Publish{
		{Namespace: ns, Queue: "q", Tries: 1, Messages: []job.Message{{Payload: []byte("x")}, {Payload: []byte("y")}}},
		{Namespace: ns, Queue: "q", Tries: 1, Delay: time.Hour, Messages: []job.Message{{Payload: []byte("z")}}},
	}}
	store.Run(t.Context(), store.NewLane(), batch)
	for _, p := range batch.Publishes {
		if p.Err != nil {
			t.Fatal(p.Err)
		}
	}
	got := values(t, reg)
	for name, want := range map[string]float64{
		"redis_queue_sizes{ns,default,q}": 2, "redis_deadletter_sizes{ns,default,q}": 0, "redis_timer_sizes{default}": 1,
		"redis_max_mem_bytes{default}": 100 << 20, "redis_blocking_connections{default}": 0, "redis_timer_due_jobs{default}": 0, "redis_total_ttl_keys{default}": 0,
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
	for _, name := range []string{"redis_used_mem_bytes{default}", "redis_connections{default}", "redis_total_keys{default}", "redis_qps{pipeline," + redis.Addr + ",ok}", "redis_latency{pipeline," + redis.Addr + ",ok}"} {
		if got[name] <= 0 {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	redis.Kill()
	if again := values(t, reg); again["redis_queue_sizes{ns,default,q}"] != 2 {
		t.Error("a scrape within 15 s read the store again")
	}
}
