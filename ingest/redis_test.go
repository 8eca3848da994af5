package ingest

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

// onRedis starts a redis-server, a store on it and a server in front.
func onRedis(t testing.TB, policy partition.Policy, edit func(*Config)) (*port, *partition.Store, *redistest.Server) {
	t.Helper()
	redis := redistest.Start(t)
	store, err := partition.Open(partition.Config{
		Backend: backendtest.Open(t, backend.Config{URL: redis.URL()}), Prefix: "sw", Namespaces: map[string]partition.Policy{"default": policy},
	}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	redistest.Until(t, 20*time.Second, "the store can be used", func() bool {
		_, err := store.Check(t.Context())
		return err == nil && store.Ping(t.Context()) == nil
	})
	return listenTCP(t, store, edit), store, redis
}

func TestEntriesReachARealRedisAndAreAccountedFor(t *testing.T) {
	t.Parallel()
	policy := partition.DefaultPolicy()
	policy.Capacity, policy.MaxPartitions = 100, 3
	p, store, _ := onRedis(t, policy, nil)

	r := p.post("/v1/default/a", strings.Repeat("x\n", 90), asNDJSON)
	if r.status != 200 || r.body.Accepted != 90 || *r.body.Depth != 90 {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	r = p.post("/v1/default/a", strings.Repeat("x\n", 30), asNDJSON, "Idempotency-Key: k")
	again := p.post("/v1/default/a", strings.Repeat("x\n", 30), asNDJSON, "Idempotency-Key: k")
	if r.body.Evicted != 20 || *r.body.Depth != 100 || again.raw != r.raw {
		t.Errorf("got %s, then %s", r.raw, again.raw)
	}
	r = p.post("/v1/default", `[{"partition":"b","data":1},{"partition":"c","data":2},{"partition":"d","data":3}]`, asJSON)
	if r.status != 200 || r.body.Accepted != 2 || r.body.Rejected != 1 || !strings.HasSuffix(r.results(), ":retry/too_many_partitions") {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	p.post("/v1/default/e", "x").expect(t, 429, "too_many_partitions")

	r = p.do("GET", "/v1/default/a", "")
	if r.status != 200 || *r.body.Depth != 100 || !strings.Contains(r.raw, `"since_birth":{"accepted":120,"evicted":20,"expired":0}`) {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	p.do("GET", "/v1/default/e", "").expect(t, 404, "no_such_partition")
	o, err := store.Overview(t.Context(), store.Namespace("default"))
	if err != nil || o.Ledger.Accepted != 122 || o.Ledger.Evicted != 20 || o.Ledger.Buffered != 102 {
		t.Errorf("ledger %+v, %v", o.Ledger, err)
	}
}
