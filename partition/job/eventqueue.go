package job

import (
	"context"
	"sync"

	"github.com/spillway-io/spillway/partition/lifecycle"
)

// An eventQueue delivers events in order, one at a time, on a goroutine of its own. What
// was heard of a queue is joined while it waits, so the queue grows no longer than about
// two events for each subscribed queue.
type eventQueue struct {
	mu    sync.Mutex
	list  []WakeEvent
	heard map[WakeEvent]int // place in list of a WakeHeard, by the event without its count
	some  lifecycle.Signal
}

func (q *eventQueue) init() {
	q.heard, q.some = map[WakeEvent]int{}, lifecycle.NewSignal()
}

func (q *eventQueue) add(e WakeEvent) {
	q.mu.Lock()
	key := e
	key.Count = 0
	at, waits := q.heard[key]
	switch {
	case waits && (e.Kind == WakeHeard || e.Kind == WakeSubscribed):
		q.list[at].Count += e.Count
	default:
		if e.Kind == WakeLost {
			clear(q.heard) // what comes after it stays after it
		} else {
			q.heard[key] = len(q.list)
		}
		q.list = append(q.list, e)
	}
	q.mu.Unlock()
	q.some.Ring()
}

// deliver calls on for each event until ctx ends.
func (q *eventQueue) deliver(ctx context.Context, on func(WakeEvent)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.some:
		}
		q.mu.Lock()
		list := q.list
		q.list = nil
		clear(q.heard)
		q.mu.Unlock()
		for _, e := range list {
			if ctx.Err() != nil {
				return
			}
			on(e)
		}
	}
}
