package drain

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

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
