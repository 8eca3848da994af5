package drain

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/branches"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// failing is a sink whose target is dead: it rejects at once, or never answers.
type failing struct {
	nothing
	hangs bool
}

func (f failing) Write(ctx context.Context, _ []*sink.Batch) error {
	if f.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return errDown
}

// How fast a backlog reaches branch a, by what becomes of the other branch's sink. The
// figures of a dead sink may be 1.1 times those of one that works.
func BenchmarkBranches(b *testing.B) {
	const partitions, entries = 1000, 256
	for _, c := range []struct {
		name  string
		other sink.Sink
	}{{"other works", nothing{}}, {"other rejects", failing{}}, {"other hangs", failing{hangs: true}}} {
		b.Run(c.name, func(b *testing.B) {
			policy := partition.DefaultPolicy()
			policy.Linger = 0
			for b.Loop() {
				b.StopTimer()
				server := redistest.Start(b)
				store, err := partition.Open(partition.Config{
					URL: server.URL(), Prefix: "sw", Namespaces: map[string]partition.Policy{"parent": policy, "a": policy, "b": policy},
				}, prometheus.NewRegistry(), zap.NewNop())
				if err != nil {
					b.Fatal(err)
				}
				if err := store.Ping(b.Context()); err != nil {
					b.Fatal(err)
				}
				fill(b, store, store.Namespace("parent"), partitions, entries)
				s, err := branches.New(&url.URL{Scheme: "namespaces", Host: "a,b"})
				if err != nil {
					b.Fatal(err)
				}
				if err := s.(*branches.Sink).Use(store); err != nil {
					b.Fatal(err)
				}
				d, err := New(DefaultConfig(), store, []Target{
					{Namespace: store.Namespace("parent"), Sink: s, Label: "namespaces:"},
					{Namespace: store.Namespace("a"), Sink: nothing{}, Label: "nothing:"},
					{Namespace: store.Namespace("b"), Sink: c.other, Label: "other:"},
				}, prometheus.NewRegistry(), zap.NewNop())
				if err != nil {
					b.Fatal(err)
				}
				tick := time.NewTicker(5 * time.Millisecond)
				b.StartTimer()
				if err := d.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
				for delivered := int64(0); delivered < partitions*entries; <-tick.C {
					o, err := store.Overview(b.Context(), store.Namespace("a"))
					if err != nil {
						b.Fatal(err)
					}
					delivered = o.Ledger.Delivered
				}
				b.StopTimer()
				tick.Stop()
				ended, cancel := context.WithCancel(b.Context())
				cancel()
				_ = d.Stop(ended) // which cancels what hangs
				_ = store.Close()
				server.Kill()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.N*partitions*entries)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}
