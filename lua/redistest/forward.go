package redistest

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Forward listens at addr until the test ends, and connects every client with target,
// both host:port. serve passes on what they write, as the test wants it; both connections
// close when it returns, or when the test ends.
func Forward(tb testing.TB, addr, target string, serve func(client, server net.Conn)) {
	tb.Helper()
	l, err := net.Listen("tcp", addr)
	must(tb, err)
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			end := func() { _, _ = client.Close(), server.Close() }
			context.AfterFunc(ctx, end)
			serving.Go(func() {
				defer end()
				serve(client, server)
			})
		}
	})
	tb.Cleanup(func() { stop(); _ = l.Close(); serving.Wait() })
}
