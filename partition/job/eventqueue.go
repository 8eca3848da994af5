package job

import (
	"context"
	"strings"
	"sync"

	"github.com/spillway-io/spillway/partition/lifecycle"
)

// The bytes of texts that an eventQueue holds.
const (
	maxTexts   = 4 << 20
	maxTextsOf = 1 << 20 // of a namespace
)

// An eventQueue delivers events in order, one at a time, on a goroutine of its own. What
// was heard of a queue is joined while it waits, so the queue grows no longer than about
// two events for each subscribed queue, and texts for which there is no room are counted.
type eventQueue struct {
	mu    sync.Mutex
	list  []WakeEvent
	heard map[WakeEvent]int // place in list of a WakeHeard, by the event without its count
	held  map[string]int    // bytes of texts that are not delivered, by namespace
	texts int               // all of them
	some  lifecycle.Signal
}

func (q *eventQueue) init() {
	q.heard, q.held, q.some = map[WakeEvent]int{}, map[string]int{}, lifecycle.NewSignal()
}

func (q *eventQueue) add(e WakeEvent) {
	q.mu.Lock()
	if n := len(e.Text); q.texts+n > maxTexts || q.held[e.Namespace]+n > maxTextsOf {
		e.Count, e.Text = strings.Count(e.Text, "\n"), ""
	}
	key := e
	key.Count = 0
	at, waits := q.heard[key]
	switch {
	case e.Text != "": // each says something else
		q.list = append(q.list, e)
		q.texts += len(e.Text)
		q.held[e.Namespace] += len(e.Text)
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
			if e.Text != "" {
				q.delivered(e)
			}
		}
	}
}

func (q *eventQueue) delivered(e WakeEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.texts -= len(e.Text)
	if q.held[e.Namespace] -= len(e.Text); q.held[e.Namespace] == 0 {
		delete(q.held, e.Namespace)
	}
}
