package partition_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// site is a Store on some Redis, and the means to use it in a line.
type site struct {
	*partition.Store
	t  *testing.T
	ns *partition.Namespace
}

func open(t *testing.T, url string, change func(*partition.Policy)) *site {
	t.Helper()
	return openPrefix(t, url, "sw", change)
}

func openPrefix(t *testing.T, url, prefix string, change func(*partition.Policy)) *site {
	t.Helper()
	policy := partition.DefaultPolicy()
	policy.Capacity = 1_000_000
	if change != nil {
		change(&policy)
	}
	s, err := partition.Open(partition.Config{URL: url, Prefix: prefix, Namespaces: map[string]partition.Policy{"default": policy}},
		prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &site{s, t, s.Namespace("default")}
}

// entry is one entry that cannot go stale while a test runs.
func entry(payload string) []byte {
	return partition.AppendEntry(nil, time.Now().Add(time.Hour).UnixMilli(), nil, []byte(payload))
}

// produce tries once, as a request would: within a second.
func (s *site) produce(name, payload string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	g := &partition.Group{Namespace: s.ns, Partition: name, Entries: [][]byte{entry(payload)}}
	s.Produce(ctx, []*partition.Group{g})
	return g.Err
}

func TestAStoreThatIsDownAtTheStartWorksOnceItIsUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	s := open(t, server.URL(), nil)
	if _, ok := s.Now(); ok {
		t.Error("the clock is known")
	}
	for i := range 20 { // more than the pool has connections
		if err := s.produce("kart", "x"); !errors.Is(err, partition.ErrUnavailable) {
			t.Fatalf("try %d: got %v, want ErrUnavailable", i, err)
		}
	}
	if _, err := s.Check(t.Context()); !errors.Is(err, partition.ErrUnavailable) {
		t.Fatalf("check: got %v, want ErrUnavailable", err)
	}
	if _, _, err := s.Due(t.Context(), s.ns, 0, 0, 1); !errors.Is(err, partition.ErrUnavailable) {
		t.Fatalf("due: got %v, want ErrUnavailable", err)
	}
	server.Launch()
	took := redistest.Until(t, 10*time.Second, "produce works", func() bool { return s.produce("kart", "x") == nil })
	t.Logf("worked %v after the launch", took)
	redistest.Until(t, 10*time.Second, "check passes", func() bool { _, err := s.Check(t.Context()); return err == nil })
}

// Between the acknowledged and those that may have been stored lies what the
// store counted; through two kills, on a Redis that keeps what it was given.
func TestKillsMidRunLeaveOnlyUnknowns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s := open(t, server.URL(), nil)
	if err := s.produce("kart", "first"); err != nil {
		t.Fatal(err)
	}
	var acked, unknown, unavailable atomic.Int64
	acked.Store(1)
	stop := make(chan struct{})
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				err := s.produce("kart", fmt.Sprintf("%d.%d", i, n))
				switch {
				case err == nil:
					acked.Add(1)
				case errors.Is(err, partition.ErrUnknown):
					unknown.Add(1)
				case errors.Is(err, partition.ErrUnavailable):
					unavailable.Add(1)
				default:
					t.Errorf("got %v, want ErrUnavailable or ErrUnknown", err)
				}
			}
		})
	}
	for range 2 {
		before := acked.Load()
		redistest.Until(t, 10*time.Second, "entries flow", func() bool { return acked.Load() > before+300 })
		server.Kill()
		away := unavailable.Load()
		redistest.Until(t, 10*time.Second, "it is noticed", func() bool { return unavailable.Load() > away })
		server.Launch()
	}
	before := acked.Load()
	redistest.Until(t, 10*time.Second, "entries flow again", func() bool { return acked.Load() > before+300 })
	close(stop)
	running.Wait()
	o, err := s.Overview(t.Context(), s.ns)
	if err != nil {
		t.Fatal(err)
	}
	a, u := acked.Load(), unknown.Load()
	if o.Ledger.Accepted < a || o.Ledger.Accepted > a+u {
		t.Errorf("accepted %d, want %d to %d", o.Ledger.Accepted, a, a+u)
	}
	if residual, err := s.Audit(t.Context(), s.ns); residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
	t.Logf("%d acknowledged, %d unknown, %d unavailable, %d stored", a, u, unavailable.Load(), o.Ledger.Accepted)
}

func TestAStalledRedisCostsNoMoreThanTheBudget(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	if err := s.produce("kart", "x"); err != nil {
		t.Fatal(err)
	}
	server.Signal(syscall.SIGSTOP)
	var waiting sync.WaitGroup
	for range 40 {
		waiting.Go(func() {
			began := time.Now()
			err := s.produce("kart", "x")
			if !errors.Is(err, partition.ErrUnknown) && !errors.Is(err, partition.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took > 1500*time.Millisecond {
				t.Errorf("a produce with 1s took %v", took)
			}
		})
	}
	waiting.Wait()
	server.Signal(syscall.SIGCONT)
	redistest.Until(t, 10*time.Second, "produce works", func() bool { return s.produce("kart", "x") == nil })
}

// A script of somebody else holds Redis up, on connections that are open and on
// those that are just being made.
func TestABusyRedisIsUnavailable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--busy-reply-threshold", "50")
	connected := open(t, server.URL(), nil)
	if err := connected.produce("kart", "x"); err != nil {
		t.Fatal(err)
	}
	busy, c := server.Client(), server.Client()
	var spinning sync.WaitGroup
	spinning.Go(func() { busy.Eval(context.Background(), "while true do end", nil) })
	redistest.Until(t, 10*time.Second, "Redis is busy", func() bool {
		err := c.Get(t.Context(), "x").Err()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY ")
	})
	for name, s := range map[string]*site{"connected": connected, "new": open(t, server.URL(), nil), "new, with SELECT": open(t, server.URL()+"/1", nil)} {
		if err := s.produce("kart", "x"); !errors.Is(err, partition.ErrUnavailable) || !strings.Contains(err.Error(), "BUSY") {
			t.Errorf("%s: got %v, want ErrUnavailable and the reason", name, err)
		}
	}
	if err := c.ScriptKill(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	spinning.Wait()
	redistest.Until(t, 10*time.Second, "produce works", func() bool { return connected.produce("kart", "x") == nil })
}

// Redis forgets its scripts again and again, while pipelines of several
// partitions are under way. Nobody notices.
func TestScriptFlushesMidRunAreNotNoticed(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) (*redistest.Server, string){
		"one Redis": func(t *testing.T) (*redistest.Server, string) { s := redistest.Start(t); return s, s.URL() },
		"Cluster": func(t *testing.T) (*redistest.Server, string) {
			s := redistest.StartClusterOfOne(t)
			return s, "redis-cluster://" + s.Addr
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, url := start(t)
			c := server.Client()
			s := open(t, url, func(p *partition.Policy) { p.Shards = 3 })
			const producers, rounds, spread = 3, 150, 5
			stop := make(chan struct{})
			var flushing, producing sync.WaitGroup
			flushes := 0
			flushing.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if err := c.ScriptFlush(context.Background()).Err(); err != nil {
							t.Errorf("flush: %v", err)
						}
						flushes++
					}
				}
			})
			for i := range producers {
				producing.Go(func() {
					for n := range rounds {
						var groups []*partition.Group
						for j := range spread {
							groups = append(groups, &partition.Group{
								Namespace: s.ns, Partition: fmt.Sprintf("p%d.%d", i, j), Entries: [][]byte{entry(strconv.Itoa(n))},
							})
						}
						s.Produce(t.Context(), groups)
						for _, g := range groups {
							if g.Err != nil {
								t.Errorf("round %d of %s: %v", n, g.Partition, g.Err)
								return
							}
						}
					}
				})
			}
			producing.Wait()
			close(stop)
			flushing.Wait()
			t.Logf("%d flushes", flushes)
			var want []string
			for n := range rounds {
				want = append(want, strconv.Itoa(n))
			}
			for i := range producers {
				for j := range spread {
					name := fmt.Sprintf("p%d.%d", i, j)
					list := c.LRange(t.Context(), fmt.Sprintf("sw:{default.%d}:q:%s", s.ns.ShardOf(name), name), 0, -1).Val()
					var got []string
					for _, e := range list {
						got = append(got, e[14:])
					}
					if strings.Join(got, " ") != strings.Join(want, " ") {
						t.Errorf("%s holds %v, want 0 to %d in order", name, got, rounds-1)
					}
				}
			}
		})
	}
}

// The script ran and its reply is lost: the caller is told that nobody knows,
// and the entry is there once.
func TestALostReplyIsUnknownAndStoredOnce(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) (*proxy, *redis.Client, string){
		"one Redis": func(t *testing.T) (*proxy, *redis.Client, string) {
			server := redistest.Start(t)
			p := startProxy(t, redistest.FreeAddr(t), server.Addr)
			return p, server.Client(), "redis://" + p.listener.Addr().String()
		},
		"Cluster": func(t *testing.T) (*proxy, *redis.Client, string) {
			addr := redistest.FreeAddr(t)
			_, port, _ := net.SplitHostPort(addr)
			server := redistest.StartClusterOfOne(t, "--cluster-announce-port", port, "--cluster-announce-ip", "127.0.0.1")
			return startProxy(t, addr, server.Addr), server.Client(), "redis-cluster://" + addr
		},
	} {
		for _, stall := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, connection left open %v", name, stall), func(t *testing.T) {
				t.Parallel()
				p, c, url := start(t)
				s := open(t, url, func(p *partition.Policy) { p.Linger = 0 })
				if _, err := s.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
				p.stall.Store(stall)
				for i := range 3 {
					p.lose.Store(1)
					if err := s.produce("kart", fmt.Sprint("lost ", i)); !errors.Is(err, partition.ErrUnknown) {
						t.Fatalf("got %v, want ErrUnknown", err)
					}
					// An answer between keeps the breaker closed.
					if _, err := s.Stats(t.Context(), s.ns, "other"); !errors.Is(err, partition.ErrNoPartition) {
						t.Fatal(err)
					}
				}
				if got := p.lost.Load(); got != 3 {
					t.Fatalf("%d replies were lost, want 3: this proves nothing", got)
				}
				if got := c.LLen(t.Context(), "sw:{default.0}:q:kart").Val(); got != 3 {
					t.Errorf("%d copies of 3 entries", got)
				}

				// The way out: an unknown claim is forgotten, an unknown commit repeated.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				p.lose.Store(1)
				claim := &partition.Claim{Namespace: s.ns, Partition: "kart", MaxBatches: 1}
				s.Claim(ctx, []*partition.Claim{claim}, time.Hour)
				if !errors.Is(claim.Err, partition.ErrUnknown) || claim.Lease != nil {
					t.Fatalf("claim: got %v %v, want ErrUnknown", claim.Lease, claim.Err)
				}
				if err := s.Forget(t.Context(), []*partition.Claim{claim}); err != nil {
					t.Fatal(err)
				}
				s.Claim(t.Context(), []*partition.Claim{claim}, time.Hour)
				if claim.Err != nil || claim.Lease == nil {
					t.Fatalf("claim after forgetting: %v %v", claim.Lease, claim.Err)
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				p.lose.Store(1)
				l := claim.Lease
				commit := &partition.Settlement{Lease: l, Lo: l.From, Hi: l.From + 1, Delivered: 1}
				s.Settle(ctx, []*partition.Settlement{commit})
				if !errors.Is(commit.Err, partition.ErrUnknown) {
					t.Fatalf("commit: got %v, want ErrUnknown", commit.Err)
				}
				s.Settle(t.Context(), []*partition.Settlement{commit})
				if commit.Err != nil {
					t.Fatalf("commit again: %v", commit.Err)
				}
				o, err := s.Overview(t.Context(), s.ns)
				if err != nil || o.Ledger != (partition.Ledger{Accepted: 3, Delivered: 1, Buffered: 2}) {
					t.Errorf("ledger %+v (%v)", o.Ledger, err)
				}
			})
		}
	}
}

// failover keeps producing while fail kills the primary, and wants entries to
// flow again soon after, with no error but the two that say so.
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
				err := s.produce(name, "during")
				if took := time.Since(began); took > 2*time.Second {
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
		t.Error("nothing was refused: this proves nothing")
	}
	// The way out, too.
	redistest.Until(t, 10*time.Second, "the way out works", func() bool {
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
