package partition_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
)

// proxy forwards between a client and a Redis, and drops replies on demand: the script
// has run, and the client does not learn it.
type proxy struct {
	url   string       // for a target that is no cluster
	lose  atomic.Int32 // replies to lose yet
	every atomic.Int32 // one reply in so many is lost, too; 0: none
	seen  atomic.Int32 // replies of scripts
	stall atomic.Bool  // the connection stays open without the reply
	lost  atomic.Int32
}

// startProxy listens on addr for connections to the target.
func startProxy(t *testing.T, addr, target string) *proxy {
	t.Helper()
	p := &proxy{url: "redis://" + addr}
	redistest.Forward(t, addr, target, func(client, server net.Conn) {
		var script atomic.Bool // the request under way is a script
		var requests sync.WaitGroup
		requests.Go(func() { p.requests(client, server, &script) })
		p.replies(client, server, &script)
		requests.Wait()
	})
	return p
}

func (p *proxy) requests(client, server net.Conn, script *atomic.Bool) {
	defer server.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			// The verb is at the start of what the client writes at once.
			script.Store(bytes.Contains(bytes.ToLower(buf[:min(n, 64)]), []byte("\r\nevalsha\r\n")))
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) replies(client, server net.Conn, script *atomic.Bool) {
	defer client.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		ran := n > 0 && script.Load() && buf[0] == '*' // our scripts answer with arrays; errors pass
		every := p.every.Load()
		due := ran && every > 0 && p.seen.Add(1)%every == 0
		if due || ran && p.lose.Load() > 0 {
			if !due {
				p.lose.Add(-1)
			}
			p.lost.Add(1)
			if !p.stall.Load() {
				return
			}
			_, _ = io.Copy(io.Discard, server)
			return
		}
		if n > 0 {
			if _, werr := client.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
