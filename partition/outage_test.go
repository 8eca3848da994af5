package partition_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

func TestAStoreThatIsDownAtTheStartWorksOnceItIsUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	s := open(t, server.URL(), nil)
	if _, ok := s.Now(); ok {
		t.Error("the clock is known")
	}
	for i := range 20 { // more than the pool has connections
		if err := s.produceSoon("kart", "x"); !errors.Is(err, partition.ErrUnavailable) {
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
	took := redistest.Until(t, 10*time.Second, "produce works", func() bool { return s.produceSoon("kart", "x") == nil })
	t.Logf("worked %v after the launch", took)
	redistest.Until(t, 10*time.Second, "check passes", func() bool { _, err := s.Check(t.Context()); return err == nil })
}

// Through two kills of a Redis that persists every write: the store counts at least
// the acknowledged entries, and at most those and the unknown ones.
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
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				err := s.produceSoon("kart", fmt.Sprintf("%d.%d", i, n))
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
	// Ticks of this process are what a call may take: they pass as slowly as it does.
	var ticks atomic.Int64
	tick := time.NewTicker(100 * time.Millisecond)
	counting, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		defer tick.Stop()
		for counting.Err() == nil {
			<-tick.C
			ticks.Add(1)
		}
	}()
	var waiting sync.WaitGroup
	took := make([]int64, 40)
	for i := range took {
		waiting.Go(func() {
			began := ticks.Load()
			err := s.produceSoon("kart", "x")
			took[i] = ticks.Load() - began
			if !errors.Is(err, partition.ErrUnknown) && !errors.Is(err, partition.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		})
	}
	waiting.Wait()
	if slices.Sort(took); took[len(took)/2] > 12 || took[len(took)-1] > 30 {
		t.Errorf("produces with 1s took %v ticks of 0.1s", took)
	}
	server.Signal(syscall.SIGCONT)
	redistest.Until(t, 10*time.Second, "produce works", func() bool { return s.produceSoon("kart", "x") == nil })
}

// A script of another program blocks Redis, for connections that are open and for new
// ones.
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
		var err error
		redistest.Until(t, patience, name+": the reason is told", func() bool { // a busy machine may not hear of it in time
			err = s.produce("kart", "x")
			return err == nil || strings.Contains(err.Error(), "BUSY")
		})
		if !errors.Is(err, partition.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable and the reason", name, err)
		}
	}
	if err := c.ScriptKill(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	spinning.Wait()
	redistest.Until(t, 10*time.Second, "produce works", func() bool { return connected.produceSoon("kart", "x") == nil })
}

// The script ran and its reply is lost: the outcome is unknown, and the entry is
// stored once.
func TestALostReplyIsUnknownAndStoredOnce(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) (*proxy, *redis.Client, string){
		"one Redis": func(t *testing.T) (*proxy, *redis.Client, string) {
			server := redistest.Start(t)
			p := startProxy(t, redistest.FreeAddr(t), server.Addr)
			return p, server.Client(), p.url
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
				usable(t, s.Store)
				p.stall.Store(stall)
				for i := range 3 {
					p.lose.Store(1)
					if err := s.produceSoon("kart", fmt.Sprint("lost ", i)); !errors.Is(err, partition.ErrUnknown) {
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
				claim := s.Claim(ctx, []partition.ClaimRequest{{Namespace: s.ns, Partition: "kart", MaxBatches: 1}}, time.Hour)[0]
				if !errors.Is(claim.Err, partition.ErrUnknown) || claim.Lease != nil {
					t.Fatalf("claim: got %v %v, want ErrUnknown", claim.Lease, claim.Err)
				}
				if err := s.ReleaseUnknown(t.Context(), []partition.ClaimResult{claim}); err != nil {
					t.Fatal(err)
				}
				claim = s.Claim(t.Context(), []partition.ClaimRequest{claim.ClaimRequest}, time.Hour)[0]
				if claim.Err != nil || claim.Lease == nil {
					t.Fatalf("claim after forgetting: %v %v", claim.Lease, claim.Err)
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				p.lose.Store(1)
				l := claim.Lease
				commit := &partition.Commit{Lease: l, Lo: l.From, Hi: l.From + 1, Delivered: 1}
				s.Commit(ctx, []*partition.Commit{commit})
				if !errors.Is(commit.Err, partition.ErrUnknown) {
					t.Fatalf("commit: got %v, want ErrUnknown", commit.Err)
				}
				s.Commit(t.Context(), []*partition.Commit{commit})
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

// While one master of three is frozen the store is ready, because the others work. It
// is not ready when none is left, and not for a process that has never read all
// ledgers. The janitor continues with the masters that are reachable.
func TestTheStoreIsReadyWhileAnyShardCanBeReached(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 3)
	policy := func(p *partition.Policy) { p.Shards = 12 }
	s := openHasty(t, servers.URL(), "sw", policy)
	usable(t, s.Store)
	names := make([]string, 3)
	for i := range 100 {
		name := fmt.Sprint("p", i)
		names[servers.MasterOf(backend.ShardPrefix("sw", "default", s.ns.ShardOf(name), s.ns.Shards())+"ready")] = name
	}
	thaw := func(i int) {
		servers.Masters[i].Signal(syscall.SIGCONT)
	}
	check := func(s *site) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // as readiness gives it
		defer cancel()
		_, err := s.Check(ctx)
		return err
	}
	other := openHasty(t, servers.URL(), "sw", policy)
	usable(t, other.Store)
	startJanitor(t, other.Store)
	servers.Masters[0].Signal(syscall.SIGSTOP)
	t.Cleanup(func() { thaw(0) })
	for range seeds(5, 3) { // before and after the breakers open
		redistest.Until(t, patience, "it can be used while one of three is frozen", func() bool { return check(s) == nil })
	}
	if err := check(openHasty(t, servers.URL(), "sw", policy)); !errors.Is(err, partition.ErrUnavailable) && !errors.Is(err, partition.ErrUnknown) {
		t.Errorf("a new process: got %v, want none that passes", err)
	}
	// The janitor finds lists on the other masters that the active set does not know.
	// If it waited for each frozen shard, that would take a minute.
	end := time.Now().Add(30 * time.Second)
	for i := range seeds(5, 2) {
		name := names[1+i%2]
		prefix := backend.ShardPrefix("sw", "default", s.ns.ShardOf(name), s.ns.Shards())
		c := servers.Masters[1+i%2].Client()
		if err := c.RPush(t.Context(), prefix+"q:"+name, entry("x")).Err(); err != nil {
			t.Fatal(err)
		}
		redistest.Until(t, time.Until(end), "the janitor finds the list", func() bool { return c.ZRem(t.Context(), prefix+"ready", name).Val() == 1 })
		if err := c.Del(t.Context(), prefix+"q:"+name, prefix+"m:"+name).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i := 1; i < 3; i++ {
		servers.Masters[i].Signal(syscall.SIGSTOP)
		t.Cleanup(func() { thaw(i) })
	}
	redistest.Until(t, 20*time.Second, "it cannot be used", func() bool { return check(s) != nil })
	for i := range 3 {
		thaw(i)
	}
	redistest.Until(t, 20*time.Second, "it can be used again", func() bool { return check(s) == nil })
}

// proxy forwards between a client and a Redis, and drops replies on demand: the script
// has run, and the client does not learn it.
type proxy struct {
	url   string       // for a target that is no cluster
	lose  atomic.Int32 // replies to lose yet
	every atomic.Int32 // one reply in so many is lost, too; 0: none
	seen  atomic.Int32 // replies of scripts
	stall atomic.Bool  // the connection stays open without the reply
	lost  atomic.Int32
}

// startProxy listens on addr for connections to the target.
func startProxy(t *testing.T, addr, target string) *proxy {
	t.Helper()
	p := &proxy{url: "redis://" + addr}
	redistest.Forward(t, addr, target, func(client, server net.Conn) {
		var script atomic.Bool // the request under way is a script
		var requests sync.WaitGroup
		requests.Go(func() { p.requests(client, server, &script) })
		p.replies(client, server, &script)
		requests.Wait()
	})
	return p
}

func (p *proxy) requests(client, server net.Conn, script *atomic.Bool) {
	defer server.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			// The verb is at the start of what the client writes at once.
			script.Store(bytes.Contains(bytes.ToLower(buf[:min(n, 64)]), []byte("\r\nevalsha\r\n")))
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) replies(client, server net.Conn, script *atomic.Bool) {
	defer client.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		ran := n > 0 && script.Load() && buf[0] == '*' // our scripts answer with arrays; errors pass
		every := p.every.Load()
		due := ran && every > 0 && p.seen.Add(1)%every == 0
		if due || ran && p.lose.Load() > 0 {
			if !due {
				p.lose.Add(-1)
			}
			p.lost.Add(1)
			if !p.stall.Load() {
				return
			}
			_, _ = io.Copy(io.Discard, server)
			return
		}
		if n > 0 {
			if _, werr := client.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
