package partition_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycletest"
)

// repairTimeout is more than a janitor needs: it makes one round per second.
const repairTimeout = 15 * time.Second

// startJanitor runs the janitor of a store until the test ends.
func startJanitor(t *testing.T, s *partition.Store) {
	t.Helper()
	j := partition.NewJanitor(s)
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// watchedJanitor is alive if its janitor finds a list that something else made.
type watchedJanitor struct {
	*partition.Janitor
	c *redis.Client
}

func (j watchedJanitor) Alive(ctx context.Context) error {
	j.c.RPush(ctx, "sw:{default.0}:q:kart", entry("x"))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for j.c.ZScore(ctx, "sw:{default.0}:ready", "kart").Err() != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the list is not active: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

func TestJanitorFollowsTheLifecycleContract(t *testing.T) {
	t.Parallel()
	lifecycletest.Run(t, func(t *testing.T) lifecycletest.Component {
		server := redistest.Start(t)
		s := open(t, server.URL(), nil)
		usable(t, s.Store)
		return watchedJanitor{partition.NewJanitor(s.Store), server.Client()}
	})
}

// janitors run on stores of their own until the test ends.
func janitors(t *testing.T, n int, url string, change func(*partition.Policy)) {
	t.Helper()
	for range n {
		s := open(t, url, change)
		usable(t, s.Store)
		startJanitor(t, s.Store)
	}
}

// Two janitors on one Redis repair all that other programs and a clock stepping
// back can leave behind, and count it once.
func TestJanitorsRepairWhatNoOtherScriptMeets(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := server.Client()
	ctx := t.Context()
	s := open(t, server.URL(), func(p *partition.Policy) { p.Shards = 2 })
	usable(t, s.Store)
	key := func(kind, name string) string {
		return backend.ShardPrefix("sw", "default", s.ns.ShardOf(name), s.ns.Shards()) + kind + ":" + name
	}
	ready := func(name string) string {
		return backend.ShardPrefix("sw", "default", s.ns.ShardOf(name), s.ns.Shards()) + "ready"
	}
	due := func(name string) int64 { return int64(c.ZScore(ctx, ready(name), name).Val()) }
	now := func() int64 { return c.Time(ctx).Val().UnixMilli() }
	far := float64(now() + 1000*time.Hour.Milliseconds())
	do := func(args ...any) {
		t.Helper()
		if err := c.Do(ctx, args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	three := func(name string) {
		t.Helper()
		for i := range 3 {
			if err := s.produce(name, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	}

	do("rpush", key("q", "foreign-list"), entry("a"), entry("b"))
	three("forgotten-list")
	do("zrem", ready("forgotten-list"), "forgotten-list")
	do("zadd", ready("member-alone"), 1, "member-alone")
	three("hash-alone")
	do("del", key("q", "hash-alone"))
	do("zrem", ready("hash-alone"), "hash-alone")
	three("due-far-ahead")
	do("zadd", ready("due-far-ahead"), far, "due-far-ahead")
	three("leased-far-ahead")
	do("zadd", ready("leased-far-ahead"), 1, "leased-far-ahead")
	claim := s.Claim(ctx, []partition.ClaimRequest{{Namespace: s.ns, Partition: "leased-far-ahead", MaxBatches: 1}}, time.Minute)[0]
	do("zadd", ready("leased-far-ahead"), far, "leased-far-ahead")
	three("healthy")
	healthy := due("healthy")
	// Values and lists that are not Spillway's must not stop the janitor.
	do("set", key("q", "foreign"), "x")
	do("zadd", ready("foreign"), 1, "foreign")
	do("rpush", "sw:{nobody.0}:q:kart", "x")
	do("rpush", "other:{default.0}:q:kart", "x")

	janitors(t, 2, server.URL(), func(p *partition.Policy) { p.Shards = 2 })
	for what, ok := range map[string]func() bool{
		"a list that something else made is active": func() bool { return due("foreign-list") > 0 },
		"a forgotten list is active":                func() bool { return due("forgotten-list") > 0 },
		"a member alone is forgotten":               func() bool { return due("member-alone") == 0 },
		"a hash alone is forgotten":                 func() bool { return c.Exists(ctx, key("m", "hash-alone")).Val() == 0 },
		"a due time far ahead is pulled":            func() bool { return due("due-far-ahead") <= now() },
		"a lease far ahead gets its length":         func() bool { d := due("leased-far-ahead"); return d > now() && d < now()+60_000 },
	} {
		redistest.Until(t, repairTimeout, what, ok)
	}
	if got := due("healthy"); got != healthy {
		t.Errorf("a healthy partition was due at %d and is at %d", healthy, got)
	}
	if claim.Lease == nil {
		t.Fatalf("no lease: %v", claim.Err)
	}
	commit := &partition.Commit{Lease: claim.Lease, Lo: claim.Lease.From, Hi: claim.Lease.To, Delivered: 3}
	s.Commit(ctx, []*partition.Commit{commit})
	if commit.Err != nil {
		t.Errorf("commit of the lease that was pulled back: %v", commit.Err)
	}
	for _, k := range []string{"sw:{nobody.0}:m:kart", "other:{default.0}:m:kart"} {
		if c.Exists(ctx, k).Val() != 0 {
			t.Errorf("the janitor made %s", k)
		}
	}
	do("del", key("q", "foreign"))
	do("zrem", ready("foreign"), "foreign")
	o, err := s.Overview(ctx, s.ns)
	want := partition.Ledger{Accepted: 17, Delivered: 3, Lost: 3, Buffered: 11}
	if err != nil || o.Ledger != want {
		t.Errorf("got %+v (%v), want %+v", o.Ledger, err, want)
	}
	if residual, err := s.Audit(ctx, s.ns); residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
}

// Entries older than max_age expire although nobody drains.
func TestJanitorsExpireWhatNobodyDrains(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	policy := func(p *partition.Policy) { p.MaxAge, p.Linger = 500*time.Millisecond, 10*time.Millisecond }
	s := open(t, server.URL(), policy)
	usable(t, s.Store)
	janitors(t, 2, server.URL(), policy)
	now, _ := s.Now()
	const partitions = 450 // more than two pages
	var groups []*partition.Group
	for i := range partitions {
		groups = append(groups, &partition.Group{
			Namespace: s.ns, Partition: fmt.Sprint("p", i),
			Entries: [][]byte{partition.AppendEntry(nil, now, nil, []byte("x")), partition.AppendEntry(nil, now, nil, []byte("y"))},
		})
	}
	s.Produce(t.Context(), groups)
	for _, g := range groups {
		if g.Err != nil {
			t.Fatal(g.Err)
		}
	}
	want := partition.Ledger{Accepted: 2 * partitions, Expired: 2 * partitions}
	redistest.Until(t, repairTimeout, "everything expired", func() bool {
		o, err := s.Overview(t.Context(), s.ns)
		return err == nil && o.Ledger == want && o.Partitions == 0
	})
	if n := len(server.Client().Keys(t.Context(), "*default.*").Val()); n != 1 {
		t.Errorf("%d keys are left, want the ledger alone", n)
	}
}

// A lease stays exclusive when its partition vanishes from the active set.
func TestJanitorsLeaveAForgottenLeaseToItsHolder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), func(p *partition.Policy) { p.Linger = 0 })
	if err := s.produce("kart", "x"); err != nil {
		t.Fatal(err)
	}
	claim := s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: "kart", MaxBatches: 1}}, time.Minute)[0]
	if claim.Lease == nil {
		t.Fatalf("no lease: %v", claim.Err)
	}
	c := server.Client()
	c.ZRem(t.Context(), "sw:{default.0}:ready", "kart")
	janitors(t, 1, server.URL(), nil)
	redistest.Until(t, repairTimeout, "it is active again", func() bool {
		return c.ZScore(t.Context(), "sw:{default.0}:ready", "kart").Err() == nil
	})
	other := s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: "kart", MaxBatches: 1}}, time.Minute)[0]
	if other.Lease != nil || other.Err != nil {
		t.Errorf("leased twice: %+v %v", other.Lease, other.Err)
	}
}

// A lease may last an hour (drain.Config.Lease), and a back-off as long as its
// entries live, which a sink's Retry-After can ask for.
func TestJanitorsLeaveLongLeasesAndBackOffs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	policy := func(p *partition.Policy) { p.MaxAge, p.Linger = 2*time.Hour, 0 }
	s := open(t, server.URL(), policy)
	claims := map[string]partition.ClaimResult{}
	for _, name := range []string{"leased", "waits"} {
		if err := s.produce(name, "x"); err != nil {
			t.Fatal(err)
		}
		claims[name] = s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: name, MaxBatches: 1}}, time.Hour)[0]
		if claims[name].Lease == nil {
			t.Fatalf("%s: no lease: %v", name, claims[name].Err)
		}
	}
	wait := &partition.Release{Lease: claims["waits"].Lease, Delay: 90 * time.Minute, Attempt: 1}
	s.Release(t.Context(), []*partition.Release{wait})
	if wait.Err != nil {
		t.Fatal(wait.Err)
	}
	due := func() string {
		list, _, err := s.Due(t.Context(), s.ns, 0, 0, 10)
		return fmt.Sprint(list, err)
	}
	before := due()
	c := server.Client()
	c.RPush(t.Context(), "sw:{default.0}:q:marker", entry("x"))
	janitors(t, 1, server.URL(), policy)
	redistest.Until(t, repairTimeout, "the janitor has made a round", func() bool {
		return c.ZRem(t.Context(), "sw:{default.0}:ready", "marker").Val() == 1
	})
	if after := due(); after != before {
		t.Errorf("due times were %s and are %s", before, after)
	}
}

// On a cluster each master is walked.
func TestJanitorsWalkEveryMaster(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 3)
	policy := func(p *partition.Policy) { p.Shards = 8 }
	s := open(t, servers.URL(), policy)
	usable(t, s.Store)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers.Masters[0].Addr}})
	t.Cleanup(func() { _ = c.Close() })
	masters := map[string]bool{}
	for shard := range 8 {
		prefix := backend.ShardPrefix("sw", "default", shard, s.ns.Shards())
		for i := 0; ; i++ {
			if name := fmt.Sprint("p", i); s.ns.ShardOf(name) == shard {
				if err := c.RPush(t.Context(), prefix+"q:"+name, entry("x")).Err(); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		node, err := c.MasterForKey(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		masters[node.Options().Addr] = true
	}
	if len(masters) != 3 {
		t.Fatalf("the shards are on %d masters, want 3", len(masters))
	}
	janitors(t, 1, servers.URL(), policy)
	redistest.Until(t, repairTimeout, "all lists are active", func() bool {
		o, err := s.Overview(t.Context(), s.ns)
		return err == nil && o.Partitions == 8 && o.Ledger == partition.Ledger{Accepted: 8, Buffered: 8}
	})
}
