package redistest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// A Fault is what a [FaultLine] does to one exchange, a pipeline and its replies.
type Fault int

// The faults.
const (
	Passes        Fault = iota
	LosesRequest        // closes, and the server never hears of it
	CutsRequest         // the server hears the beginning: whole commands of it run
	LosesReply          // the server ran it, and the reply is lost
	CutsReply           // some replies arrive
	StallsRequest       // the server hears of it when the caller has given up
	StallsReply         // the replies never come
	SlicesReply         // a few bytes at a time, and all of them
	Faults              // how many there are, with Passes
)

// String is the name of a fault, as "loses reply".
func (f Fault) String() string {
	return [Faults]string{"passes", "loses request", "cuts request", "loses reply", "cuts reply", "stalls request", "stalls reply", "slices reply"}[f]
}

// A Plan says what to do with the next exchange of scripts, and where to cut it: a
// number from 0 to 1. The line calls it for one exchange at a time.
type Plan func() (fault Fault, at float64)

// FaultLine listens for clients and puts a connection with faults between each of them
// and the target.
type FaultLine struct {
	URL string // of the line

	mu   sync.Mutex
	plan Plan
	only string // the digest of the script whose exchanges are meant; empty: of every script
	seen [Faults]int
}

// StartFaultLine starts a line to the server at target, host:port. Without a plan every
// exchange passes.
func StartFaultLine(tb testing.TB, target string) *FaultLine {
	tb.Helper()
	addr := FreeAddr(tb)
	f := &FaultLine{URL: "redis://" + addr}
	Forward(tb, addr, target, func(client, server net.Conn) {
		c := &faultConn{line: f, client: client, server: server}
		var requests sync.WaitGroup
		requests.Go(c.requests)
		c.replies()
		requests.Wait()
	})
	return f
}

// Set makes exchanges of every script follow the plan; nil lets them pass.
func (f *FaultLine) Set(plan Plan) { f.SetFor("", plan) }

// SetFor is Set for the exchanges with one script alone, by its digest.
func (f *FaultLine) SetFor(sha string, plan Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.only, f.plan = sha, plan
}

// Seen counts the planned exchanges by their faults since the last call.
func (f *FaultLine) Seen() [Faults]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.seen
	f.seen = [Faults]int{}
	return seen
}

func (f *FaultLine) next(request []byte) (Fault, float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.plan == nil || !bytes.Contains(request[:min(len(request), 64)], []byte("\r\nevalsha\r\n")) || !bytes.Contains(request, []byte(f.only)) {
		return Passes, 0
	}
	fault, at := f.plan()
	f.seen[fault]++
	return fault, at
}

// faultConn is one connection. A client writes a pipeline, then reads all of its
// replies, so an exchange begins with the first bytes after a reply.
type faultConn struct {
	line           *FaultLine
	client, server net.Conn

	mu      sync.Mutex
	replied bool // bytes came back since the exchange began
	asked   bool // an exchange is under way
	fault   Fault
	at      float64
}

func (c *faultConn) close() { _, _ = c.client.Close(), c.server.Close() }

// begin says what to do with bytes from the client.
func (c *faultConn) begin(request []byte) (fault Fault, at float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked || c.replied {
		c.fault, c.at = c.line.next(request)
		c.asked, c.replied = true, false
	}
	return c.fault, c.at
}

// answer says what to do with bytes from the server.
func (c *faultConn) answer() (fault Fault, at float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replied = true
	return c.fault, c.at
}

func (c *faultConn) requests() {
	defer c.close()
	buf := make([]byte, 128<<10)
	for {
		n, err := c.client.Read(buf)
		if n > 0 {
			switch fault, at := c.begin(buf[:n]); fault {
			case LosesRequest:
				return
			case CutsRequest:
				_, _ = c.server.Write(buf[:int(float64(n)*at)])
				return
			case StallsRequest:
				_, _ = io.Copy(io.Discard, c.client) // until the caller has given up
				_, _ = c.server.Write(buf[:n])
				return
			}
			if _, err := c.server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *faultConn) replies() {
	buf := make([]byte, 128<<10)
	for {
		n, err := c.server.Read(buf)
		if n > 0 {
			switch fault, at := c.answer(); fault {
			case LosesReply:
				c.close()
				return
			case CutsReply:
				_, _ = c.client.Write(buf[:int(float64(n)*at)])
				c.close()
				return
			case StallsReply:
				_, _ = io.Copy(io.Discard, c.server) // until the caller has given up
				return
			case SlicesReply:
				for i := 0; i < n && err == nil; i += 7 {
					_, err = c.client.Write(buf[i:min(i+7, n)])
				}
			default:
				_, err = c.client.Write(buf[:n])
			}
		}
		if err != nil {
			_ = c.client.Close() // requests, which may stall, ends the rest
			return
		}
	}
}
