package ingest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// onRedis starts a redis-server, a store on it and a server in front.
func onRedis(t testing.TB, policy partition.Policy, edit func(*Config)) (*port, *partition.Store, *redistest.Server) {
	t.Helper()
	redis := redistest.Start(t)
	store, err := partition.Open(partition.Config{
		URL: redis.URL(), Prefix: "sw", Namespaces: map[string]partition.Policy{"default": policy},
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

// TestWhatIsAcknowledgedIsStored checks acknowledged ≤ accepted ≤ acknowledged +
// unknown while Redis stalls, and the answers after Redis is killed.
func TestWhatIsAcknowledgedIsStored(t *testing.T) {
	t.Parallel()
	policy := partition.DefaultPolicy()
	policy.Capacity = 1_000_000
	p, store, redis := onRedis(t, policy, func(c *Config) { c.ProduceTimeout = 300 * time.Millisecond })
	var acked, unknown, rejected atomic.Int64
	var wg sync.WaitGroup
	var stop atomic.Bool
	for w := range 8 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				r := p.post(fmt.Sprintf("/v1/default/p%d", (w+i)%5), "1\n2\n3", asNDJSON)
				switch {
				case r.status == 200:
					acked.Add(int64(r.body.Accepted))
				case r.body.Outcome == "unknown":
					unknown.Add(3)
				case r.status == 503:
					rejected.Add(3)
				default:
					t.Errorf("got %d %s", r.status, r.raw)
				}
			}
		})
	}
	eventually(t, func() bool { return acked.Load() > 300 })
	redis.Signal(syscall.SIGSTOP)
	eventually(t, func() bool { return unknown.Load() > 0 })
	redis.Signal(syscall.SIGCONT)
	mark := acked.Load()
	eventually(t, func() bool { return acked.Load() > mark+300 })
	stop.Store(true)
	wg.Wait()
	o, err := store.Overview(t.Context(), store.Namespace("default"))
	if err != nil {
		t.Fatal(err)
	}
	if a := o.Ledger.Accepted; a < acked.Load() || a > acked.Load()+unknown.Load() {
		t.Errorf("accepted %d, acknowledged %d, unknown %d", a, acked.Load(), unknown.Load())
	}
	if counted := p.metric("entries_total", "default", "accepted"); int64(counted) != acked.Load() {
		t.Errorf("counted %v accepted, acknowledged %d", counted, acked.Load())
	}

	redis.Kill()
	p.post("/v1/default/p", "x") // the broken connection may make the outcome unknown
	r := p.post("/v1/default/p", "x")
	if r.expect(t, 503, "store_unavailable"); r.body.Outcome != "" || r.header.Get("Retry-After") == "" {
		t.Errorf("a store that is down: %s", r.raw)
	}
	redis.Launch()
	eventually(t, func() bool { return p.post("/v1/default/p", "x").status == 200 })
}
