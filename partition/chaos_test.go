package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// recorder is a set of clients that record what the store told them and what they saw.
type recorder struct {
	mu      sync.Mutex
	acked   map[string]bool
	unknown int
	written map[string]map[int64]string // partition → sequence → payload, as a sink saw them
	repeats int
	claims  int // whose reply was lost
	commits int
}

// produce reports entries of one partition until n are acknowledged.
func (w *recorder) produce(s *site, name string, n int) {
	tick := time.NewTicker(2 * time.Millisecond) // a Redis that is away is asked no more often
	defer tick.Stop()
	for i := 0; n > 0; i++ {
		payload := fmt.Sprintf("%s.%d", name, i)
		err := s.produceSoon(name, payload)
		if err != nil {
			<-tick.C
		}
		w.mu.Lock()
		switch {
		case err == nil:
			w.acked[payload] = true
			n--
		case errors.Is(err, partition.ErrUnknown):
			w.unknown++
		case !errors.Is(err, partition.ErrUnavailable):
			s.t.Errorf("produce: %v", err)
		}
		w.mu.Unlock()
	}
}

// drain is a correct drainer: it releases claims with an unknown outcome, writes,
// repeats a commit until its outcome is known, and sometimes dies with a lease.
func (w *recorder) drain(ctx context.Context, s *site, seed uint64) {
	roll := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		list, total, err := s.Due(ctx, s.ns, 0, 0, 3)
		if err != nil || total == 0 {
			now, _ := s.Now()
			s.WaitDue(ctx, s.ns, 0, now+3, time.Second)
			continue
		}
		var requests []partition.ClaimRequest
		for _, d := range list {
			requests = append(requests, partition.ClaimRequest{Namespace: s.ns, Partition: d.Partition, MaxBatches: 1 + roll.IntN(3)})
		}
		claims := s.Claim(ctx, requests, 200*time.Millisecond)
		_ = s.ReleaseUnknown(context.WithoutCancel(ctx), claims)
		for _, c := range claims {
			if errors.Is(c.Err, partition.ErrUnknown) {
				w.mu.Lock()
				w.claims++
				w.mu.Unlock()
			}
			if c.Lease == nil || roll.IntN(20) == 0 {
				continue
			}
			w.write(s.t, c.Lease)
			if roll.IntN(20) > 0 {
				w.settle(ctx, s, c.Lease, roll)
			}
		}
	}
}

func (w *recorder) write(t *testing.T, l *partition.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.written[l.Partition] == nil {
		w.written[l.Partition] = map[int64]string{}
	}
	for _, e := range l.Entries {
		was, again := w.written[l.Partition][e.Seq]
		if again {
			w.repeats++
		}
		if again && was != string(e.Payload) {
			t.Errorf("%s: sequence %d was %q and is %q", l.Partition, e.Seq, was, e.Payload)
		}
		if !strings.HasPrefix(string(e.Payload), l.Partition+".") {
			t.Errorf("%s: got %q", l.Partition, e.Payload)
		}
		w.written[l.Partition][e.Seq] = string(e.Payload)
	}
}

func (w *recorder) settle(ctx context.Context, s *site, l *partition.Lease, roll *rand.Rand) {
	lo := l.From
	for _, hi := range l.Cuts {
		for try := 0; ; try++ {
			var err error
			release := roll.IntN(10) == 0
			if release {
				r := &partition.Release{Lease: l, Attempt: l.Attempt, Delay: 5 * time.Millisecond}
				s.Release(context.WithoutCancel(ctx), []*partition.Release{r})
				err = r.Err
			} else {
				c := &partition.Commit{Lease: l, Lo: lo, Hi: hi, Delivered: int(hi - lo)}
				s.Commit(context.WithoutCancel(ctx), []*partition.Commit{c})
				err = c.Err
			}
			if errors.Is(err, partition.ErrUnknown) {
				w.mu.Lock()
				w.commits++
				w.mu.Unlock()
			}
			if err == nil && !release {
				break
			}
			if err == nil || errors.Is(err, partition.ErrGone) {
				return
			}
			if !errors.Is(err, partition.ErrUnknown) && !errors.Is(err, partition.ErrUnavailable) {
				s.t.Errorf("settle: %v", err)
				return
			}
		}
		lo = hi
	}
}

// Replies get lost at random on every path while entries flow, drainers die, janitors
// run and an operator pauses and resumes. No acknowledged entry is missing, none is counted twice, and the
// ledger says what the recorder counted.
func TestNothingIsLostOrCountedTwiceWhileRepliesAreLost(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, c, url := start(t)
			policy := func(p *partition.Policy) { p.Batch, p.Linger = 8, 5*time.Millisecond }
			s := open(t, url, policy)
			usable(t, s.Store)
			w := &recorder{acked: map[string]bool{}, written: map[string]map[int64]string{}}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var producing, others sync.WaitGroup
			p.every.Store(11)
			for i := range 3 {
				others.Go(func() { w.drain(ctx, s, uint64(i)) })
			}
			janitor := partition.NewJanitor(s.Store)
			if err := janitor.Start(ctx); err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				producing.Go(func() { w.produce(s, fmt.Sprint("p", i), seeds(200, 60)) })
			}
			operating, endOperating := context.WithCancel(ctx)
			var operator sync.WaitGroup
			pauses := 0
			operator.Go(func() { pauses = s.operate(operating, 6) })
			producing.Wait()
			endOperating()
			operator.Wait()
			redistest.Until(t, 20*time.Second, "everything is drained", func() bool {
				return c.Exists(t.Context(), "sw:{default.0}:ready").Val() == 0
			})
			stop()
			others.Wait()
			if err := janitor.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.every.Store(0)

			o, err := s.Overview(t.Context(), s.ns)
			if err != nil {
				t.Fatal(err)
			}
			a, seen := int64(len(w.acked)), int64(0)
			missing := len(w.acked)
			copies := map[string]int{}
			for _, entries := range w.written {
				for _, payload := range entries {
					seen++
					copies[payload]++
					if w.acked[payload] {
						missing--
					}
				}
			}
			for payload, n := range copies {
				if n > 1 {
					t.Errorf("%q is stored %d times", payload, n)
				}
			}
			if missing != 0 {
				t.Errorf("%d acknowledged entries never reached the sink", missing)
			}
			if l := o.Ledger; l.Accepted < a || l.Accepted > a+int64(w.unknown) {
				t.Errorf("accepted %d, want %d to %d", l.Accepted, a, a+int64(w.unknown))
			}
			if want := (partition.Ledger{Accepted: seen, Delivered: seen}); o.Ledger != want {
				t.Errorf("ledger %+v, the sink saw %d", o.Ledger, seen)
			}
			t.Logf("%d acknowledged, %d unknown, %d seen, %d repeats, %d claims and %d commits unknown", a, w.unknown, seen, w.repeats, w.claims, w.commits)
			if w.unknown == 0 || w.repeats == 0 || w.claims == 0 || w.commits == 0 || pauses == 0 {
				t.Error("too little went wrong: this proves nothing")
			}
		})
	}
}

// A slot moves to another master while its shard is in use. A call is rejected
// or runs whole, and no entry is lost, doubled or out of order.
func TestASlotMovesWhileItsShardIsInUse(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 2)
	s := open(t, servers.URL(), nil)
	usable(t, s.Store)
	const prefix = "sw:{default.0}:"
	names := []string{"a", "b", "c"}
	stop := make(chan struct{})
	var producing sync.WaitGroup
	var mu sync.Mutex
	acked, rejected := map[string][]string{}, 0
	for _, name := range names {
		producing.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				payload := fmt.Sprint(i)
				err := s.produce(name, payload)
				if err != nil {
					<-tick.C
				}
				mu.Lock()
				switch {
				case err == nil:
					acked[name] = append(acked[name], payload)
				case errors.Is(err, partition.ErrUnavailable):
					rejected++
				default:
					t.Errorf("%s: got %v, want ErrUnavailable", name, err)
				}
				mu.Unlock()
			}
		})
	}
	flowing := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			if len(acked[name]) < 50 {
				return false
			}
		}
		return true
	}
	redistest.Until(t, 20*time.Second, "entries flow", flowing)

	ctx := context.Background()
	slot := servers.Masters[0].Client().ClusterKeySlot(ctx, prefix).Val()
	from, to := -1, -1
	for i := range servers.Masters {
		if servers.MasterOf(prefix) == i {
			from = i
		} else {
			to = i
		}
	}
	source, target := servers.Masters[from].Client(), servers.Masters[to].Client()
	sourceID, targetID := source.ClusterMyID(ctx).Val(), target.ClusterMyID(ctx).Val()
	host, port, _ := net.SplitHostPort(servers.Masters[to].Addr)
	do := func(c *redis.Client, args ...any) {
		t.Helper()
		if err := c.Do(ctx, args...).Err(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	do(target, "cluster", "setslot", slot, "importing", sourceID)
	do(source, "cluster", "setslot", slot, "migrating", targetID)
	redistest.Until(t, 20*time.Second, "all keys have moved", func() bool {
		keys := source.ClusterGetKeysInSlot(ctx, int(slot), 1).Val()
		for _, key := range keys {
			do(source, "migrate", host, port, key, 0, 1000)
		}
		return len(keys) == 0
	})
	do(target, "cluster", "setslot", slot, "node", targetID)
	do(source, "cluster", "setslot", slot, "node", targetID)
	mu.Lock()
	clear(acked)
	mu.Unlock()
	redistest.Until(t, 20*time.Second, "entries flow again", flowing)
	close(stop)
	producing.Wait()

	for _, name := range names {
		var got []string
		for _, e := range target.LRange(ctx, prefix+"q:"+name, 0, -1).Val() {
			got = append(got, e[14:])
		}
		last := -1
		for _, payload := range got {
			var n int
			if _, err := fmt.Sscan(payload, &n); err != nil || n <= last {
				t.Fatalf("%s holds %q after %d", name, payload, last)
			}
			last = n
		}
		if text := strings.Join(got, " ") + " "; !strings.Contains(text, strings.Join(acked[name], " ")+" ") {
			t.Errorf("%s misses acknowledged entries", name)
		}
	}
	if residual, err := s.Audit(t.Context(), s.ns); residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
	t.Logf("%d calls were rejected meanwhile", rejected)
}

// seeds is how many of the whole are tried with -short.
func seeds(whole, short int) int {
	if testing.Short() {
		return short
	}
	return whole
}
