package partition_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

func durable(cfg *partition.Config) { cfg.Replicas = 1 }

func startReplica(t *testing.T, primary *redistest.Server) *redistest.Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(primary.Addr)
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	// The primary calls it online before it confirms anything.
	c := primary.Client().Conn()
	defer c.Close()
	redistest.Until(t, 30*time.Second, "the replica confirms a write", func() bool {
		ctx := context.Background()
		c.Set(ctx, "probe", 1, 0)
		return c.Wait(ctx, 1, 100*time.Millisecond).Val() == 1
	})
	return replica
}

func TestImpossibleDurabilityIsRejectedAtTheStart(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		url      string
		replicas int
	}{{"embedded:", 1}, {"redis://127.0.0.1:1", -1}, {"redis://127.0.0.1:1", 6}} {
		_, err := partition.Open(partition.Config{
			URL: row.url, Prefix: "sw", Replicas: row.replicas,
			Namespaces: map[string]partition.Policy{"default": partition.DefaultPolicy()},
		}, prometheus.NewRegistry(), zap.NewNop())
		var field *partition.FieldError
		if !errors.As(err, &field) || field.Field != "durability" {
			t.Errorf("%+v: got %v, want a FieldError of durability", row, err)
		}
	}
}

// An entry that the replica has not confirmed is not acknowledged; also not by
// a repeat under its key, which writes nothing of its own.
func TestFewerReplicasThanAskedForAreUnknown(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := startReplica(t, primary)
	s, async := attend(t, primary.URL(), durable), open(t, primary.URL(), nil)
	usable(t, s.Store)
	if err := s.produce("kart", "x"); err != nil {
		t.Fatalf("with its replica: %v", err)
	}
	keyed := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g := &partition.Group{Namespace: s.ns, Partition: "keyed", Entries: [][]byte{entry("x")}, IdempotencyKey: "k"}
		s.Produce(ctx, []*partition.Group{g})
		if g.Err == nil && (g.Accepted != 1 || g.Depth != 1) {
			t.Errorf("%+v", g)
		}
		return g.Err
	}
	replica.Signal(syscall.SIGSTOP)
	redistest.Until(t, patience, "an error says how many replicas confirmed", func() bool {
		err := s.produce("kart", "x")
		if !errors.Is(err, partition.ErrUnknown) {
			t.Fatalf("without its replica: got %v, want ErrUnknown", err)
		}
		return strings.Contains(err.Error(), "0 of 1") // on a busy machine the primary may also be late
	})
	for range 2 {
		if err := keyed(); !errors.Is(err, partition.ErrUnknown) {
			t.Errorf("under a key: got %v, want ErrUnknown", err)
		}
	}
	if err := async.produce("kart", "x"); err != nil {
		t.Errorf("async: %v", err)
	}
	replica.Signal(syscall.SIGCONT)
	redistest.Until(t, 10*time.Second, "entries are acknowledged again", func() bool { return s.produce("kart", "x") == nil })
	if err := keyed(); err != nil {
		t.Errorf("under the key, with the replica: %v", err)
	}
	primary.Client().ScriptFlush(t.Context())
	if err := s.produce("kart", "x"); err != nil {
		t.Errorf("after a script flush: %v", err)
	}
	replica.Kill()
	redistest.Until(t, 10*time.Second, "the missing replica is warned of", func() bool {
		warnings, err := s.Check(t.Context())
		return err == nil && strings.Contains(strings.Join(warnings, "\n"), "has 0 replicas connected, so with durability replica=1 nothing is acknowledged")
	})
}

// Entries that only the primary had are lost with it; entries that were acknowledged
// with a replica survive.
func TestOnlyWhatAReplicaConfirmedSurvivesItsPrimary(t *testing.T) {
	t.Parallel()
	for replicas, want := range map[int][2]int{0: {4, 1}, 1: {1, 1}} { // acknowledged, surviving
		primary := redistest.Start(t)
		replica := startReplica(t, primary).Client()
		s := attend(t, primary.URL(), func(cfg *partition.Config) { cfg.Replicas = replicas })
		acked := 0
		for i := range 4 {
			if i == 1 { // the link breaks once it has brought the first
				redistest.Until(t, patience, "the replica has the first", func() bool {
					return replica.LLen(t.Context(), "sw:{default.0}:q:kart").Val() == 1
				})
				if err := replica.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err(); err != nil {
					t.Fatal(err)
				}
			}
			switch err := s.produce("kart", fmt.Sprint(i)); {
			case err == nil:
				acked++
			case !errors.Is(err, partition.ErrUnknown):
				t.Errorf("got %v, want ErrUnknown", err)
			}
		}
		primary.Kill()
		if err := replica.Do(t.Context(), "replicaof", "no", "one").Err(); err != nil {
			t.Fatal(err)
		}
		survive := int(replica.LLen(t.Context(), "sw:{default.0}:q:kart").Val())
		if got := [2]int{acked, survive}; got != want {
			t.Errorf("%d replicas asked for: acknowledged and surviving are %v, want %v", replicas, got, want)
		}
	}
}

// Each master of a cluster waits for its own replicas: the partitions of the
// others go on.
func TestOnAClusterEachMasterWaitsForItsOwnReplica(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	s := attend(t, servers.URL(), func(cfg *partition.Config) {
		cfg.Replicas = 1
		p := cfg.Namespaces["default"]
		p.Shards = 6
		cfg.Namespaces["default"] = p
	})
	cluster := servers.Masters[0].Client()
	mine, others := "", ""
	for i := 0; mine == "" || others == ""; i++ {
		name := fmt.Sprint("p", i)
		slot := cluster.ClusterKeySlot(t.Context(), backend.ShardPrefix("sw", "default", s.ns.ShardOf(name), s.ns.Shards())+"ready").Val()
		if int(slot)*3/16384 == 0 {
			mine = name
		} else {
			others = name
		}
	}
	both := func() (here, there error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		groups := []*partition.Group{
			{Namespace: s.ns, Partition: mine, Entries: [][]byte{entry("x")}},
			{Namespace: s.ns, Partition: others, Entries: [][]byte{entry("x")}},
		}
		s.Produce(ctx, groups)
		return groups[0].Err, groups[1].Err
	}
	if here, there := both(); here != nil || there != nil {
		t.Fatalf("with all replicas: %v, %v", here, there)
	}
	servers.Replicas[0].Signal(syscall.SIGSTOP)
	if here, there := both(); !errors.Is(here, partition.ErrUnknown) || there != nil {
		t.Errorf("without one replica: got %v and %v, want ErrUnknown and nil", here, there)
	}
	servers.Replicas[0].Signal(syscall.SIGCONT)
	redistest.Until(t, 10*time.Second, "entries are acknowledged again", func() bool {
		here, there := both()
		return here == nil && there == nil
	})
	// Clients that follow no redirect must find the new master.
	servers.Failover(t, backend.ShardPrefix("sw", "default", s.ns.ShardOf(mine), s.ns.Shards())+"ready")
	redistest.Until(t, 20*time.Second, "the new master is asked", func() bool {
		here, _ := both()
		return here != nil && strings.Contains(here.Error(), "0 of 1") // it has no replica left
	})
}

// A primary is paused, another takes over, and the first comes back and still acts as
// primary. This is the worst case for acknowledged entries. With replica=1 none is lost.
func TestNothingIsAcknowledgedFalselyWhenAPausedPrimaryComesBack(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t)
	s := attend(t, servers.URL(), durable)
	w := &recorder{acked: map[string]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond) // the failover takes seconds
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				<-tick.C
				payload := fmt.Sprintf("p%d.%d", i, n)
				err := s.produceSoon(fmt.Sprint("p", i), payload)
				w.mu.Lock()
				switch {
				case err == nil:
					w.acked[payload] = true
				case errors.Is(err, partition.ErrUnknown):
					w.unknown++
				case !errors.Is(err, partition.ErrUnavailable):
					t.Errorf("produce: %v", err)
				}
				w.mu.Unlock()
			}
		})
	}
	acked := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.acked) }
	redistest.Until(t, 20*time.Second, "entries flow", func() bool { return acked() > 200 })
	servers.Hasty(t)
	servers.Primary.Signal(syscall.SIGSTOP)
	replica := servers.Replica.Client()
	redistest.Until(t, 30*time.Second, "the replica is promoted", func() bool {
		return strings.Contains(replica.Info(context.Background(), "replication").Val(), "role:master")
	})
	servers.Primary.Signal(syscall.SIGCONT)
	before := acked()
	redistest.Until(t, 60*time.Second, "entries flow again", func() bool { return acked() > before+100 })
	stop()
	running.Wait()
	stored := listed(t, replica)
	for payload := range w.acked {
		if !stored[payload] {
			t.Errorf("%s was acknowledged and is gone", payload)
		}
	}
	o, err := s.Overview(t.Context(), s.ns)
	if err != nil || o.Ledger.Accepted < int64(len(w.acked)) || o.Ledger.Accepted > int64(len(w.acked)+w.unknown) {
		t.Errorf("accepted %d (%v), acknowledged %d, unknown %d", o.Ledger.Accepted, err, len(w.acked), w.unknown)
	}
	t.Logf("0 of %d acknowledged entries lost, %d unknown, %d stored, %d seen as rolled back", len(w.acked), w.unknown, len(stored), s.rolledBack())
}

// listed are the payloads of all entries of a server.
func listed(t *testing.T, c *redis.Client) map[string]bool {
	t.Helper()
	stored := map[string]bool{}
	for _, key := range c.Keys(context.Background(), "sw:{default.0}:q:*").Val() {
		for _, e := range c.LRange(context.Background(), key, 0, -1).Val() {
			stored[e[14:]] = true
		}
	}
	return stored
}

// failover produces while fail kills the primary. Produces must work again soon
// after, and until then return only ErrUnavailable and ErrUnknown.
func failover(t *testing.T, s *site, names []string, fail func()) {
	t.Helper()
	for _, name := range names {
		if err := s.produce(name, "before"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	stop := make(chan struct{})
	var producing sync.WaitGroup
	var mu sync.Mutex
	acked := map[string]time.Time{}
	seen := map[string]int{}
	for _, name := range names {
		producing.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				began := time.Now()
				err := s.produceSoon(name, "during")
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("a produce with 1s took %v", took)
				}
				mu.Lock()
				switch {
				case err == nil:
					acked[name] = time.Now()
				case errors.Is(err, partition.ErrUnknown):
					seen["unknown"]++
				case errors.Is(err, partition.ErrUnavailable):
					seen["unavailable"]++
				default:
					t.Errorf("%s: got %v, want ErrUnavailable or ErrUnknown", name, err)
				}
				mu.Unlock()
			}
		})
	}
	killed := time.Now()
	fail()
	promoted := time.Now()
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			if !acked[name].After(promoted) {
				return false
			}
		}
		return true
	}
	redistest.Until(t, 10*time.Second, "entries flow after the failover", all)
	t.Logf("promoted after %v, all partitions back after %v, meanwhile %v", promoted.Sub(killed), time.Since(killed), seen)
	close(stop)
	producing.Wait()
	if seen["unavailable"] == 0 {
		t.Error("nothing was rejected: this proves nothing")
	}
	// So can drainers.
	redistest.Until(t, 10*time.Second, "drainers can work", func() bool {
		_, err := s.Check(t.Context())
		_, _, due := s.Due(t.Context(), s.ns, s.ns.ShardOf(names[0]), 0, 10)
		return err == nil && due == nil
	})
	if residual, err := s.Audit(t.Context(), s.ns); residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
}

func TestSentinelFailoverIsSurvivedWithoutARestart(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t)
	failover(t, open(t, servers.URL(), nil), []string{"kart"}, func() { servers.Failover(t) })
}

func TestClusterFailoverIsSurvivedWithoutARestart(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	s := open(t, servers.URL(), func(p *partition.Policy) { p.Shards = 6 })
	// One partition a shard, so that every master has some.
	var names []string
	for shard := range 6 {
		for i := 0; len(names) == shard; i++ {
			if name := fmt.Sprint("p", i); s.ns.ShardOf(name) == shard {
				names = append(names, name)
			}
		}
	}
	failover(t, s, names, func() { servers.Failover(t, "sw:{default.0}:ready") })
}
