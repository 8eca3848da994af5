package drain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

// process is one process's store and drainer on a shared Redis.
type process struct {
	store *partition.Store
	ns    *partition.Namespace
	d     *Drainer
}

func startProcess(t *testing.T, url string, policy partition.Policy, cfg Config, s *fakeSink) *process {
	t.Helper()
	log := zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
	store, err := partition.Open(partition.Config{
		Backend: backendtest.Open(t, backend.Config{URL: url}), Prefix: "sw", Namespaces: map[string]partition.Policy{"games": policy},
	}, prometheus.NewRegistry(), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &process{store: store, ns: store.Namespace("games")}
	s.now = func() int64 { ms, _ := store.Now(); return ms }
	s.maxAge = policy.MaxAge
	p.d, err = New(cfg, store, []Target{{Namespace: p.ns, Sink: s, Label: "fake:"}}, prometheus.NewRegistry(), log)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) produce(t *testing.T, name string, n int) {
	t.Helper()
	p.produceOld(t, name, n, 0)
}

// produceOld appends n entries that happened some time ago.
func (p *process) produceOld(t *testing.T, name string, n int, age time.Duration) {
	t.Helper()
	now, _ := p.store.Now()
	now -= age.Milliseconds()
	g := &partition.Group{Namespace: p.ns, Partition: name}
	for i := range n {
		g.Entries = append(g.Entries, partition.AppendEntry(nil, now, nil, fmt.Appendf(nil, `{"i":%d}`, i)))
	}
	redistest.Until(t, time.Minute, "the entries are stored, or it is not known", func() bool {
		p.store.Produce(t.Context(), []*partition.Group{g})
		return !errors.Is(g.Err, partition.ErrUnavailable) // such as a connection that a machine which stands still does not make
	})
	if g.Err != nil {
		t.Fatal(g.Err)
	}
}

func (p *process) ledger(t *testing.T) partition.Ledger {
	t.Helper()
	o, err := p.store.Overview(t.Context(), p.ns)
	if err != nil {
		t.Fatal(err)
	}
	return o.Ledger
}

// drained waits until nothing is buffered. A Redis that was killed is probed twice a second.
func (p *process) drained(t *testing.T, limit time.Duration) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	give := time.After(limit)
	for {
		o, err := p.store.Overview(t.Context(), p.ns)
		if err == nil && o.Ledger.Buffered == 0 {
			return
		}
		if err != nil && !errors.Is(err, partition.ErrUnavailable) {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-give:
			t.Fatalf("still buffered after %v: %+v, %v", limit, o.Ledger, err)
		}
	}
}

func (p *process) start(t *testing.T) {
	t.Helper()
	if err := p.d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := p.d.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// A Redis that is killed while batches are leased comes back with what its AOF
// holds: what was not settled is written again, and the ledger stays exact.
func TestRedisKilledUnderLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "no")
	policy := partition.DefaultPolicy()
	policy.Linger = 20 * time.Millisecond
	cfg := DefaultConfig()
	cfg.SinkTimeout, cfg.Lease, cfg.Poll = 500*time.Millisecond, 2500*time.Millisecond, 50*time.Millisecond
	writes := make(chan struct{}, 1000)
	s := &fakeSink{write: func(context.Context, []*sink.Batch) error {
		select {
		case writes <- struct{}{}:
		default:
		}
		return nil
	}}
	s.caps.MaxInFlight = 2
	p := startProcess(t, server.URL(), policy, cfg, s)
	for i := range 20 {
		p.produce(t, fmt.Sprintf("p%d", i), 2000)
	}
	p.start(t)
	for range 20 {
		<-writes
	}
	server.Kill()
	server.Launch()
	p.drained(t, 30*time.Second)
	p.stop(t)
	if l := p.ledger(t); l != (partition.Ledger{Accepted: 40_000, Delivered: 40_000}) {
		t.Errorf("ledger %+v", l)
	}
	r := &rig{t: t, sink: s}
	for i := range 20 {
		r.ordered(fmt.Sprintf("p%d", i))
	}
}

// On a real Redis, two drainers side by side and one target that takes Writes of many
// partitions: it hangs, throttles, takes halves, rejects poison and fails now and
// then. The ledger is exact and the order is kept.
func TestRedisTwoDrainersAndAFailingSinkThatCoalesces(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	policy := partition.DefaultPolicy()
	policy.Linger = 50 * time.Millisecond
	policy.Shards = 2
	cfg := DefaultConfig()
	cfg.SinkTimeout, cfg.Lease = time.Second, 5*time.Second
	cfg.BackoffMax = 500 * time.Millisecond
	cfg.Poll = 50 * time.Millisecond
	write := func(ctx context.Context, batches []*sink.Batch) error {
		wait := time.NewTimer(time.Duration(rand.IntN(8)) * time.Millisecond)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		var poison sink.BatchError
		for i, b := range batches {
			for j, e := range b.Entries {
				if string(e.Payload) == `{"i":70}` {
					poison.Fail(i, j, sink.Permanent(errors.New("70")))
				}
			}
		}
		switch {
		case len(poison.Failed) > 0 && rand.IntN(3) == 0:
			return &poison
		case len(poison.Failed) > 0:
			return sink.Permanent(errors.New("one of them"))
		}
		switch rand.IntN(20) {
		case 0:
			return errDown
		case 1:
			var half sink.BatchError
			for i, b := range batches {
				for j := range b.Entries {
					if rand.IntN(2) == 0 {
						half.Fail(i, j, errDown)
					}
				}
			}
			return &half
		case 2:
			return sink.Throttle(errDown, 30*time.Millisecond)
		case 3:
			return sink.ErrNotConnected
		case 4:
			panic(errDown)
		case 5:
			return hang(ctx, batches)
		}
		return nil
	}
	shared := &fakeSink{write: write, caps: sink.Caps{MaxBatches: 1000, PreferEntries: 2000, Linger: 50 * time.Millisecond}}
	one := startProcess(t, server.URL(), policy, cfg, shared)
	two := startProcess(t, server.URL(), policy, cfg, shared)
	one.start(t)
	two.start(t)
	const entries = 100
	partitions := size(200, 60)
	for p := range partitions {
		one.produce(t, fmt.Sprintf("p%d", p), entries)
	}
	one.drained(t, 90*time.Second)
	two.stop(t)
	one.stop(t)

	l := one.ledger(t)
	if want := (partition.Ledger{Accepted: int64(partitions) * entries, Delivered: int64(partitions) * (entries - 1), Dead: int64(partitions)}); l != want {
		t.Errorf("ledger\n got %+v\nwant %+v", l, want)
	}
	if residual, err := one.store.Audit(t.Context(), one.ns); residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
	if shared.stale > 0 {
		t.Errorf("%d stale entries were written", shared.stale)
	}
	r := &rig{t: t, sink: shared}
	for p := range partitions {
		name := fmt.Sprintf("p%d", p)
		r.ordered(name)
		seen := map[int64]bool{}
		for _, seq := range flat(shared.of(name)) {
			seen[seq] = true
		}
		if len(seen) != entries {
			t.Errorf("%s: the sink saw %d of %d entries", name, len(seen), entries)
		}
	}
}
