package kafka

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/spillway-io/spillway/drain/sink"
)

// BenchmarkWrite writes 16 batches of 128 entries of 200 B a Write, from as many goroutines
// as there are producers, to a broker in this process that forgets the records.
func BenchmarkWrite(b *testing.B) {
	for _, compression := range []string{"none", "snappy", "lz4", "zstd"} {
		b.Run(compression, func(b *testing.B) {
			cluster := startCluster(b, kfake.BlackholeProduce())
			s := open(b, cluster, topic+"?compression="+compression)
			writes := make(chan int64)
			var running sync.WaitGroup
			for w := range maxInFlight {
				running.Go(func() {
					for n := range writes {
						if err := s.Write(b.Context(), load(w, n)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ResetTimer()
			for n := range int64(b.N) {
				writes <- n
			}
			close(writes)
			running.Wait()
			b.ReportMetric(float64(b.N*loadEntries)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

const loadEntries = 16 * 128

var payload = bytes.Repeat([]byte(`{"player":"8d1f20","kind":"move","x":1024.5,"y":88.25}`), 4)[:200]

func load(writer int, n int64) (batches []*sink.Batch) {
	for i := range 16 {
		p := &sink.Batch{Namespace: "kart", Partition: fmt.Sprintf("player-%d-%d", writer, i), FirstSeq: n * 128, Attempt: 1}
		for j := range int64(128) {
			p.Entries = append(p.Entries, sink.Entry{Seq: n*128 + j, Occurred: 1763629675100, Payload: payload})
		}
		batches = append(batches, p)
	}
	return batches
}
