//go:build !race

// The race detector takes memory of its own.

package jobs

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest"
)

// maxPollMemory is what a poll that waits may take, in bytes, everything included.
const maxPollMemory = 25 << 10

func TestAnIdlePollTakesLittleMemory(t *testing.T) {
	const polls = 500
	p := served(t, nil, func(c *ingest.Config) { c.MaxConns = 2 * polls })
	held := holdPolls(t, p, polls, func(int) string { return "q" })
	t.Logf("%d bytes a poll", held/polls)
	if held/polls > maxPollMemory {
		t.Errorf("a poll that waits takes %d bytes, want %d at most", held/polls, maxPollMemory)
	}
	if reserved := p.metric("inflight_bytes") / polls; reserved < 1<<10 || reserved > 8<<10 {
		t.Errorf("a poll reserves %v bytes", reserved)
	}
}

// A claim that waits is charged for what it holds: little for a queue that others
// wait for, more for one of its own.
func TestAWaitingClaimIsChargedForWhatItHolds(t *testing.T) {
	const polls = 200
	names := func(prefix string) string {
		var all []string
		for i := range 64 {
			all = append(all, fmt.Sprintf("%s-a-queue-of-some-customer-%04d", prefix, i))
		}
		return strings.Join(all, ",")
	}
	shared := names("all")
	measure := func(queue func(int) string) (held, charged int) {
		p := served(t, nil, func(c *ingest.Config) { c.MaxConns = 2 * polls })
		held = holdPolls(t, p, polls, queue) / polls
		return held, int(p.metric("inflight_bytes")) / polls
	}
	// The connection holds the path; here it is as long, and names one queue.
	one, _ := measure(func(int) string {
		return strings.Repeat("all-a-queue-of-some-customer-0000,", 63) + "all-a-queue-of-some-customer-0000"
	})
	for _, c := range []struct {
		name  string
		queue func(int) string
		max   int
	}{
		{"64 queues of all", func(int) string { return shared }, 12 << 10},
		{"64 queues of its own", func(i int) string { return names(fmt.Sprint(i)) }, 72 << 10},
	} {
		held, charged := measure(c.queue)
		t.Logf("%s: %d bytes beside a poll of one queue, %d charged", c.name, held-one, charged)
		if held-one > charged {
			t.Errorf("%s: %d bytes are held, and %d are charged", c.name, held-one, charged)
		}
		if charged > c.max {
			t.Errorf("%s: %d bytes are charged, want %d at most", c.name, charged, c.max)
		}
	}
}

// holdPolls opens polls and returns the memory that they take, with the connections of the
// clients.
func holdPolls(t testing.TB, p *port, n int, queue func(int) string) int {
	t.Helper()
	var conns []net.Conn
	before := memory()
	for range n {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		conns = append(conns, c)
	}
	for i, c := range conns {
		if _, err := fmt.Fprintf(c, "POST /v1/mail/%s/claim?wait=10m&count=10 HTTP/1.1\r\nHost: data:8080\r\nUser-Agent: a client\r\nAuthorization: Bearer %046d\r\nContent-Length: 0\r\n\r\n", queue(i), i); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all wait", func() bool { return p.waiting() == n })
	return memory() - before
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
