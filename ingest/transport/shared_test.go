package transport

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

func TestLeasesOfAListenerLoseNoConnection(t *testing.T) {
	t.Parallel()
	shared, err := ListenShared("127.0.0.1:0")
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
	last := shared.Lease()
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
		next := shared.Lease()
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

// The accept of a server may come to run after that of its successor.
func TestALeaseThatNeverAcceptedCloses(t *testing.T) {
	t.Parallel()
	l, err := ListenShared("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	before, next := l.Lease(), l.Lease()
	ended := make(chan error, 2)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		c, err := next.Accept()
		if err == nil {
			_ = c.Close()
		}
	})
	for len(l.accepting) == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() {
		_, err := before.Accept()
		ended <- err
	}()
	if err := before.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the closed lease waits for a connection of the next")
	}
	if err := errors.Join(next.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	accepting.Wait()
}
