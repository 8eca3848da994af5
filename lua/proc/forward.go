package proc

import (
	"context"
	"net"
	"sync"
)

// Forward listens at addr until stop, and connects every client with target, both host:port. serve
// passes on what they write, as the caller wants it; both connections close when it returns, or at
// stop, which waits for that.
func Forward(addr, target string, serve func(client, server net.Conn)) (at net.Addr, stop func(), err error) {
	l, err := Listen(addr)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
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
	return l.Addr(), func() { cancel(); _ = l.Close(); serving.Wait() }, nil
}
