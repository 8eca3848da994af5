package jobtest

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// Wakes are subscriptions to a Store. Events come one at a time, to what is wanted when they
// are published.
type Wakes struct {
	on      func(job.WakeEvent)
	mu      sync.Mutex
	filled  sync.Cond
	events  []job.WakeEvent
	wants   map[key]int
	latency time.Duration
	wanting func()
	deaf    bool
	started bool
	stopped bool
	ended   chan struct{}
}

// NewWakes subscribes to the store, from Start to Stop.
func (s *Store) NewWakes(on func(job.WakeEvent)) *Wakes {
	w := &Wakes{on: on, wants: map[key]int{}, ended: make(chan struct{})}
	w.filled.L = &w.mu
	s.With(func() { s.Wakes = append(s.Wakes, w) })
	return w
}

// SetLatency is how long an event is on its way.
func (w *Wakes) SetLatency(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latency = d
}

// SetWanting has f called before each Want.
func (w *Wakes) SetWanting(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanting = f
}

// SetDeaf ends the subscriptions, or begins them again. With say the subscriber is told that.
func (w *Wakes) SetDeaf(deaf, say bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = deaf
	switch {
	case !say:
	case deaf:
		w.send(job.WakeEvent{Kind: job.WakeLost})
	default:
		for k := range w.wants {
			w.send(event(job.WakeSubscribed, k))
		}
	}
}

// Wanted is how many queues are subscribed.
func (w *Wakes) Wanted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wants)
}

func event(kind job.WakeKind, k key) job.WakeEvent {
	return job.WakeEvent{Kind: kind, Namespace: k.namespace, Shard: k.shard, Queue: k.queue, Count: 1}
}

func (w *Wakes) send(e job.WakeEvent) {
	w.events = append(w.events, e)
	w.filled.Signal()
}

func (w *Wakes) publish(k key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wants[k] > 0 && !w.deaf {
		w.send(event(job.WakeHeard, k))
	}
}

// Want subscribes to a queue.
func (w *Wakes) Want(ns *job.Namespace, shard int, queue string) {
	w.mu.Lock()
	wanting := w.wanting
	w.mu.Unlock()
	if wanting != nil {
		wanting()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := key{ns.Name, shard, queue}
	w.wants[k]++
	if !w.deaf {
		w.send(event(job.WakeSubscribed, k))
	}
}

// Unwant takes a Want back.
func (w *Wakes) Unwant(ns *job.Namespace, shard int, queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := key{ns.Name, shard, queue}
	if w.wants[k]--; w.wants[k] == 0 {
		delete(w.wants, k)
	}
}

// Start begins to deliver events.
func (w *Wakes) Start(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = true
	go func() {
		defer close(w.ended)
		for {
			w.mu.Lock()
			for len(w.events) == 0 && !w.stopped {
				w.filled.Wait()
			}
			if w.stopped {
				w.mu.Unlock()
				return
			}
			e := w.events[0]
			w.events = w.events[1:]
			latency := w.latency
			w.mu.Unlock()
			if latency > 0 {
				time.Sleep(latency)
			}
			w.on(e)
		}
	}()
	return nil
}

// Stop ends that, and waits for the last one. It may come without Start.
func (w *Wakes) Stop(context.Context) error {
	w.mu.Lock()
	w.stopped = true
	w.filled.Broadcast()
	started := w.started
	w.mu.Unlock()
	if started {
		<-w.ended
	}
	return nil
}
