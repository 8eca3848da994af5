//go:build !race

// The race detector takes memory of its own.

package jobs

import (
	"fmt"
	"net"
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
