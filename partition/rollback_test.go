package partition_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// attended is a site with a janitor, whose metrics and log the test reads.
type attended struct {
	*site
	reg  *prometheus.Registry
	logs *observer.ObservedLogs
}

func attend(t *testing.T, url string, change func(*partition.Config)) *attended {
	t.Helper()
	policy := partition.DefaultPolicy()
	policy.Capacity = 1_000_000
	cfg := partition.Config{URL: url, Prefix: "sw", Namespaces: map[string]partition.Policy{"default": policy}}
	if change != nil {
		change(&cfg)
	}
	core, logs := observer.New(zap.WarnLevel)
	reg := prometheus.NewRegistry()
	s, err := partition.Open(cfg, reg, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	startJanitor(t, s)
	return &attended{&site{Store: s, t: t, ns: s.Namespace("default")}, reg, logs}
}

// counter is the value of a metric that has no labels.
func (a *attended) counter(name string) int64 {
	a.t.Helper()
	families, err := a.reg.Gather()
	if err != nil {
		a.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return int64(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	a.t.Fatalf("no metric %s", name)
	return 0
}

func (a *attended) rolledBack() int64 { return a.counter("spillway_store_rolled_back_entries_total") }

// load runs producers until stop is called, which returns how many entries were
// acknowledged and how many are unknown.
func (a *attended) load(producers int) (acked *atomic.Int64, stop func() (acks, unknowns int64)) {
	var known, unknown atomic.Int64
	end := make(chan struct{})
	var running sync.WaitGroup
	for i := range producers {
		running.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				switch err := a.produce(fmt.Sprint("p", i), fmt.Sprintf("p%d.x", i)); {
				case err == nil:
					known.Add(1)
				case errors.Is(err, partition.ErrUnknown):
					unknown.Add(1)
				case !errors.Is(err, partition.ErrUnavailable):
					a.t.Errorf("produce: %v", err)
				}
			}
		})
	}
	return &known, func() (int64, int64) {
		close(end)
		running.Wait()
		return known.Load(), unknown.Load()
	}
}

// awaitChecks waits for two more rollback checks of the janitor, which makes one per
// second.
func (a *attended) awaitChecks(c interface{ calls() int64 }) {
	a.t.Helper()
	before := c.calls()
	redistest.Until(a.t, 10*time.Second, "the janitor has checked", func() bool { return c.calls() > before+1 })
}

// hmgets counts a server's HMGET from clients: the rollback checks.
type hmgets struct{ server *redistest.Server }

func (h hmgets) calls() int64 {
	c := h.server.Client()
	defer c.Close()
	var n int64
	_, _ = fmt.Sscanf(c.InfoMap(context.Background(), "commandstats").Item("Commandstats", "cmdstat_hmget"), "calls=%d", &n)
	return n
}

// A Redis without persistence is killed under load: acknowledged entries are gone, and
// the counter says at least how many.
func TestALostStoreIsReportedWithAFigure(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"no persistence": nil, "snapshot only": {"--save", "3600 1000000"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, args...)
			c := server.Client()
			a := attend(t, server.URL(), nil)
			usable(t, a.Store)
			acked, stop := a.load(4)
			redistest.Until(t, 10*time.Second, "entries flow", func() bool { return acked.Load() > 500 })
			if args != nil {
				if err := c.Save(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				// More than what is checked below: a few scripts ran before the snapshot and were answered after it.
				before := acked.Load()
				redistest.Until(t, 10*time.Second, "entries flow", func() bool { return acked.Load() > before+600 })
			}
			server.Kill()
			server.Launch()
			before := acked.Load()
			redistest.Until(t, 10*time.Second, "entries flow again", func() bool { return acked.Load() > before+100 })
			redistest.Until(t, 10*time.Second, "the loss is counted", func() bool { return a.rolledBack() > 0 })
			acks, unknowns := stop()
			o, err := a.Overview(t.Context(), a.ns)
			if err != nil {
				t.Fatal(err)
			}
			// Seen from outside: what was acknowledged and is not accounted for, and no
			// more than that and what may have been stored unseen.
			missing := acks - o.Ledger.Accepted
			got := a.rolledBack()
			if missing < 500 {
				t.Fatalf("only %d acknowledged entries are gone: this proves nothing", missing)
			}
			if got > missing+unknowns || got < missing/2 {
				t.Errorf("counted %d, gone are %d to %d", got, missing, missing+unknowns)
			}
			lines := a.logs.FilterMessageSnippet("rolled back").All()
			if len(lines) != 1 || lines[0].ContextMap()["entries"] != got || lines[0].ContextMap()["namespace"] != "default" {
				t.Errorf("log: %v", lines)
			}
			t.Logf("%d acknowledged, %d unknown, %d accounted for: %d counted as rolled back", acks, unknowns, o.Ledger.Accepted, got)
		})
	}
}

// An operator deletes everything.
func TestAnEmptiedStoreIsReportedInFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := server.Client()
	a, other := attend(t, server.URL(), nil), open(t, server.URL(), nil)
	for range 50 {
		if err := a.produce("kart", "x"); err != nil {
			t.Fatal(err)
		}
	}
	a.awaitChecks(hmgets{server})
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	// Another process stores more than was there, before the next rollback check.
	usable(t, other.Store)
	g := &partition.Group{Namespace: other.ns, Partition: "kart"}
	for range 200 {
		g.Entries = append(g.Entries, entry("y"))
	}
	other.Produce(t.Context(), []*partition.Group{g})
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	redistest.Until(t, 10*time.Second, "the loss is counted", func() bool { return a.rolledBack() > 0 })
	if got := a.rolledBack(); got != 50 {
		t.Errorf("counted %d, want 50", got)
	}
}

// What only looks like a loss is not reported: a kill of a Redis that persists every
// write, other processes, repeats under an idempotency key, partitions that end,
// upgrades of a store without epochs, and many clients.
func TestNothingButALossIsReportedAsOne(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	c := server.Client()
	old := open(t, server.URL(), nil) // from before there were epochs
	if err := old.produce("old", "old.x"); err != nil {
		t.Fatal(err)
	}
	c.HDel(t.Context(), "sw:{default.0}:ledger", "epoch")

	a, b := attend(t, server.URL(), nil), attend(t, server.URL(), nil)
	usable(t, a.Store)
	if c.HGet(t.Context(), "sw:{default.0}:ledger", "epoch").Val() == "" {
		t.Error("an upgraded ledger got no epoch")
	}
	mine, stopMine := a.load(8)
	_, stopTheirs := b.load(8)
	w := &recorder{acked: map[string]bool{}, written: map[string]map[int64]string{}}
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() { w.drain(ctx, a.site, 1) })
	others.Go(func() {
		for ctx.Err() == nil {
			for range 2 {
				g := &partition.Group{Namespace: a.ns, Partition: "keyed", Entries: [][]byte{entry("keyed.x")}, IdempotencyKey: "k"}
				a.Produce(ctx, []*partition.Group{g})
			}
		}
	})
	for range 2 {
		before := mine.Load()
		redistest.Until(t, 20*time.Second, "entries flow", func() bool { return mine.Load() > before+200 })
		server.Kill()
		server.Launch()
	}
	before := mine.Load()
	redistest.Until(t, 20*time.Second, "entries flow", func() bool { return mine.Load() > before+200 })
	a.awaitChecks(hmgets{server})
	stop()
	others.Wait()
	acks, _ := stopMine()
	stopTheirs()
	for name, s := range map[string]*attended{"one": a, "two": b} {
		if got := s.rolledBack(); got != 0 {
			t.Errorf("process %s counted %d entries: %v", name, got, s.logs.All())
		}
	}
	t.Logf("%d entries acknowledged through two kills", acks)
}
