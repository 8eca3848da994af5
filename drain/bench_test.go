package drain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// nothing is a sink that takes everything at once.
type nothing struct{ caps sink.Caps }

func (nothing) Open(context.Context) error                 { return nil }
func (nothing) Write(context.Context, []*sink.Batch) error { return nil }
func (nothing) Close(context.Context) error                { return nil }
func (n nothing) Caps() sink.Caps                          { return n.caps }

// How fast a backlog of 100-byte entries drains from a Redis on this machine
// into a sink that costs nothing.
func BenchmarkDrain(b *testing.B) {
	for _, c := range []struct {
		name                string
		partitions, entries int
		caps                sink.Caps
	}{
		{"1000partitions/1280entries", 1000, 1280, sink.Caps{}},
		{"1000partitions/10entries", 1000, 10, sink.Caps{}},
		{"1partition/10000entries", 1, 10_000, sink.Caps{}},
		{"1000partitions/1280entries/coalescing", 1000, 1280, largeWrites},
		{"20000partitions/1entry/coalescing", 20_000, 1, largeWrites},
		{"1000partitions/1280entries/MaxInFlight1", 1000, 1280, sink.Caps{MaxInFlight: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			server := redistest.Start(b)
			policy := partition.DefaultPolicy()
			policy.Linger = 0
			store, err := partition.Open(partition.Config{
				URL: server.URL(), Prefix: "sw", Namespaces: map[string]partition.Policy{"games": policy},
			}, prometheus.NewRegistry(), zap.NewNop())
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			if err := store.Ping(b.Context()); err != nil {
				b.Fatal(err)
			}
			ns := store.Namespace("games")
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for b.Loop() {
				b.StopTimer()
				fill(b, store, ns, c.partitions, c.entries)
				d, err := New(DefaultConfig(), store, []Target{{Namespace: ns, Sink: nothing{c.caps}, Label: "nothing:"}}, prometheus.NewRegistry(), zap.NewNop())
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := d.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
				for left := int64(1); left > 0; {
					o, err := store.Overview(b.Context(), ns)
					if err != nil {
						b.Fatal(err)
					}
					left = o.Ledger.Buffered
					<-tick.C
				}
				if err := d.Stop(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			n := float64(b.N * c.partitions * c.entries)
			b.ReportMetric(n/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// How many claims several drainers of one Redis waste on each other: claims that
// brought nothing for each that brought a lease.
func BenchmarkDrainers(b *testing.B) {
	for _, load := range []struct {
		name   string
		steady bool
	}{{"backlog", false}, {"steady", true}} {
		for _, drainers := range []int{1, 4, 16} {
			b.Run(fmt.Sprintf("%s/%d", load.name, drainers), func(b *testing.B) {
				server := redistest.Start(b)
				policy := partition.DefaultPolicy()
				policy.Linger = 200 * time.Millisecond
				var leased, idle float64
				for b.Loop() {
					b.StopTimer()
					var all []*Drainer
					var store *partition.Store
					for range drainers {
						var err error
						if store, err = partition.Open(partition.Config{
							URL: server.URL(), Prefix: "sw", Namespaces: map[string]partition.Policy{"games": policy},
						}, prometheus.NewRegistry(), zap.NewNop()); err != nil {
							b.Fatal(err)
						}
						defer store.Close()
						if err := store.Ping(b.Context()); err != nil {
							b.Fatal(err)
						}
						d, err := New(DefaultConfig(), store, []Target{{Namespace: store.Namespace("games"), Sink: nothing{}, Label: "nothing:"}}, prometheus.NewRegistry(), zap.NewNop())
						if err != nil {
							b.Fatal(err)
						}
						all = append(all, d)
					}
					ns := store.Namespace("games")
					if !load.steady {
						fill(b, store, ns, 5000, 128)
					}
					b.StartTimer()
					for _, d := range all {
						if err := d.Start(b.Context()); err != nil {
							b.Fatal(err)
						}
					}
					tick := time.NewTicker(time.Millisecond)
					for i := 0; load.steady && i < 3000; i++ { // 10 entries a ms, to 5000 partitions
						<-tick.C
						var groups []*partition.Group
						now, _ := store.Now()
						for range 10 {
							groups = append(groups, &partition.Group{Namespace: ns, Partition: fmt.Sprintf("p%d", rand.IntN(5000)),
								Entries: [][]byte{partition.AppendEntry(nil, now, nil, []byte("x"))}})
						}
						store.Produce(b.Context(), groups)
					}
					for left := int64(1); left > 0; <-tick.C {
						o, err := store.Overview(b.Context(), ns)
						if err != nil {
							b.Fatal(err)
						}
						left = o.Ledger.Buffered
					}
					tick.Stop()
					for _, d := range all {
						if err := d.Stop(b.Context()); err != nil {
							b.Fatal(err)
						}
						m := d.namespaces[0].metrics
						leased += testutil.ToFloat64(m.claims.WithLabelValues(claimLeased))
						idle += testutil.ToFloat64(m.claims.WithLabelValues(claimIdle))
					}
				}
				b.ReportMetric(idle/leased, "wasted/lease")
				b.ReportMetric(leased/float64(b.N), "leases")
			})
		}
	}
}

func fill(b *testing.B, store *partition.Store, ns *partition.Namespace, partitions, entries int) {
	b.Helper()
	now, _ := store.Now()
	payload := make([]byte, 100)
	for p := range partitions {
		g := &partition.Group{Namespace: ns, Partition: fmt.Sprintf("p%d", p)}
		for range entries {
			g.Entries = append(g.Entries, partition.AppendEntry(nil, now, nil, payload))
		}
		store.Produce(b.Context(), []*partition.Group{g})
		if g.Err != nil {
			b.Fatal(g.Err)
		}
	}
}

// How large the Writes of a sink that prefers 10,000 entries are while 20,000 entries/s
// come in.
func BenchmarkCoalescedWrites(b *testing.B) {
	for _, partitions := range []int{10, 1000, 20_000} {
		b.Run(fmt.Sprintf("%dpartitions", partitions), func(b *testing.B) {
			server := redistest.Start(b)
			policy := partition.DefaultPolicy()
			store, err := partition.Open(partition.Config{
				URL: server.URL(), Prefix: "sw", Namespaces: map[string]partition.Policy{"games": policy},
			}, prometheus.NewRegistry(), zap.NewNop())
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			if err := store.Ping(b.Context()); err != nil {
				b.Fatal(err)
			}
			ns := store.Namespace("games")
			var entries, writes atomic.Int64
			target := &fakeSink{caps: largeWrites, now: func() int64 { return 0 }}
			counting := countingSink{target, &entries, &writes}
			d, err := New(DefaultConfig(), store, []Target{{Namespace: ns, Sink: counting, Label: "counting:"}}, prometheus.NewRegistry(), zap.NewNop())
			if err != nil {
				b.Fatal(err)
			}
			if err := d.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			payload := make([]byte, 100)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			next, sent := 0, 0
			for b.Loop() { // a second of load
				for range 100 {
					<-tick.C
					now, _ := store.Now()
					byName := map[int]*partition.Group{}
					var groups []*partition.Group
					for range 200 {
						p := next % partitions
						next++
						if byName[p] == nil {
							byName[p] = &partition.Group{Namespace: ns, Partition: fmt.Sprintf("p%d", p)}
							groups = append(groups, byName[p])
						}
						byName[p].Entries = append(byName[p].Entries, partition.AppendEntry(nil, now, nil, payload))
						sent++
					}
					store.Produce(b.Context(), groups)
				}
			}
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "in/s")
			b.ReportMetric(float64(entries.Load())/b.Elapsed().Seconds(), "out/s")
			b.ReportMetric(float64(entries.Load())/float64(max(writes.Load(), 1)), "entries/write")
			if err := d.Stop(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// countingSink takes 50 ms for each Write.
type countingSink struct {
	sink.Sink
	entries, writes *atomic.Int64
}

func (s countingSink) Write(_ context.Context, batches []*sink.Batch) error {
	time.Sleep(50 * time.Millisecond)
	for _, b := range batches {
		s.entries.Add(int64(len(b.Entries)))
	}
	s.writes.Add(1)
	return nil
}
