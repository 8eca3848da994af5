package job

import "context"

// Wakes tells when queues have jobs again.
type Wakes struct{}

// A WakeEvent is what happened to the subscriptions.
type WakeEvent struct {
	Kind      WakeKind
	Namespace string
	Shard     int
	Queue     string
	Count     int // WakeHeard: jobs that became ready, at least
}

// WakeKind is the kind of a WakeEvent.
type WakeKind uint8

// The kinds.
const (
	WakeSubscribed WakeKind = iota + 1 // the queue's wakes are heard from now on
	WakeHeard                          // the queue had no ready job and has some now
	WakeLost                           // wakes of all wanted queues may have been missed; none is subscribed until WakeSubscribed
)

// NewWakes calls on for each event, one at a time.
func NewWakes(s *Store, on func(WakeEvent)) *Wakes { return &Wakes{} }

// Want subscribes to a queue of a shard.
func (w *Wakes) Want(ns *Namespace, shard int, queue string) {}

// Unwant takes one Want back. The subscription ends 30s after the last.
func (w *Wakes) Unwant(ns *Namespace, shard int, queue string) {}

// Start begins to subscribe.
func (w *Wakes) Start(context.Context) error { return nil }

// Stop ends all subscriptions.
func (w *Wakes) Stop(context.Context) error { return nil }
