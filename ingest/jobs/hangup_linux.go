package jobs

import (
	"errors"
	"math"
	"sync"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// A client that went away is seen in no other way: fasthttp does not read while a handler
// runs, and reading here would take what may be the client's next request. The kernel
// tells that the client will send no more (RDHUP), also where bytes are unread before.

// hangups tells which of the clients that wait went away.
type hangups struct {
	log *zap.Logger

	mu     sync.Mutex
	all    map[int32]*client
	last   int32
	failed bool
	epoll  int           // 0: not yet opened
	wake   [2]int        // a pipe: close writes to it
	ended  chan struct{} // closed when run returns
}

func newHangups(log *zap.Logger) *hangups {
	return &hangups{log: log, all: map[int32]*client{}}
}

// open makes the set, for the first client that waits.
func (h *hangups) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err = unix.Pipe2(h.wake[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	if err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, h.wake[0],
		&unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		return errors.Join(
			err,
			unix.Close(fd),
			unix.Close(h.wake[0]),
			unix.Close(h.wake[1]),
		)
	}
	h.epoll, h.ended = fd, make(chan struct{})
	go h.run(fd)
	return nil
}

// add watches the connection of a client, until remove.
func (h *hangups) add(c *client) {
	if c.conn == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed {
		return
	}
	if h.epoll == 0 {
		if err := h.open(); err != nil {
			h.failed = true
			h.log.Warn("clients that go away while they wait are not seen", zap.Error(err))
			return
		}
	}
	for next := true; next; next = h.all[h.last] != nil {
		h.last = h.last%math.MaxInt32 + 1 // 0 is the pipe
	}
	c.watch = h.last
	h.all[h.last] = c
	_ = c.conn.Control(func(fd uintptr) {
		// Level-triggered: a client that left before is also reported. Once is enough: its request
		// ends.
		_ = unix.EpollCtl(h.epoll, unix.EPOLL_CTL_ADD, int(fd),
			&unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: h.last})
	})
}

// remove ends what add began.
func (h *hangups) remove(c *client) {
	if c.watch == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, c.watch)
	_ = c.conn.Control(func(fd uintptr) { _ = unix.EpollCtl(h.epoll, unix.EPOLL_CTL_DEL, int(fd), nil) })
}

func (h *hangups) run(epoll int) {
	defer close(h.ended)
	events := make([]unix.EpollEvent, 256)
	for {
		n, err := unix.EpollWait(epoll, events, -1)
		if err != nil && err != unix.EINTR {
			return
		}
		for _, event := range events[:max(n, 0)] {
			if event.Fd == 0 {
				return
			}
			h.mu.Lock()
			c := h.all[event.Fd]
			h.mu.Unlock()
			if c != nil {
				c.nudge()
			}
		}
	}
}

// close ends run. Every request that waits must have ended before.
func (h *hangups) close() {
	if h.epoll == 0 {
		return
	}
	_, _ = unix.Write(h.wake[1], []byte{0})
	<-h.ended
	_, _, _ = unix.Close(h.epoll), unix.Close(h.wake[0]), unix.Close(h.wake[1])
}

// hasHungUp reports whether the client closed its connection, or its half of it.
func hasHungUp(c syscall.RawConn) (gone bool) {
	if c == nil {
		return false
	}
	err := c.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} // #nosec G115 -- a descriptor
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	})
	return gone || err != nil // closed here: the server stops
}
