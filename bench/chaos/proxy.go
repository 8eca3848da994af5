package main

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxyMode is what the proxy does with the bytes between the servers and Redis.
type proxyMode int32

const (
	pass         proxyMode = iota
	loseReplies            // now and then a reply is dropped and its connection reset: the script ran
	loseRequests           // now and then a request is: it did not
	stallBoth              // everything waits; connections stay open
)

// lossOdds is one in how many reads of a lossy direction is lost.
const lossOdds = 12

// A proxy stands between the servers and Redis. It knows nothing of the protocol.
type proxy struct {
	at, target string // host:port
	mode       atomic.Int32
	seen       atomic.Uint64 // reads of a lossy direction
	serving    sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	open     bool
}

// newProxy listens at a host:port.
func newProxy(at, target string) (*proxy, error) {
	w := &proxy{at: at, target: target, conns: map[net.Conn]bool{}, open: true}
	return w, w.listen()
}

// listen takes connections, until refuse.
func (w *proxy) listen() error {
	l, err := net.Listen("tcp", w.at)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listener, w.at = l, l.Addr().String()
	w.serving.Go(func() { w.accept(l) })
	return nil
}

// refuse takes no more connections, as a host whose Redis is down.
func (w *proxy) refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.listener.Close()
}

func (w *proxy) addr() string { return w.at }

func (w *proxy) set(m proxyMode) { w.mode.Store(int32(m)) }

func (w *proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", w.target, time.Second)
		if err != nil || !w.hold(client, server) {
			_ = client.Close() // Redis is down, or the run is over
			continue
		}
		w.serving.Go(func() { w.copy(server, client, loseRequests) })
		w.serving.Go(func() { w.copy(client, server, loseReplies) })
	}
}

func (w *proxy) hold(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		if !w.open {
			_ = c.Close()
			continue
		}
		w.conns[c] = true
	}
	return w.open
}

// copy carries one direction until either end closes, or the fault of its direction ends it.
func (w *proxy) copy(dst, src net.Conn, lossy proxyMode) {
	defer w.reset(dst, src)
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		for proxyMode(w.mode.Load()) == stallBoth {
			time.Sleep(5 * time.Millisecond)
		}
		if n > 0 && proxyMode(w.mode.Load()) == lossy && w.seen.Add(1)%lossOdds == 0 {
			return
		}
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// reset ends connections so that the other side sees an error, not an end.
func (w *proxy) reset(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close() // either direction may be first
		delete(w.conns, c)
	}
}

// cut resets every connection there is.
func (w *proxy) cut() {
	w.mu.Lock()
	var all []net.Conn
	for c := range w.conns {
		all = append(all, c)
	}
	w.mu.Unlock()
	w.reset(all...)
}

func (w *proxy) close() {
	w.refuse()
	w.mu.Lock()
	w.open = false
	w.mu.Unlock()
	w.set(pass)
	w.cut()
	w.serving.Wait()
}
