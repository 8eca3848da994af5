package partition_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

// openOn opens a store with namespaces of the default policy.
func openOn(t *testing.T, cfg partition.Config, namespaces ...string) *partition.Store {
	t.Helper()
	cfg.Prefix, cfg.Namespaces = "sw", map[string]partition.Policy{}
	for _, name := range namespaces {
		cfg.Namespaces[name] = partition.DefaultPolicy()
	}
	s, err := partition.Open(cfg, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestAStoreThatIsStoppedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	stopped, other := redistest.Start(t), redistest.Start(t)
	all, err := partition.Join(openOn(t, partition.Config{URL: stopped.URL()}, "kart", "golf"), openOn(t, partition.Config{URL: other.URL()}, "chess"))
	if err != nil {
		t.Fatal(err)
	}
	group := func(namespace string) *partition.Group {
		return &partition.Group{Namespace: all.Namespace(namespace), Partition: "p", Entries: [][]byte{entry("x")}}
	}
	groups := []*partition.Group{group("kart"), group("chess"), group("golf")}
	all.Produce(t.Context(), groups)
	for _, g := range groups {
		if g.Err != nil {
			t.Fatalf("%s: %v", g.Namespace.Name, g.Err)
		}
	}
	var names string
	for _, ns := range all.Namespaces() {
		names += fmt.Sprintf("%s in zone %d, ", ns.Name, ns.ZoneOf("p"))
	}
	if names != "chess in zone 1, golf in zone 0, kart in zone 0, " || all.Zones() != 2 {
		t.Errorf("%s%d zones", names, all.Zones())
	}

	stopped.Signal(syscall.SIGSTOP)
	defer stopped.Signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	groups = []*partition.Group{group("kart"), group("chess")}
	all.Produce(ctx, groups)
	if !errors.Is(groups[0].Err, partition.ErrUnknown) || groups[1].Err != nil {
		t.Errorf("while one is stopped: %v, and %v", groups[0].Err, groups[1].Err)
	}
	chess := all.Namespace("chess")
	began := time.Now()
	redistest.Until(t, 10*time.Second, "its entries come due", func() bool {
		now, _ := all.NowOf(chess)
		list, _, err := all.Due(t.Context(), chess, 0, 0, 10)
		return err == nil && len(list) == 1 && list[0].Due <= now
	})
	claims := all.Claim(t.Context(), []partition.ClaimRequest{{Namespace: chess, Partition: "p", MaxBatches: 1}}, time.Minute)
	if claims[0].Err != nil || claims[0].Lease == nil {
		t.Fatalf("claim: %+v", claims[0])
	}
	l := claims[0].Lease
	commit := &partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Delivered: int(l.To - l.From)}
	all.Settle(t.Context(), []*partition.Commit{commit}, nil)
	if o, err := all.Overview(t.Context(), chess); err != nil || commit.Err != nil || o.Ledger.Delivered != 2 {
		t.Errorf("commit: %v; %+v, %v", commit.Err, o.Ledger, err)
	}
	t.Logf("delivered after %v", time.Since(began))
}

func TestStoresHaveTheClocksOfTheirOwnRedis(t *testing.T) {
	t.Parallel()
	known, away := openOn(t, partition.Config{Backend: backendtest.Open(t, backend.Config{URL: redistest.Start(t).URL()})}, "kart"), redistest.FreeAddr(t)
	all, err := partition.Join(known, openOn(t, partition.Config{URL: "redis://" + away}, "chess"))
	if err != nil {
		t.Fatal(err)
	}
	g := &partition.Group{Namespace: all.Namespace("kart"), Partition: "p", Entries: [][]byte{entry("x")}}
	all.Produce(t.Context(), []*partition.Group{g})
	if _, ok := all.Namespace("kart").Now(); !ok || g.Err != nil {
		t.Errorf("the clock of a store that answered is unknown; %v", g.Err)
	}
	if _, ok := all.Namespace("chess").Now(); ok {
		t.Error("a store that never answered has a clock")
	}
}

func TestJoinRejectsANamespaceOfTwoStores(t *testing.T) {
	t.Parallel()
	one := openOn(t, partition.Config{URL: "embedded:"}, "kart")
	if _, err := partition.Join(one, openOn(t, partition.Config{URL: "embedded:"}, "chess", "kart")); err == nil {
		t.Error("kart is in two stores")
	}
	if _, err := partition.Join(make([]*partition.Store, partition.MaxStores+1)...); err == nil {
		t.Error("too many stores")
	}
}

// What is open for several stores stays open when one of them is closed.
func TestStoresShareABackend(t *testing.T) {
	t.Parallel()
	b := backendtest.Open(t, backend.Config{URL: redistest.Start(t).URL()})
	one, two := openOn(t, partition.Config{Backend: b}, "kart"), openOn(t, partition.Config{Backend: b}, "chess")
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	g := &partition.Group{Namespace: two.Namespace("chess"), Partition: "p", Entries: [][]byte{entry("x")}}
	if two.Produce(t.Context(), []*partition.Group{g}); g.Err != nil {
		t.Error(g.Err)
	}
}

// A service of queues alone has no store of buffers.
func TestNoStoresAreOneZone(t *testing.T) {
	t.Parallel()
	all, err := partition.Join()
	if err != nil || all.Zones() != 1 || len(all.Namespaces()) != 0 {
		t.Errorf("got %v, %v", all, err)
	}
}

// Every goroutine of a Store ends with Close, except the client's own probe of a
// server that is down, which ends within a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// site is a Store on some Redis, with helpers.
type site struct {
	*partition.Store
	t       *testing.T
	ns      *partition.Namespace
	backend *backend.Backend // nil: the store's own
}

// Close also closes the connections.
func (s *site) Close() error {
	err := s.Store.Close()
	if s.backend != nil {
		_ = s.backend.Close()
	}
	return err
}

// open opens a Store that is patient: see backendtest.Patience.
func open(t *testing.T, url string, change func(*partition.Policy)) *site {
	t.Helper()
	return openPrefix(t, url, "sw", change)
}

func openPrefix(t *testing.T, url, prefix string, change func(*partition.Policy)) *site {
	t.Helper()
	return openSite(t, partition.Config{Backend: backendtest.Open(t, backend.Config{URL: url}), Prefix: prefix}, change)
}

// openHasty opens a Store with the time-outs of a service.
func openHasty(t *testing.T, url, prefix string, change func(*partition.Policy)) *site {
	t.Helper()
	return openSite(t, partition.Config{URL: url, Prefix: prefix}, change)
}

func openSite(t *testing.T, cfg partition.Config, change func(*partition.Policy)) *site {
	t.Helper()
	policy := partition.DefaultPolicy()
	policy.Capacity = 1_000_000
	if change != nil {
		change(&policy)
	}
	cfg.Namespaces = map[string]partition.Policy{"default": policy}
	s, err := partition.Open(cfg, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &site{s, t, s.Namespace("default"), cfg.Backend}
}

// usable has a store checked until that passes: the first connections may take a busy machine longer
// than the store waits for them.
func usable(tb testing.TB, s *partition.Store) {
	tb.Helper()
	var err error
	redistest.Until(tb, patience, "the store can be used", func() bool {
		if _, err = s.Check(tb.Context()); errors.Is(err, partition.ErrBroken) {
			tb.Fatal(err)
		}
		return err == nil
	})
}

// entry is one entry that cannot go stale while a test runs.
func entry(payload string) []byte {
	return partition.AppendEntry(nil, time.Now().Add(time.Hour).UnixMilli(), nil, []byte(payload))
}

// produce tries once. A busy machine takes seconds at times.
func (s *site) produce(name, payload string) error { return s.produceIn(patience, name, payload) }

// produceSoon has the deadline of a second that a request has.
func (s *site) produceSoon(name, payload string) error {
	return s.produceIn(time.Second, name, payload)
}

func (s *site) produceIn(limit time.Duration, name, payload string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	g := &partition.Group{Namespace: s.ns, Partition: name, Entries: [][]byte{entry(payload)}}
	s.Produce(ctx, []*partition.Group{g})
	return g.Err
}
