package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

// clusterLanes are lanes before a store on three masters. The tests stop one of them.
type clusterLanes struct {
	t         *testing.T
	servers   *redistest.Cluster
	store     *partition.Store
	ns        *partition.Namespace
	reg       *prometheus.Registry
	put       func(name, payload string) <-chan error
	stopped   int      // the master
	lost      []string // partitions: one for each shard of that master
	served    []string // and one for each shard of the others
	onMaster  []int    // by shard
	confirmed map[string][]int
	unknown   map[string][]int
	next      map[string]int
	mu        sync.Mutex
}

const clusterShards = 24

func newClusterLanes(t *testing.T) *clusterLanes {
	c := &clusterLanes{t: t, servers: redistest.StartMasters(t, 3), reg: prometheus.NewRegistry(),
		confirmed: map[string][]int{}, unknown: map[string][]int{}, next: map[string]int{}}
	policy := partition.DefaultPolicy()
	policy.Shards, policy.Capacity = clusterShards, 1_000_000
	var err error
	if c.store, err = partition.Open(partition.Config{
		URL: c.servers.URL(), Prefix: "sw", Namespaces: map[string]partition.Policy{"default": policy},
	}, c.reg, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.store.Close() })
	c.ns = c.store.Namespace("default")
	redistest.Until(t, 10*time.Second, "the store can be used", func() bool { _, err := c.store.Check(t.Context()); return err == nil })

	// One partition a shard. The stopped master is that of shard 0.
	for shard := range clusterShards {
		c.onMaster = append(c.onMaster, c.servers.MasterOf(backend.ShardPrefix("sw", "default", shard, c.ns.Shards())+"ready"))
	}
	c.stopped = c.onMaster[0]
	for shard, found := 0, false; shard < clusterShards; shard++ {
		found = false
		for i := 0; !found; i++ {
			name := fmt.Sprint("p", i)
			if found = c.ns.ShardOf(name) == shard; !found {
				continue
			}
			if c.onMaster[shard] == c.stopped {
				c.lost = append(c.lost, name)
			} else {
				c.served = append(c.served, name)
			}
		}
	}

	m, err := newMetrics(prometheus.NewRegistry(), nil, none, none, none)
	if err != nil {
		t.Fatal(err)
	}
	ls := newLanes(DefaultConfig(), c.store, m, zap.NewNop())
	ls.start()
	t.Cleanup(func() { _ = ls.stop(context.Background()) })
	c.put = func(name, payload string) <-chan error {
		r := newRequest()
		r.namespace = c.ns
		r.received = time.Now().Add(time.Hour).UnixMilli() // so that entries never expire in these tests
		r.setPartition([]byte("default/" + name))
		r.add(event{data: []byte(payload)}, 1<<10)
		r.seal()
		result := make(chan error, 1)
		ls.put(r)
		go func() {
			<-r.done
			result <- r.parts[0].err
		}()
		return result
	}
	return c
}

// produce stores the partition's next number and records the result.
func (c *clusterLanes) produce(name string) error {
	c.mu.Lock()
	n := c.next[name]
	c.next[name]++
	c.mu.Unlock()
	err := <-c.put(name, strconv.Itoa(n))
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.confirmed[name] = append(c.confirmed[name], n)
	case !errors.Is(err, partition.ErrUnavailable):
		c.unknown[name] = append(c.unknown[name], n)
	}
	return err
}

// all produces the next number of each partition at the same time.
func (c *clusterLanes) all(names []string) error {
	errs := make([]error, len(names))
	var running sync.WaitGroup
	for i, name := range names {
		running.Go(func() { errs[i] = c.produce(name) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (c *clusterLanes) unreachable() int {
	families, err := c.reg.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "spillway_store_unreachable_shards" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	c.t.Fatal("no metric of unreachable shards")
	return 0
}

// awaitRejections produces to the stopped master until all its shards are rejected,
// and then checks that rejections do not wait for a timeout.
func (c *clusterLanes) awaitRejections() {
	c.t.Helper()
	redistest.Until(c.t, 30*time.Second, "every shard of that master is rejected", func() bool {
		if err := c.all(c.lost); err == nil {
			c.t.Fatal("a stopped master confirmed entries")
		}
		return c.unreachable() == len(c.lost)
	})
	// One after the other: with a timeout of 2 s each they would take minutes.
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	for range 25 {
		for _, name := range c.lost {
			if err := c.produce(name); !errors.Is(err, partition.ErrUnavailable) {
				c.t.Fatalf("got %v, want a rejection", err)
			}
		}
		if err := c.all(c.served); err != nil {
			c.t.Fatalf("the other masters: %v", err)
		}
		if ctx.Err() != nil {
			c.t.Fatal("rejections wait for a timeout")
		}
	}
}

// checkOrder compares the lists in Redis with the results.
func (c *clusterLanes) checkOrder() {
	c.t.Helper()
	for _, name := range append(slices.Clone(c.lost), c.served...) {
		var stored []int
		client := c.servers.Masters[c.onMaster[c.ns.ShardOf(name)]].Client()
		for _, e := range client.LRange(c.t.Context(), backend.ShardPrefix("sw", "default", c.ns.ShardOf(name), c.ns.Shards())+"q:"+name, 0, -1).Val() {
			n, err := strconv.Atoi(e[14:])
			if err != nil {
				c.t.Fatal(err)
			}
			stored = append(stored, n)
		}
		known := slices.DeleteFunc(slices.Clone(stored), func(n int) bool { return slices.Contains(c.unknown[name], n) })
		if !slices.Equal(known, c.confirmed[name]) {
			c.t.Errorf("%s holds %v, confirmed were %v", name, known, c.confirmed[name])
		}
		if slices.Sort(stored); len(slices.Compact(slices.Clone(stored))) != len(stored) {
			c.t.Errorf("%s holds an entry twice: %v", name, stored)
		}
	}
}

func TestAFrozenMasterStopsOnlyItsOwnShards(t *testing.T) {
	t.Parallel()
	c := newClusterLanes(t)
	if err := c.all(append(slices.Clone(c.lost), c.served...)); err != nil {
		t.Fatal(err)
	}
	frozen := c.servers.Masters[c.stopped]
	frozen.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { frozen.Signal(syscall.SIGCONT) })

	// The flushes to that master get no answer. Meanwhile the other masters confirm,
	// in every lane.
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		_ = c.all(c.lost)
	}()
	for round, timedOut := 0, false; round < 20 && !timedOut; round++ {
		if err := c.all(c.served); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		select {
		case <-waiting: // on a busy machine before all 20
			timedOut = true
			if round == 0 {
				t.Fatal("the others confirmed only after the flushes to the frozen master had ended")
			}
		default:
		}
	}
	<-waiting
	c.awaitRejections()
	if _, err := c.store.Check(t.Context()); err != nil {
		t.Errorf("two of three masters work, and Check returns %v", err)
	}

	frozen.Signal(syscall.SIGCONT)
	redistest.Until(t, 20*time.Second, "the master is used again", func() bool { return c.all(c.lost) == nil })
	if n := c.unreachable(); n != 0 {
		t.Errorf("%d shards unreachable in the end", n)
	}
	if residual, err := c.store.Audit(t.Context(), c.ns); residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
	c.checkOrder()
	var confirmed, unknown int64
	for _, name := range append(slices.Clone(c.lost), c.served...) {
		confirmed += int64(len(c.confirmed[name]))
		unknown += int64(len(c.unknown[name]))
	}
	o, err := c.store.Overview(t.Context(), c.ns)
	if got := o.Ledger.Accepted; err != nil || got < confirmed || got > confirmed+unknown {
		t.Errorf("accepted %d, confirmed %d, unknown %d, %v", got, confirmed, unknown, err)
	}
	t.Logf("confirmed %d, unknown %d, %d zones", confirmed, unknown, c.store.Zones())
}

// 512 clients that each wait for their answer before they send again would all wait for the
// frozen master, and send nothing for the others, until its shards are rejected.
func TestAClosedPoolOfClientsIsServedWhileAMasterIsFrozen(t *testing.T) {
	t.Parallel()
	const clients = 512
	c := newClusterLanes(t)
	if err := c.all(append(slices.Clone(c.lost), c.served...)); err != nil {
		t.Fatal(err)
	}
	var confirmed, rejected, unknown atomic.Int64
	all, stop := append(slices.Clone(c.lost), c.served...), make(chan struct{})
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				switch err := <-c.put(all[n%len(all)], "x"); {
				case err == nil:
					confirmed.Add(1)
				case errors.Is(err, partition.ErrUnavailable):
					rejected.Add(1)
				default:
					unknown.Add(1)
				}
				time.Sleep(time.Millisecond) // what a client takes between two requests
			}
		})
	}
	frozen := c.servers.Masters[c.stopped]
	frozen.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { frozen.Signal(syscall.SIGCONT) })
	// By then each client has met the frozen master, and waited for it at most once.
	redistest.Until(t, 30*time.Second, "what is for the frozen master is rejected", func() bool { return rejected.Load() > 2*clients })
	served, waited := confirmed.Load(), unknown.Load()
	redistest.Until(t, 30*time.Second, "entries are confirmed while the master is frozen", func() bool { return confirmed.Load() > served+4*clients })
	if n := unknown.Load() - waited; n > clients/2 {
		t.Errorf("%d requests waited for the frozen master while %d were served", n, confirmed.Load()-served)
	}
	frozen.Signal(syscall.SIGCONT)
	redistest.Until(t, 20*time.Second, "the master is used again", func() bool { return c.all(c.lost) == nil })
	close(stop)
	running.Wait()
}

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
