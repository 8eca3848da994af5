package drain

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

// A settleSpy counts the commits and releases that are sent and those that are
// answered.
type settleSpy struct {
	*partition.Store
	mu      sync.Mutex
	sent    map[string]int // by partition
	settled map[string]int // without an error
	failed  map[string]int
}

func (s *settleSpy) Settle(ctx context.Context, commits []*partition.Commit, releases []*partition.Release) {
	s.mu.Lock()
	for _, c := range commits {
		s.sent[c.Lease.Partition]++
	}
	for _, r := range releases {
		s.sent[r.Lease.Partition]++
	}
	s.mu.Unlock()
	s.Store.Settle(ctx, commits, releases)
	s.mu.Lock()
	defer s.mu.Unlock()
	answered := func(l *partition.Lease, err error) {
		if err == nil {
			s.settled[l.Partition]++
		} else {
			s.failed[l.Partition]++
		}
	}
	for _, c := range commits {
		answered(c.Lease, c.Err)
	}
	for _, r := range releases {
		answered(r.Lease, r.Err)
	}
}

// counts are the commits and releases of a partition.
func (s *settleSpy) counts(name string) (sent, settled, failed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[name], s.settled[name], s.failed[name]
}

// One of three masters is frozen while a batch of its own is with the sink. Its
// commit gets no answer for the read timeout; meanwhile the batches of the
// others are claimed, written and committed, again and again.
func TestAFrozenMasterDelaysNoSettlementsOfTheOthers(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 3)
	policy := partition.DefaultPolicy()
	policy.Shards, policy.Linger = 12, 0
	store, err := partition.Open(partition.Config{
		Backend: backendtest.Open(t, backend.Config{URL: servers.URL()}), Prefix: "sw", Namespaces: map[string]partition.Policy{"games": policy},
	}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	ns := store.Namespace("games")
	redistest.Until(t, 10*time.Second, "the store can be used", func() bool { _, err := store.Check(t.Context()); return err == nil })
	p := &process{store: store, ns: ns}

	// One partition on the master that will freeze, one on each of the others.
	names := make([]string, 3)
	for i := 0; slices.Contains(names, ""); i++ {
		name := fmt.Sprint("p", i)
		names[servers.MasterOf(backend.ShardPrefix("sw", "games", ns.ShardOf(name), ns.Shards())+"ready")] = name
	}
	gone, left := names[0], names[1:]
	frozen := servers.Masters[0]

	writing, frozenNow := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := &fakeSink{now: func() int64 { ms, _ := store.Now(); return ms }, maxAge: policy.MaxAge}
	s.write = func(ctx context.Context, batches []*sink.Batch) error {
		if batches[0].Partition != gone {
			return nil
		}
		once.Do(func() { close(writing) })
		select {
		case <-frozenNow:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	spy := &settleSpy{Store: store, sent: map[string]int{}, settled: map[string]int{}, failed: map[string]int{}}
	cfg := DefaultConfig()
	cfg.Poll = 50 * time.Millisecond
	if p.d, err = New(cfg, spy, []Target{{Namespace: ns, Sink: s, Label: "fake:"}}, prometheus.NewRegistry(), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	p.start(t)
	p.produce(t, gone, 10)
	<-writing
	frozen.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { frozen.Signal(syscall.SIGCONT) })
	close(frozenNow)
	redistest.Until(t, 10*time.Second, "the commit to the frozen master is on its way", func() bool { sent, _, _ := spy.counts(gone); return sent > 0 })
	rounds := int64(0) // one before the commit times out proves it; a busy machine takes as long for five
	for failed := 0; rounds < 5 && failed == 0; rounds++ {
		for _, name := range left {
			_, before, _ := spy.counts(name)
			p.produce(t, name, 1)
			redistest.Until(t, 10*time.Second, "it is settled", func() bool { _, n, _ := spy.counts(name); return n > before })
		}
		if _, _, failed = spy.counts(gone); failed > 0 && rounds == 0 {
			t.Fatal("the commit to the frozen master timed out before the others had settled")
		}
	}
	// When it thaws nothing is missing, and nothing is out of order.
	frozen.Signal(syscall.SIGCONT)
	redistest.Until(t, 30*time.Second, "everything is settled", func() bool {
		o, err := store.Overview(t.Context(), ns)
		return err == nil && o.Ledger == partition.Ledger{Accepted: 10 + 2*rounds, Delivered: 10 + 2*rounds}
	})
	for _, name := range names {
		var last int64
		seen := map[int64]bool{}
		for _, seq := range flat(s.of(name)) {
			if seq < last && !seen[seq] {
				t.Errorf("%s: %d is presented for the first time after %d", name, seq, last)
			}
			last, seen[seq] = max(last, seq), true
		}
	}
	p.stop(t)
}
