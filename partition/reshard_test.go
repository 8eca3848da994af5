package partition_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

func openSharded(t *testing.T, url, prefix string, shards int) (*partition.Store, *partition.Namespace) {
	t.Helper()
	policy := partition.DefaultPolicy()
	policy.Shards, policy.Linger, policy.Batch = shards, 0, 4
	s, err := partition.Open(partition.Config{URL: url, Prefix: prefix, Namespaces: map[string]partition.Policy{"kart": policy}},
		prometheus.NewRegistry(), zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, s.Namespace("kart")
}

func store(t *testing.T, s *partition.Store, ns *partition.Namespace, name, key string, texts ...string) *partition.Group {
	t.Helper()
	ctx := context.Background()
	if err := s.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	now, _ := s.Now()
	g := &partition.Group{Namespace: ns, Partition: name, IdempotencyKey: key}
	for _, text := range texts {
		g.Entries = append(g.Entries, partition.AppendEntry(nil, now, []byte("0123456789abcdef0123456789"), []byte(text)))
	}
	s.Produce(ctx, []*partition.Group{g})
	if g.Err != nil {
		t.Fatalf("%s: %v", name, g.Err)
	}
	return g
}

// drainAll claims and commits until nothing is left, and returns what came of each partition.
func drainAll(t *testing.T, s *partition.Store, ns *partition.Namespace) map[string][]string {
	t.Helper()
	ctx := context.Background()
	all := map[string][]string{}
	redistest.Until(t, 20*time.Second, "nothing is left", func() bool {
		numbers, _ := ns.OpenShards()
		for _, n := range numbers {
			due, _, err := s.Due(ctx, ns, n, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range due {
				for _, c := range s.Claim(ctx, []partition.ClaimRequest{{Namespace: ns, Partition: d.Partition, MaxBatches: 1, Shard: n}}, time.Minute) {
					if c.Err != nil {
						t.Fatal(c.Err)
					} else if c.Lease == nil {
						continue
					}
					for _, e := range c.Lease.Entries {
						all[d.Partition] = append(all[d.Partition], string(e.Payload))
					}
					commit := &partition.Commit{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: len(c.Lease.Entries)}
					if s.Commit(ctx, []*partition.Commit{commit}); commit.Err != nil {
						t.Fatal(commit.Err)
					}
				}
			}
		}
		o, err := s.Overview(ctx, ns)
		if err != nil {
			t.Fatal(err)
		}
		return o.Ledger.Buffered == 0
	})
	return all
}

func TestANamespaceGetsOtherShardsWhileItServes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := redistest.Start(t).URL()
	one, a := openSharded(t, url, "sw", 2)
	two, b := openSharded(t, url, "sw", 2)
	want := map[string][]string{}
	put := func(s *partition.Store, ns *partition.Namespace, texts ...string) {
		for i := range 20 {
			name := fmt.Sprint("p", i)
			store(t, s, ns, name, "", texts...)
			want[name] = append(want[name], texts...)
		}
	}
	put(one, a, "1", "2")
	put(two, b, "3")
	first := store(t, one, a, "p1", "key", "4")
	want["p1"] = append(want["p1"], "4")
	n, err := one.Reshard(ctx, a, partition.ReshardRequest{Shards: 5, By: "alice"})
	if err != nil || n < 2 {
		t.Fatalf("got layout %d, %v", n, err)
	}
	put(one, a, "5")
	put(two, b, "6") // it meets a fenced shard
	if again := store(t, two, b, "p1", "key", "4"); !again.Repeated || again.Accepted != first.Accepted || again.Depth != first.Depth {
		t.Errorf("the key of before: %+v", again)
	}
	layouts, err := two.Layouts(ctx, b)
	if err != nil || len(layouts) != 2 || layouts[0].Fenced != 2 || layouts[0].Entries != 61 || layouts[1].Entries != 40 || !layouts[1].Current {
		t.Errorf("got %+v, %v", layouts, err)
	}
	if _, err := two.Reshard(ctx, b, partition.ReshardRequest{Shards: 3}); err == nil {
		t.Error("a second reshard while the first goes on is not rejected")
	}
	got := drainAll(t, two, b)
	for name, texts := range want {
		if fmt.Sprint(got[name]) != fmt.Sprint(texts) {
			t.Errorf("%s: got %v, want %v", name, got[name], texts)
		}
	}
	if residual, err := one.Audit(ctx, a); err != nil || residual != 0 {
		t.Errorf("residual %d, %v", residual, err)
	}
	j := partition.NewJanitor(one)
	if err := j.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Stop(context.Background()) })
	redistest.Until(t, 20*time.Second, "the older layout is closed", func() bool {
		layouts, err := one.Layouts(ctx, a)
		return err == nil && layouts[0].Closed
	})
	put(two, b, "7")
	three, c := openSharded(t, url, "sw", 1)
	put(three, c, "8")
	if o, err := three.Overview(ctx, c); err != nil || o.Ledger.Accepted != 141 || o.Ledger.Buffered != 40 || o.Partitions != 20 {
		t.Errorf("got %+v, %v", o, err)
	}
}

// A failover that lost writes may bring back entries to a shard that was closed.
func TestWhatComesBackToAClosedShardIsDelivered(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	s, ns := openSharded(t, server.URL(), "sw", 1)
	store(t, s, ns, "p", "", "1", "2")
	c := server.Client()
	saved := map[string]string{}
	for _, key := range c.Keys(ctx, "sw:{kart.0}:*").Val() {
		saved[key] = c.Dump(ctx, key).Val()
	}
	if _, err := s.Reshard(ctx, ns, partition.ReshardRequest{Shards: 2}); err != nil {
		t.Fatal(err)
	}
	drainAll(t, s, ns)
	closed := func() bool {
		layouts, err := s.Layouts(ctx, ns)
		return err == nil && layouts[0].Closed
	}
	j := partition.NewJanitor(s)
	if err := j.Start(ctx); err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, 20*time.Second, "the older layout is closed", closed)
	if err := j.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for key, text := range saved {
		if err := c.RestoreReplace(ctx, key, 0, text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	j = partition.NewJanitor(s) // it looks at closed shards in its first round
	if err := j.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Stop(context.Background()) })
	redistest.Until(t, 20*time.Second, "the shard is open again", func() bool {
		open, _ := ns.OpenShards()
		return len(open) == 3
	})
	if got := drainAll(t, s, ns)["p"]; len(got) != 2 {
		t.Errorf("got %v, want what came back", got)
	}
}

func TestAFullStoreGetsNoOtherShards(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	s, ns := openSharded(t, server.URL(), "sw", 1)
	store(t, s, ns, "p", "", "1")
	c := server.Client()
	keys := func() []string { return slices.Sorted(slices.Values(c.Keys(ctx, "*").Val())) }
	before, had := keys(), c.HGetAll(ctx, "sw:{kart.0}:ledger").Val()
	if err := c.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reshard(ctx, ns, partition.ReshardRequest{Shards: 2}); !errors.Is(err, partition.ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	if after := keys(); !slices.Equal(before, after) || !maps.Equal(had, c.HGetAll(ctx, "sw:{kart.0}:ledger").Val()) {
		t.Errorf("something was written: %v", after)
	}
}

// shards: auto is decided at the first use, by whichever process comes first, and holds from then on.
func TestShardsAutoAreTheMastersOfTheFirstUse(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	serve := func(url, prefix string, shards int) (*partition.Store, *partition.Namespace) {
		s, ns := openSharded(t, url, prefix, shards)
		j := partition.NewJanitor(s)
		if err := j.Start(ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Stop(context.Background()) })
		return s, ns
	}
	cluster := redistest.StartMasters(t, 3)
	decided := func(s *partition.Store, ns *partition.Namespace, shards int) {
		t.Helper()
		redistest.Until(t, 30*time.Second, fmt.Sprint(shards, " shards, in one layout that is open"), func() bool {
			layouts, err := s.Layouts(ctx, ns)
			if err != nil {
				return false
			}
			open := 0
			for _, l := range layouts {
				if !l.Closed {
					open++
				}
			}
			return open == 1 && ns.Shards() == shards
		})
	}
	one, a := serve(cluster.URL(), "sw", partition.AutoShards)
	two, b := serve(cluster.URL(), "sw", partition.AutoShards)
	decided(one, a, 3)
	decided(two, b, 3)
	ratio := func(s *partition.Store, ns *partition.Namespace, want float64) {
		t.Helper()
		o, err := s.Overview(ctx, ns)
		if got := o.Shards.BusiestRatio(); err != nil || got != want {
			t.Errorf("the fullest master has %v times the mean, want %v: %v", got, want, err)
		}
	}
	ratio(one, a, 1)
	if _, err := one.Reshard(ctx, a, partition.ReshardRequest{Shards: 2}); err != nil {
		t.Fatal(err)
	}
	decided(two, b, 2)
	ratio(two, b, 1.5)
	five, of := serve(cluster.URL(), "of5", 5)
	decided(five, of, 5)
	late, same := serve(cluster.URL(), "of5", partition.AutoShards)
	decided(late, same, 5)
	single := redistest.Start(t)
	lone, alone := serve(single.URL(), "sw", partition.AutoShards)
	decided(lone, alone, 1)
	redistest.Until(t, 30*time.Second, "one Redis records that it is decided", func() bool {
		return single.Client().HGet(ctx, "sw:{kart}:layout", "version").Val() != ""
	})
	ratio(lone, alone, 1)
	decided(one, a, 2)
}

// openInPools opens a process whose file has pools; the namespace is in the first.
func openInPools(t *testing.T, servers map[string]*redistest.Server, pools ...string) (*partition.Store, *partition.Namespace) {
	t.Helper()
	backends := map[string]*backend.Backend{}
	for _, name := range pools {
		b, err := backend.Open(backend.Config{URL: servers[name].URL()}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		backends[name] = b
	}
	policy := partition.DefaultPolicy()
	policy.Shards, policy.Linger, policy.Batch = 2, 0, 4
	s, err := partition.Open(partition.Config{Backend: backends[pools[0]], Prefix: "sw", Pool: pools[0], Pools: backends,
		Namespaces: map[string]partition.Policy{"kart": policy}}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	j := partition.NewJanitor(s)
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Stop(context.Background()) })
	return s, s.Namespace("kart")
}

// closed waits until a namespace has one open layout.
func closed(t *testing.T, s *partition.Store, ns *partition.Namespace) {
	t.Helper()
	redistest.Until(t, time.Minute, "the older layout is closed", func() bool {
		layouts, err := s.Layouts(t.Context(), ns)
		return err == nil && !slices.ContainsFunc(layouts, func(l partition.LayoutInfo) bool { return !l.Closed && !l.Current })
	})
}

// Two processes, whose files name one pool each, produce into all partitions while the namespace
// moves to the other Redis and back. A third drains.
func TestANamespaceMovesBetweenTwoServersUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
	s, ns := openInPools(t, servers, "a", "b")
	other, there := openInPools(t, servers, "a", "b")
	if err := s.Pause(ctx, ns, "quiet", partition.Pause{}); err != nil {
		t.Fatal(err)
	}
	var still sync.RWMutex // held while the account is looked at
	var stop atomic.Bool
	var running sync.WaitGroup
	sent := map[string][]string{}
	got := map[string][]string{}
	accepted := make([]int64, 2)
	for k, to := range []*partition.Namespace{ns, there} {
		by := []*partition.Store{s, other}[k]
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for i := range 10 {
			sent[fmt.Sprint(k, "-", i)] = nil
		}
		of := map[string][]string{}
		running.Go(func() {
			for n := 0; !stop.Load(); n++ {
				still.RLock()
				var groups []*partition.Group
				for i := range 10 {
					name := fmt.Sprint(k, "-", i)
					groups = append(groups, &partition.Group{Namespace: to, Partition: name, IdempotencyKey: fmt.Sprint(name, "/", n),
						Entries: [][]byte{partition.AppendEntry(nil, time.Now().UnixMilli(), nil, []byte(fmt.Sprint(n)))}})
				}
				by.Produce(ctx, groups)
				for _, g := range groups {
					redistest.Until(t, time.Minute, "it is stored once", func() bool { // a busy machine answers late
						if g.Err != nil {
							by.Produce(ctx, []*partition.Group{g})
						}
						return g.Err == nil
					})
					of[g.Partition] = append(of[g.Partition], fmt.Sprint(n))
					accepted[k]++
				}
				still.RUnlock()
				<-tick.C
			}
			still.Lock()
			maps.Copy(sent, of)
			still.Unlock()
		})
	}
	running.Go(func() {
		d, from := openInPools(t, servers, "a", "b")
		for done := false; !done; {
			done = stop.Load()
			still.RLock()
			numbers, _ := from.OpenShards()
			for _, n := range numbers {
				due, _, _ := d.Due(ctx, from, n, 0, 100)
				for _, c := range due {
					for _, c := range d.Claim(ctx, []partition.ClaimRequest{{Namespace: from, Partition: c.Partition, MaxBatches: 8, Shard: n}}, time.Minute) {
						if c.Lease == nil {
							continue
						}
						done = false
						for _, e := range c.Lease.Entries {
							got[c.Partition] = append(got[c.Partition], string(e.Payload))
						}
						commit := &partition.Commit{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: len(c.Lease.Entries)}
						redistest.Until(t, time.Minute, "it is committed", func() bool {
							d.Commit(ctx, []*partition.Commit{commit})
							return commit.Err == nil
						})
					}
				}
			}
			o, err := s.Overview(ctx, ns) // the drainer may not know the newest layout yet
			done = done && err == nil && o.Ledger.Buffered == 0
			still.RUnlock()
		}
	})
	account := func() {
		t.Helper()
		still.Lock()
		defer still.Unlock()
		redistest.Until(t, time.Minute, "the account is answered", func() bool {
			residual, err := other.Audit(ctx, there)
			o, wrong := s.Overview(ctx, ns)
			if err != nil || wrong != nil {
				return false
			}
			if residual != 0 || o.Ledger.Accepted != accepted[0]+accepted[1]+1 {
				t.Errorf("residual %d, accepted %d of %d", residual, o.Ledger.Accepted, accepted[0]+accepted[1]+1)
			}
			return true
		})
	}
	keyed := store(t, s, ns, "keyed", "key", "once")
	account()
	for i, move := range []partition.ReshardRequest{{Shards: 3, Pool: "b"}, {Shards: 2, Pool: "a"}} {
		redistest.Until(t, 30*time.Second, "entries are on their way", func() bool {
			still.Lock()
			defer still.Unlock()
			return accepted[0] > int64(300*(i+1)) && accepted[1] > int64(300*(i+1))
		})
		if _, err := s.Reshard(ctx, ns, move); err != nil {
			t.Fatal(err)
		}
		account()
		if again := store(t, other, there, "keyed", "key", "once"); !again.Repeated || again.Accepted != keyed.Accepted {
			t.Errorf("the key of before, in pool %s: %+v", move.Pool, again)
		}
		closed(t, other, there)
		account()
		if list, err := other.Pauses(ctx, there); err != nil || len(list) != 1 || list[0].Partition != "quiet" {
			t.Errorf("pauses in pool %s: %+v, %v", move.Pool, list, err)
		}
	}
	stop.Store(true)
	running.Wait()
	sent["keyed"] = []string{"once"}
	for name, texts := range sent {
		if !slices.Equal(got[name], texts) {
			t.Errorf("%s: got %d entries, want %d; %.200q", name, len(got[name]), len(texts), got[name])
		}
	}
	account()
}

func TestANamespaceServesFromAnotherRedisOnceItsOwnIsGone(t *testing.T) {
	t.Parallel()
	for name, abandon := range map[string]bool{"forgotten": false, "lost while it was closed": true} {
		t.Run(name, func(t *testing.T) { t.Parallel(); movesForGood(t, abandon) })
	}
}

func movesForGood(t *testing.T, abandon bool) {
	ctx := t.Context()
	servers := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
	s, ns := openInPools(t, servers, "a", "b")
	sent := map[string][]string{}
	put := func(s *partition.Store, ns *partition.Namespace, text string) {
		t.Helper()
		for i := range 10 {
			name := fmt.Sprint("p", i)
			g := &partition.Group{Namespace: ns, Partition: name, IdempotencyKey: text + name,
				Entries: [][]byte{partition.AppendEntry(nil, time.Now().UnixMilli(), nil, []byte(text))}}
			redistest.Until(t, 20*time.Second, text+" is stored", func() bool { // a breaker opens after a moment
				s.Produce(ctx, []*partition.Group{g})
				return g.Err == nil
			})
			if !g.Repeated {
				sent[name] = append(sent[name], text)
			}
		}
	}
	put(s, ns, "before")
	if n, err := s.Reshard(ctx, ns, partition.ReshardRequest{Shards: 3, Pool: "b", DryRun: true}); err != nil || n == 1 {
		t.Errorf("a dry run: layout %d, %v", n, err)
	}
	if _, err := s.Reshard(ctx, ns, partition.ReshardRequest{Shards: 3, Pool: "b"}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Reshard(ctx, ns, partition.ReshardRequest{Shards: 3, Pool: "b"}); err != nil || n == 1 {
		t.Errorf("again: layout %d, %v", n, err)
	}
	newer, there := openInPools(t, servers, "b", "a")
	older, here := openInPools(t, servers, "a", "b")
	put(s, ns, "before")
	put(newer, there, "with the new file")
	put(older, here, "with the old file")
	lacking, _ := openInPools(t, servers, "a")
	for range 2 {
		if _, err := lacking.Check(ctx); !errors.Is(err, partition.ErrIncompatible) || !strings.Contains(err.Error(), "pool b") {
			t.Errorf("a process without the pool: %v", err)
		}
	}
	if got := drainAll(t, newer, there); !maps.EqualFunc(got, sent, slices.Equal) {
		t.Errorf("got %v, want %v", got, sent)
	}
	closed(t, older, here)
	if _, err := older.EndLayout(ctx, here, partition.LayoutEnd{N: 1, Abandon: true}); !errors.Is(err, partition.ErrLayoutInUse) {
		t.Errorf("a closed layout that answers was given up: %v", err)
	}
	if abandon {
		if _, err := older.Overview(ctx, here); err != nil { // so that it knows what is lost then
			t.Error(err)
		}
		servers["a"].Kill()
		redistest.Until(t, 20*time.Second, "the closed layout is given up", func() bool {
			lost, err := older.EndLayout(ctx, here, partition.LayoutEnd{N: 1, Abandon: true})
			return err == nil && lost.Away == 2 && lost.Entries == 0
		})
	} else {
		if _, err := older.EndLayout(ctx, here, partition.LayoutEnd{N: 1}); err != nil {
			t.Fatal(err)
		}
		servers["a"].Kill()
	}
	clear(sent)
	put(older, here, "without the old one")
	put(newer, there, "without the old one, too")
	last, only := openInPools(t, servers, "b")
	for _, s := range []*partition.Store{older, newer, last} {
		if _, err := s.Check(ctx); err != nil {
			t.Error(err)
		}
	}
	if got := drainAll(t, last, only); !maps.EqualFunc(got, sent, slices.Equal) {
		t.Errorf("got %v, want %v", got, sent)
	}
	o, err := last.Overview(ctx, only)
	if err != nil || o.Ledger.Accepted != 50 || o.Ledger.Delivered != 50 {
		t.Errorf("%+v, %v", o.Ledger, err)
	}
}

func TestAMoveIsRejectedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers := map[string]*redistest.Server{}
	for _, name := range []string{"a", "evicting", "full", "away", "foreign", "newer", "free"} {
		servers[name] = redistest.Start(t)
	}
	c := servers["evicting"].Client()
	c.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru")
	c.ConfigSet(ctx, "maxmemory", "100mb")
	servers["full"].Client().ConfigSet(ctx, "maxmemory", "1")
	servers["away"].Kill()
	servers["again"] = servers["a"]
	servers["foreign"].Client().HSet(ctx, "sw:{kart.0}:ledger", "format", 1, "shards", 2)
	servers["newer"].Client().HSet(ctx, "sw:{kart}:layout", "version", 1, "2", "{")
	s, ns := openInPools(t, servers, slices.Sorted(maps.Keys(servers))...)
	lacking, without := openInPools(t, servers, "a", "full", "foreign")
	store(t, s, ns, "p", "", "1")
	store(t, lacking, without, "p", "", "1")
	redistest.Until(t, 20*time.Second, "both have said which pools they have", func() bool {
		return servers["a"].Client().ZCard(ctx, "sw:{kart}:drainers").Val() == 4
	})
	for pool, want := range map[string]string{
		"none":     "pool none is not among those of this process",
		"evicting": "maxmemory-policy",
		"full":     "store full",
		"again":    "pool again is the Redis where it has entries already",
		"away":     "refuses connections",
		"foreign":  "pool foreign has another namespace of this name",
		"newer":    "which Spillway does not write",
		"free":     "pool free is missing in 1 of the processes",
	} {
		for _, dry := range []bool{true, false} {
			_, err := s.Reshard(ctx, ns, partition.ReshardRequest{Shards: 3, Pool: pool, DryRun: dry})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", pool, err, want)
			}
		}
		if server := servers[pool]; server != nil && pool != "away" && pool != "again" {
			if keys := server.Client().Keys(ctx, "*").Val(); len(keys) > 1 || pool == "free" && len(keys) > 0 {
				t.Errorf("%s: %q were written", pool, keys)
			}
		}
	}
	if layouts, err := s.Layouts(ctx, ns); err != nil || len(layouts) != 1 {
		t.Errorf("got %+v, %v", layouts, err)
	}
}

func TestAMoveThatDiedBeforeItsChangeIsBegunAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
	s, ns := openInPools(t, servers, "a", "b")
	store(t, s, ns, "p", "", "1")
	servers["b"].Client().HSet(ctx, "sw:{kart}:layout", "version", 1, "floor", 0, "wanted", 0,
		"1", `{"n":1,"shards":2,"made_ms":0,"pool":"a"}`)
	for _, pools := range [][]string{{"a", "b"}, {"b", "a"}} {
		other, same := openInPools(t, servers, pools...)
		if _, err := other.Check(ctx); err != nil {
			t.Errorf("pools %v: %v", pools, err)
		}
		store(t, other, same, "p", "", "1")
	}
	if servers["a"].Client().HGet(ctx, "sw:{kart}:layout", "version").Val() == "" {
		t.Error("the pool where the entries lie got no copy of the record")
	}
	if _, err := s.Reshard(ctx, ns, partition.ReshardRequest{Shards: 3, Pool: "b"}); err != nil {
		t.Error(err)
	}
}

func TestKeysHoldWhileTheirNamespaceMovesAndAfterwards(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
	s, ns := openInPools(t, servers, "a", "b")
	first := store(t, s, ns, "p", "key", "1")
	store(t, s, ns, "dead", "", "2")
	letter := []byte(`{"namespace":"kart","partition":"dead","seq":1,"ts":1763629675100,"batch":"b","attempt":1,"data":2,"reason":"rejected"}` + "\n")
	numbers, _ := ns.OpenShards()
	for _, n := range numbers {
		claim := s.Claim(ctx, []partition.ClaimRequest{{Namespace: ns, Partition: "dead", MaxBatches: 1, Shard: n}}, time.Minute)[0]
		if l := claim.Lease; l != nil {
			s.Commit(ctx, []*partition.Commit{{Lease: l, Lo: l.From, Hi: l.To, Dead: 1, DeadLetters: [][]byte{letter}}})
		}
	}
	page, err := s.DeadLetters(ctx, ns, "", 10)
	if err != nil || len(page.Letters) != 1 {
		t.Fatalf("got %+v, %v", page, err)
	}
	accepted := int64(2)
	repeat := func(when string, repeated bool) {
		t.Helper()
		if again := store(t, s, ns, "p", "key", "1"); !again.Repeated || again.Depth != first.Depth {
			t.Errorf("%s: the key of before: %+v", when, again)
		}
		if o := s.Replay(ctx, ns, page.Letters)[0]; o.Err != nil || o.Repeated != repeated {
			t.Errorf("%s: replayed: %+v", when, o)
		}
		if !repeated {
			accepted++
		}
		if o, err := s.Overview(ctx, ns); err != nil || o.Ledger.Accepted != accepted {
			t.Errorf("%s: accepted %d, want %d, %v", when, o.Ledger.Accepted, accepted, err)
		}
	}
	repeat("before", false)
	for _, pool := range []string{"b", "a"} {
		n, err := s.Reshard(ctx, ns, partition.ReshardRequest{Shards: 3, Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		repeat("while it moves to "+pool, true)
		drainAll(t, s, ns)
		redistest.Until(t, 20*time.Second, "the older layout is closed", func() bool {
			layouts, err := s.Layouts(ctx, ns)
			return err == nil && layouts[len(layouts)-1].N == n && layouts[len(layouts)-2].Closed
		})
		repeat("after it moved to "+pool, true)
	}
}
