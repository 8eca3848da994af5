package drain

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
				d, err := New(DefaultConfig(), store, []Target{{ns, nothing{c.caps}, "nothing:"}}, prometheus.NewRegistry(), zap.NewNop())
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				d.Start()
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
