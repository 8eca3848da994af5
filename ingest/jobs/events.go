package jobs

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/job"
)

const (
	streamBuffer   = 4 << 10
	heartbeatEvery = 15 * time.Second
	maxStall       = time.Minute // how long a client may take nothing of what it is sent
	eventStream    = "text/event-stream"
)

// A stream is the events that one client reads.
type stream struct {
	*call
	conn    net.Conn
	writing atomic.Int64  // since when it writes, Unix ns; 0: it does not
	over    chan struct{} // closed when it is to end; then writes fail
}

// Write writes to the client for as long as that is looked after.
func (s *stream) Write(p []byte) (int, error) {
	s.writing.Store(time.Now().UnixNano())
	defer s.writing.Store(0)
	return s.conn.Write(p)
}

// ends reports whether a stream is to end.
func (e *Engine) ends(s *stream) bool {
	select {
	case <-s.Stopping():
		return true
	default:
	}
	now, since := e.store.Namespace(s.namespace.Name), s.writing.Load()
	return now == nil || now.Home != s.namespace.Home || s.Revoked(s.key) || hasHungUp(s.Conn()) ||
		since > 0 && time.Since(time.Unix(0, since)) > maxStall
}

// streams are those of an engine.
type streams struct {
	mu   sync.Mutex
	all  map[*stream]bool // nil: nothing looks after them
	none chan struct{}    // has a value once the last one has ended
}

// watch looks after a stream until unwatch. While there are any, one goroutine ends those whose time
// has come within a second, also those that write to a client which takes nothing.
func (e *Engine) watch(s *stream) {
	e.streams.mu.Lock()
	defer e.streams.mu.Unlock()
	if e.streams.all == nil {
		e.streams.all, e.streams.none = map[*stream]bool{}, make(chan struct{}, 1)
		e.running.Go(func() {
			again := time.NewTicker(time.Second)
			defer again.Stop()
			for e.lookAfter() {
				select {
				case <-again.C:
				case <-e.streams.none:
				}
			}
		})
	}
	e.streams.all[s] = true
}

func (e *Engine) unwatch(s *stream) {
	e.streams.mu.Lock()
	defer e.streams.mu.Unlock()
	if delete(e.streams.all, s); len(e.streams.all) == 0 {
		select {
		case e.streams.none <- struct{}{}:
		default:
		}
	}
}

// lookAfter looks at all streams once; false: there are none.
func (e *Engine) lookAfter() bool {
	e.streams.mu.Lock()
	defer e.streams.mu.Unlock()
	for s := range e.streams.all {
		if e.ends(s) {
			delete(e.streams.all, s)
			close(s.over)
			_ = s.conn.SetWriteDeadline(time.Now())
		}
	}
	if len(e.streams.all) == 0 {
		e.streams.all = nil
	}
	return e.streams.all != nil
}

// listen tells a client what happens to the jobs of some queues, or of all, until it leaves.
func (a *api) listen(c *call) *ingest.Rejection {
	if a.events == nil {
		return ingest.Reject(wire.CodeNoSuchRoute, "")
	}
	c.queues = nil
	if text, given := c.args["queues"]; given {
		c.queues = slices.Compact(slices.Sorted(strings.SplitSeq(text, ",")))
	}
	if rejected := c.ownNames(); rejected != nil {
		return rejected
	}
	if _, rejected := c.take(c.key.Limiters().Consume, 1); rejected != nil {
		return rejected
	}
	if c.Ctx.IsHead() {
		return c.Answer(200, eventStream, nil)
	}
	return c.Stream(eventStream, func() (func(net.Conn), func(), *ingest.Rejection) { return a.follow(c) })
}

// follow begins what listen promises.
func (a *api) follow(c *call) (run func(net.Conn), ended func(), rejected *ingest.Rejection) {
	if !a.enter() {
		return nil, nil, a.reject(c, ErrStopping)
	}
	l := a.events.Listen(c.namespace, c.queues, func(bytes int) (free func()) {
		free, rejected = c.Hold(bytes)
		return free
	})
	if l == nil {
		a.claims.Done()
		return nil, nil, rejected
	}
	ended = func() {
		l.Close()
		a.claims.Done()
	}
	if rejected = c.Wait(pollCost + streamBuffer + l.Bytes()); rejected != nil {
		ended()
		return nil, nil, rejected
	}
	s := &stream{call: c, over: make(chan struct{})}
	return func(conn net.Conn) {
		s.conn = conn
		a.watch(s)
		defer a.unwatch(s)
		tell(s, l)
	}, ended, nil
}

// tell writes events until the stream is to end.
func tell(s *stream, l *job.Listener) {
	out := bufio.NewWriterSize(s, streamBuffer)
	heartbeat := time.NewTicker(heartbeatEvery)
	defer heartbeat.Stop()
	for {
		for word, data, ok := l.Next(); ok; word, data, ok = l.Next() {
			for _, part := range [...]string{"event: ", word, "\ndata: ", data, "\n\n"} {
				if _, err := out.WriteString(part); err != nil {
					return
				}
			}
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-l.Woken():
		case <-s.over:
			return
		case <-s.Stopping():
			return
		case <-heartbeat.C:
			_, _ = out.WriteString(": \n\n") // Flush has its error
		}
	}
}
