package ingest

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/ingest/wire"
)

// SetListener gives the server its listener. Call it once, before Start. The
// server closes the listener when it stops.
func (s *Server) SetListener(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ln = transport.Listen(ln, transport.Config{
		MaxConns:      s.cfg.MaxConns,
		MaxConnsPerIP: s.cfg.MaxConnsPerIP,
		TLS:           s.cfg.TLS,
		Full:          rawRejection(wire.CodeOverloaded, wire.Responses[wire.CodeOverloaded].Message),
		Open:          &s.conns,
		Rejected:      s.metrics.rejections[wire.CodeOverloaded],
		AcceptErrors:  s.metrics.acceptErrors,
		Evicted:       s.metrics.evictedConns,
	})
}

// Start serves on the listener until Stop, in goroutines of its own. It does
// not wait for anything, so it needs no context. A second Start, a Start after
// Stop, and a Start without a listener are errors.
func (s *Server) Start(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ln == nil:
		s.stopping.Store(true)
		return errors.New("start: no listener: call SetListener first")
	case s.stopping.Load():
		return errors.Join(errors.New("start: the server was stopped before"), s.ln.Close())
	case s.served != nil:
		return errors.New("start: the server was started before")
	}
	s.served = make(chan struct{})
	s.lanes.start()
	go s.serve()
	return nil
}

func (s *Server) serve() {
	defer close(s.served)
	defer close(s.failed)
	if err := s.http.Serve(s.ln); err != nil && !s.stopping.Load() {
		s.failed <- fmt.Errorf("serve %s: %w", s.ln.Addr(), err)
	}
}

// Failed receives the error of a started server whose listener fails. Stop must
// still be called. The channel is closed when the server accepts no more.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop closes the listener, lets requests finish and rejects new ones on open
// connections. Then it stops the lanes. When ctx ends first, Stop rejects the requests
// that wait, closes the connections, and returns an error. Nothing of the server runs
// after Stop.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping.Store(true)
	s.end()
	ln, served := s.ln, s.served
	s.mu.Unlock()
	if ln == nil {
		return nil
	}
	err := ln.Close()
	if served == nil {
		return err
	}
	// fasthttp waits only for connections of a listener that its Serve knows, so
	// Serve has to have returned before.
	<-served
	ln.CloseUnused()
	err = errors.Join(err, s.http.ShutdownWithContext(ctx), s.lanes.stop(ctx), ln.Drain(ctx))
	return err
}
