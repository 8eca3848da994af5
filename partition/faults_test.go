package partition_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// The rows of FAULTS.md that are about one Redis and one store.

// With an append-only file that is written before the answer, killing Redis
// under load loses nothing that was acknowledged, entry by entry.
func TestNoAcknowledgedEntryIsLostWhenRedisIsKilled(t *testing.T) {
	t.Parallel()
	for _, fsync := range []string{"no", "always"} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", fsync)
			s := open(t, server.URL(), nil)
			w := &recorder{acked: map[string]bool{}}
			var running sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			for i := range 4 {
				running.Go(func() {
					for round := 0; ctx.Err() == nil; round++ {
						w.produce(s, fmt.Sprintf("p%d.%d", i, round), 50)
					}
				})
			}
			acked := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.acked) }
			for range 3 {
				before := acked()
				redistest.Until(t, 20*time.Second, "entries flow", func() bool { return acked() > before+500 })
				server.Kill()
				server.Launch()
			}
			stop()
			running.Wait()
			c := server.Client()
			stored := map[string]int{}
			for _, key := range c.Keys(t.Context(), "sw:{default.0}:q:*").Val() {
				for _, e := range c.LRange(t.Context(), key, 0, -1).Val() {
					stored[e[14:]]++
				}
			}
			missing, twice := 0, 0
			for payload := range w.acked {
				if stored[payload] == 0 {
					missing++
				}
			}
			for _, n := range stored {
				if n > 1 {
					twice++
				}
			}
			if missing > 0 || twice > 0 || len(stored) > len(w.acked)+w.unknown {
				t.Errorf("%d of %d acknowledged entries are gone, %d are there twice, %d in all with %d unknown",
					missing, len(w.acked), twice, len(stored), w.unknown)
			}
			t.Logf("appendfsync %s: 0 of %d acknowledged entries lost in 3 kills, %d unknown", fsync, len(w.acked), w.unknown)
		})
	}
}

func TestALoadingRedisIsUnavailableUntilItHasLoaded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	if err := s.produce("kart", "before"); err != nil {
		t.Fatal(err)
	}
	c := server.Client()
	if err := c.Do(t.Context(), "debug", "populate", 500).Err(); err != nil {
		t.Fatal(err)
	}
	c.ConfigSet(t.Context(), "key-load-delay", "2000")                        // µs a key: a second in all
	c.ConfigSet(t.Context(), "loading-process-events-interval-bytes", "1024") // it answers while it loads
	var reloading sync.WaitGroup
	reloading.Go(func() { c.Do(context.Background(), "debug", "reload") })
	defer reloading.Wait()
	var rejected error
	redistest.Until(t, 10*time.Second, "it loads", func() bool {
		rejected = s.produce("kart", "x")
		return rejected != nil && strings.Contains(rejected.Error(), "LOADING")
	})
	if !errors.Is(rejected, partition.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", rejected)
	}
	redistest.Until(t, 20*time.Second, "it has loaded", func() bool { return s.produce("kart", "after") == nil })
	if residual, err := s.Audit(t.Context(), s.ns); residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
}

// The disk below the append-only file is full. Redis answers the first write
// before it notices, where the file is written behind; then it rejects.
func TestAFullDiskRejectsWrites(t *testing.T) {
	t.Parallel()
	server := redistest.StartFullDisk(t, "--appendfsync", "everysec")
	s := open(t, server.URL(), nil)
	acked, unavailable := 0, 0
	redistest.Until(t, 10*time.Second, "writes are rejected", func() bool {
		switch err := s.produce("kart", "x"); {
		case err == nil:
			acked++
		case errors.Is(err, partition.ErrUnavailable):
			unavailable++
		default:
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		return unavailable > 20
	})
	err := s.produce("kart", "x")
	if err == nil || !strings.Contains(err.Error(), "MISCONF") {
		t.Errorf("got %v, want the reason", err)
	}
	if _, _, err := s.Due(t.Context(), s.ns, 0, 0, 1); err != nil && !errors.Is(err, partition.ErrUnavailable) {
		t.Errorf("due: %v", err)
	}
	t.Logf("%d were acknowledged before Redis noticed", acked)
}

// With appendfsync always Redis exits at the write that fails; the outcome of that
// write is unknown.
func TestAFullDiskEndsARedisThatSyncsAlways(t *testing.T) {
	t.Parallel()
	server := redistest.StartFullDisk(t, "--appendfsync", "always")
	s := open(t, server.URL(), nil)
	err := s.produce("kart", "x") // its Check writes first
	if !errors.Is(err, partition.ErrUnavailable) && !errors.Is(err, partition.ErrUnknown) {
		t.Errorf("got %v, want ErrUnavailable or ErrUnknown", err)
	}
	redistest.Until(t, 10*time.Second, "Redis has ended", server.Ended)
	if err := s.produce("kart", "x"); !errors.Is(err, partition.ErrUnavailable) {
		t.Errorf("afterwards: got %v, want ErrUnavailable", err)
	}
}

// The entries of lists that vanish are counted as lost, exactly, and the ledger adds up
// again once every partition was claimed or repaired.
func TestKeysThatVanishAreLostToTheEntry(t *testing.T) {
	t.Parallel()
	const prefix = "sw:{default.0}:q:"
	for name, vanish := range map[string]func(t *testing.T, s *redistest.Server, c *redis.Client){
		"expired": func(t *testing.T, _ *redistest.Server, c *redis.Client) {
			for i := range 5 {
				c.PExpire(t.Context(), fmt.Sprint(prefix, "p", i), time.Millisecond)
			}
			redistest.Until(t, 10*time.Second, "lists expire", func() bool { return len(c.Keys(t.Context(), prefix+"*").Val()) == 15 })
		},
		"deleted, and trimmed": func(t *testing.T, _ *redistest.Server, c *redis.Client) {
			c.Del(t.Context(), prefix+"p0", prefix+"p1")
			c.LTrim(t.Context(), prefix+"p2", 7, -1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			c := server.Client()
			s := open(t, server.URL(), func(p *partition.Policy) { p.Linger = 0 })
			for i := range 20 {
				g := &partition.Group{Namespace: s.ns, Partition: fmt.Sprint("p", i)}
				for range 50 {
					g.Entries = append(g.Entries, entry(strings.Repeat("x", 1000)))
				}
				s.Produce(t.Context(), []*partition.Group{g})
				if g.Err != nil {
					t.Fatal(g.Err)
				}
			}
			vanish(t, server, c)
			left := int64(0)
			for _, key := range c.Keys(t.Context(), prefix+"*").Val() {
				left += c.LLen(t.Context(), key).Val()
			}
			for i := range 20 { // a drainer comes by
				claim := s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: fmt.Sprint("p", i), MaxBatches: 1}}, time.Hour)[0]
				if claim.Err != nil {
					t.Fatal(claim.Err)
				}
			}
			o, err := s.Overview(t.Context(), s.ns)
			if want := (partition.Ledger{Accepted: 1000, Lost: 1000 - left, Buffered: left}); err != nil || o.Ledger != want || left == 1000 {
				t.Errorf("ledger %+v (%v), want %+v", o.Ledger, err, want)
			}
			if residual, err := s.Audit(t.Context(), s.ns); residual != 0 || err != nil {
				t.Errorf("audit: %d %v", residual, err)
			}
			t.Logf("%d of 1000 vanished", 1000-left)
		})
	}
}

// Redis accepts no further connection.
func TestARedisWithTooManyClientsIsUnavailable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxclients", "12")
	var others []*redis.Conn
	crowd := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DisableIdentity: true, PoolSize: 50})
	defer crowd.Close()
	for range 50 {
		conn := crowd.Conn()
		others = append(others, conn)
		if conn.Ping(t.Context()).Err() != nil {
			break
		}
	}
	s := open(t, server.URL(), nil)
	for range 20 { // the reason is lost where the connection is gone before it was read
		if err := s.produce("kart", "x"); !errors.Is(err, partition.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
	}
	for _, conn := range others {
		_ = conn.Close()
	}
	_ = crowd.Close()
	redistest.Until(t, 10*time.Second, "there is room again", func() bool { return s.produce("kart", "x") == nil })
}

func TestAClusterThatIsDownIsUnavailable(t *testing.T) {
	t.Parallel()
	server := redistest.StartClusterOfOne(t)
	c := server.Client()
	s := open(t, "redis-cluster://"+server.Addr, nil)
	if err := s.produce("kart", "x"); err != nil {
		t.Fatal(err)
	}
	do := func(args ...any) {
		t.Helper()
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	do("cluster", "delslotsrange", 0, 5)
	redistest.Until(t, 10*time.Second, "the cluster is down", func() bool {
		return strings.Contains(c.ClusterInfo(t.Context()).Val(), "cluster_state:fail")
	})
	err := s.produce("kart", "x")
	if !errors.Is(err, partition.ErrUnavailable) || !strings.Contains(err.Error(), "CLUSTERDOWN") {
		t.Errorf("got %v, want ErrUnavailable and the reason", err)
	}
	do("cluster", "addslotsrange", 0, 5)
	redistest.Until(t, 10*time.Second, "the cluster is up", func() bool { return s.produce("kart", "x") == nil })
}

// The error of a server that rejects writes is passed on, and nothing is lost: the
// entries that were stored can be claimed afterwards.
func TestAStoreThatRejectsWritesIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, rejection := range append([]redistest.Rejection{redistest.Full}, redistest.Rejections...) {
		t.Run(rejection.Word, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := open(t, server.URL(), func(p *partition.Policy) { p.Linger = 0 })
			for range 3 {
				if err := s.produce("kart", "x"); err != nil {
					t.Fatal(err)
				}
			}
			rejection.Begin(t, server)
			err := s.produce("kart", "x")
			if !errors.Is(err, partition.ErrUnavailable) || !strings.Contains(err.Error(), rejection.Word) || errors.Is(err, partition.ErrFull) != (rejection.Word == "OOM") {
				t.Errorf("got %v, want ErrUnavailable (ErrFull for OOM) and the reason", err)
			}
			claim := s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: "kart", MaxBatches: 1}}, time.Hour)[0]
			if rejection.Word == "OOM" {
				if claim.Lease == nil {
					t.Fatalf("a full store gives nothing out: %v", claim.Err)
				}
			} else if !errors.Is(claim.Err, partition.ErrUnavailable) || claim.Lease != nil {
				t.Errorf("claim: got %v %v, want ErrUnavailable", claim.Lease, claim.Err)
			}
			rejection.End(t, server)
			if claim.Lease == nil {
				redistest.Until(t, 10*time.Second, "it gives out again", func() bool {
					claim = s.Claim(t.Context(), []partition.ClaimRequest{claim.ClaimRequest}, time.Hour)[0]
					return claim.Lease != nil
				})
			}
			commit := &partition.Commit{Lease: claim.Lease, Lo: claim.Lease.From, Hi: claim.Lease.To, Delivered: 3}
			s.Commit(t.Context(), []*partition.Commit{commit})
			if o, err := s.Overview(t.Context(), s.ns); commit.Err != nil || err != nil || o.Ledger != (partition.Ledger{Accepted: 3, Delivered: 3}) {
				t.Errorf("%v %v ledger %+v", commit.Err, err, o.Ledger)
			}
		})
	}
}

// Redis forgets its scripts again and again, while pipelines of several partitions
// are under way. No caller sees an error, and the order of entries stays.
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
			const producers, spread = 3, 5
			rounds := seeds(150, 40)
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
					list := c.LRange(t.Context(), backend.ShardPrefix("sw", "default", s.ns.ShardOf(name), s.ns.Shards())+"q:"+name, 0, -1).Val()
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
