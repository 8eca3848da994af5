package ingest

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"
)

// Retire hands over to a started server whose settings or store are others, so that no
// request is rejected meanwhile. From then on next answers every request, also those on
// the connections of s, each of which is closed after its next answer or once it has been
// idle for IdleTimeout. Retire returns when the requests that s had begun are answered,
// and its lanes are flushed. When ctx ends first, it rejects those that wait. Nothing of s
// uses its store afterwards. Stop must still be called, to close the connections.
func (s *Server) Retire(ctx context.Context, next *Server) error {
	s.next.Store(next)
	s.end()
	s.mu.Lock()
	ln, served := s.ln, s.served
	s.mu.Unlock()
	err := ln.Close()
	<-served
	tick := time.NewTicker(retirePoll)
	defer tick.Stop()
	for s.active.Load() > 0 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if stopped := s.lanes.stop(ctx); err == nil {
		err = stopped
	}
	return err
}

// retirePoll is how often Retire looks whether the requests are answered.
const retirePoll = 5 * time.Millisecond

// Connections is how many connections are open.
func (s *Server) Connections() int64 { return s.conns.Load() }

// Requests is how many requests are being answered.
func (s *Server) Requests() int64 { return s.active.Load() }

// current is the server that answers new requests: s, or the last that followed it.
func (s *Server) current() *Server {
	for next := s.next.Load(); next != nil; next = s.next.Load() {
		s = next
	}
	return s
}

// enter begins a request at the current server, which does not retire before its leave. A
// request on a connection of another server is the last one there.
func (s *Server) enter() *Server {
	for {
		now := s.current()
		// Counted before the second look: who retires sees the count, or this sees its successor.
		now.active.Add(1)
		if now.next.Load() == nil {
			return now
		}
		now.leave()
	}
}

func (s *Server) leave() { s.active.Add(-1) }

// serveRequest is the handler of the connections of s.
func (s *Server) serveRequest(ctx *fasthttp.RequestCtx) {
	now := s.enter()
	defer now.leave()
	now.handle(ctx)
	if now != s || s.next.Load() != nil {
		ctx.SetConnectionClose()
	}
}

func (s *Server) serveHeader(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	return s.current().headerReceived(h)
}

func (s *Server) serveExpect(ctx *fasthttp.RequestCtx) int {
	now := s.enter()
	defer now.leave()
	return now.handleExpect(ctx)
}
