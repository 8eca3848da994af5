package app

import (
	"errors"
	"net"
	"sync"
	"testing"
)

func TestLeasesOfAListenerLoseNoConnection(t *testing.T) {
	t.Parallel()
	shared, err := listenShared("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	const leases, clients, each = 200, 4, 100
	var accepted, running sync.WaitGroup
	accepted.Add(clients * each)
	serve := func(l net.Listener) {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close()
			accepted.Done()
		}
	}
	last := shared.lease()
	first := last
	running.Go(func() { serve(first) })
	var dialing sync.WaitGroup
	for range clients {
		dialing.Go(func() {
			for range each {
				c, err := net.Dial("tcp", shared.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = c.Read(make([]byte, 1)) // until the server closes it
				_ = c.Close()
			}
		})
	}
	for range leases {
		next := shared.lease()
		running.Go(func() { serve(next) })
		if err := last.Close(); err != nil {
			t.Error(err)
		}
		last = next
	}
	dialing.Wait()
	accepted.Wait()
	_ = last.Close()
	running.Wait()
	if _, err := last.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
