package jobs

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition/job"
)

// BenchmarkWake measures the time from a publish to the answer of the one poll of 8,000 that
// wants its queue, and of one of 8,000 that all want the same, over sockets.
func BenchmarkWake(b *testing.B) {
	for name, queues := range map[string]int{"a queue each": 8000, "one queue": 1} {
		b.Run(name, func(b *testing.B) {
			s := newFake(b, nil)
			wakeBench(b, listen(b, s, start(b, s), func(c *ingest.Config) { c.MaxConns = 20_000 }), 8000, queues)
		})
	}
}

// answered is which poll was answered, and when.
type answered struct {
	poll int
	at   time.Time
}

func wakeBench(b *testing.B, p *port, polls, queues int) {
	got := make(chan answered, polls)
	conns := make([]net.Conn, polls)
	queue := func(i int) string { return fmt.Sprint("q", i%queues) }
	ask := func(i int) {
		if _, err := fmt.Fprintf(conns[i], "POST /v1/mail/%s/claim?wait=10m HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", queue(i)); err != nil {
			b.Error(err)
		}
	}
	before := memory()
	for i := range polls {
		conns[i] = p.hold("")
		ask(i)
	}
	eventually(b, "all wait", func() bool { return p.waiting() == polls })
	held := memory() - before
	for i, c := range conns {
		go func() {
			in := bufio.NewReaderSize(c, 512)
			for {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					return // the end of the benchmark
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					return
				}
				got <- answered{i, time.Now()}
			}
		}()
	}
	ns := p.store.Namespace("mail")
	var took []time.Duration
	b.ResetTimer()
	for i := range b.N {
		name := queue(i * 7919 % polls)
		began := time.Now()
		x := &job.Publish{Namespace: ns, Queue: name, Shard: ns.Shards(name)[0], Tries: 1, Messages: []job.Message{{Payload: []byte(`{"n":1}`)}}}
		if p.engine.Publish(x); x.Err != nil {
			b.Fatal(x.Err)
		}
		a := <-got
		took = append(took, a.at.Sub(began))
		b.StopTimer()
		ask(a.poll)
		eventually(b, "all wait", func() bool { return p.waiting() == polls })
		b.StartTimer()
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(held/polls), "B/poll")
}

// memory is what the process holds in heap and stacks, in bytes.
func memory() int {
	for range 3 {
		runtime.GC() // it also shrinks stacks
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
