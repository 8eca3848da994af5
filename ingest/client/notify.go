package spillway

import (
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// warnEvery is how often a warner repeats a kind of failure at most.
const warnEvery = time.Minute

// A warner is the hook for failed requests of a program that gives none.
type warner struct {
	url string

	mu   sync.Mutex
	last map[error]time.Time // by what the failure is
}

func newWarner(url string) *warner { return &warner{url: url, last: map[error]time.Time{}} }

// warn logs a failure, unless it has logged one of its kind within warnEvery.
func (w *warner) warn(err error) {
	e := new(Error)
	errors.As(err, &e)
	w.mu.Lock()
	last, known := w.last[e.is]
	known = known && time.Since(last) < warnEvery
	if !known {
		w.last[e.is] = time.Now()
	}
	w.mu.Unlock()
	if !known {
		slog.Warn("request failed", "url", w.url, "error", err)
	}
}

// A guest calls a callback of the program, whose panics and Goexits are its own: the first panic is logged.
type guest struct {
	name string
	once sync.Once
}

func (g *guest) call(callback func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if p := recover(); p != nil {
				g.once.Do(func() {
					slog.Error("a callback panics, which is told once", "callback", g.name, "panic", p, "stack", string(debug.Stack()))
				})
			}
		}()
		callback()
	}()
	<-ended
}

// notices collects what the callbacks are to be told, so that they run once a second
// at most, and beside the client's own work.
type notices struct {
	onDrop  func(Reason, int64)
	onError func(error)

	dropGuest, errorGuest guest

	mu    sync.Mutex
	drops map[Reason]int64
	err   error // the newest
	wake  chan struct{}
}

// noticeEvery is how often a callback is called at most.
const noticeEvery = time.Second

func (n *notices) dropped(why Reason, count int64) {
	if n.onDrop == nil {
		return
	}
	n.mu.Lock()
	n.drops[why] += count
	n.mu.Unlock()
	n.signal()
}

func (n *notices) failed(err error) {
	n.mu.Lock()
	n.err = err
	n.mu.Unlock()
	n.signal()
}

func (n *notices) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// run calls the callbacks until quit closes; what is left is told then.
func (n *notices) run(quit <-chan struct{}) {
	for {
		select {
		case <-n.wake:
			n.deliver()
		case <-quit:
			n.deliver()
			return
		}
		pause := time.NewTimer(noticeEvery)
		select {
		case <-pause.C:
		case <-quit:
			pause.Stop()
		}
	}
}

func (n *notices) deliver() {
	n.mu.Lock()
	drops, err := n.drops, n.err
	n.drops, n.err = map[Reason]int64{}, nil
	n.mu.Unlock()
	for why, count := range drops {
		n.dropGuest.call(func() { n.onDrop(why, count) })
	}
	if err != nil {
		n.errorGuest.call(func() { n.onError(err) })
	}
}
