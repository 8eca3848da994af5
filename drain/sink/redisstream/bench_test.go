package redisstream

import (
	"bytes"
	"sync"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
)

// BenchmarkWrite writes 16 batches of 128 entries of 200 B a Write, from four goroutines, to a
// redis-server that persists nothing.
func BenchmarkWrite(b *testing.B) {
	for _, query := range []string{"?stream=s:{namespace}:{partition}", "?max_len=100000"} {
		b.Run(query, func(b *testing.B) {
			s := fixture(b, query).Sink
			if err := s.Open(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close(b.Context()) }()
			writes := make(chan int64)
			var running sync.WaitGroup
			for w := range 4 {
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
			b.ReportMetric(float64(b.N*16*128)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

var payload = bytes.Repeat([]byte(`{"player":"8d1f20","kind":"move","x":1024.5,"y":88.25}`), 4)[:200]

// load is 16 batches in a row of a partition that is the writer's own.
func load(writer int, n int64) (batches []*sink.Batch) {
	for i := range int64(16) {
		p := &sink.Batch{Namespace: "kart", Partition: string(rune('a' + writer)), FirstSeq: 1 + (n*16+i)*128, Attempt: 1}
		for j := range int64(128) {
			p.Entries = append(p.Entries, sink.Entry{Seq: p.FirstSeq + j, Occurred: 1763629675100, Payload: payload})
		}
		batches = append(batches, p)
	}
	return batches
}
