package job

import (
	"context"
	"errors"
	"time"
)

// Stubs that the next commits replace.

var errStub = errors.New("not yet built")

// Store runs every operation on jobs.
type Store struct{ namespaces map[string]*Namespace }

// Namespace returns the namespace of that name, nil when there is none.
func (s *Store) Namespace(name string) *Namespace { return s.namespaces[name] }

// Namespaces returns all namespaces in the order of their names.
func (s *Store) Namespaces() []*Namespace { return nil }

// SetNamespaces replaces all namespaces.
func (s *Store) SetNamespaces(context.Context, map[string]Policy) error { return errStub }

// Now is the store's clock in Unix ms; ok is false until the store has answered once.
func (s *Store) Now() (ms int64, ok bool) { return 0, false }

// Lane is the memory of one caller of Run. It is used by one goroutine at a time.
type Lane struct{}

// NewLane makes a lane.
func (s *Store) NewLane() *Lane { return &Lane{} }

// Run runs all requests of a batch.
func (s *Store) Run(context.Context, *Lane, *Batch) {}

// Revert gives back what claims with an unknown outcome handed out.
func (s *Store) Revert(context.Context, *Lane) error { return errStub }

// Peek returns the next ready job of a queue, or ErrNoJob.
func (s *Store) Peek(ctx context.Context, ns *Namespace, queue string) (Job, error) {
	return Job{}, errStub
}

// Get returns a job and the state it is in, or ErrNoJob.
func (s *Store) Get(ctx context.Context, ns *Namespace, queue string, ref Ref) (Job, State, error) {
	return Job{}, Gone, errStub
}

// Counts counts the jobs of a queue.
func (s *Store) Counts(ctx context.Context, ns *Namespace, queue string) (Counts, error) {
	return Counts{}, errStub
}

// Forecast counts the delayed jobs that come due in each of the next n steps.
func (s *Store) Forecast(ctx context.Context, ns *Namespace, queue string, step time.Duration, n int) ([]int64, error) {
	return nil, errStub
}

// Purge deletes the ready jobs of a queue; with all the delayed and dead ones, too.
func (s *Store) Purge(ctx context.Context, ns *Namespace, queue string, all bool) (deleted int64, err error) {
	return 0, errStub
}

// Dead lists dead letters, oldest first. total counts all of the queue.
func (s *Store) Dead(ctx context.Context, ns *Namespace, queue string, offset, limit int) (jobs []Job, total int64, err error) {
	return nil, 0, errStub
}

// Respawn makes the oldest dead letters ready again, for one try more within ttl (0: for ever).
func (s *Store) Respawn(ctx context.Context, ns *Namespace, queue string, limit int, ttl time.Duration) (int, error) {
	return 0, errStub
}

// DeleteDead deletes the oldest dead letters.
func (s *Store) DeleteDead(ctx context.Context, ns *Namespace, queue string, limit int) (int, error) {
	return 0, errStub
}

// Queues lists the queues that have jobs, in the order of their names.
func (s *Store) Queues(ctx context.Context, ns *Namespace) ([]string, error) { return nil, errStub }

// Ledger reads the account of a namespace.
func (s *Store) Ledger(ctx context.Context, ns *Namespace) (Ledger, error) { return Ledger{}, errStub }

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

// Promoter makes ready what is due.
type Promoter struct{}

// NewPromoter makes the promoter of a store.
func NewPromoter(s *Store) *Promoter { return &Promoter{} }

// Start begins.
func (p *Promoter) Start(context.Context) error { return nil }

// Stop ends it.
func (p *Promoter) Stop(context.Context) error { return nil }

// Expirer drops expired jobs that longer-lived ones hide, and repairs jobs without a reference.
type Expirer struct{}

// NewExpirer makes the expirer of a store.
func NewExpirer(s *Store) *Expirer { return &Expirer{} }

// Start begins.
func (e *Expirer) Start(context.Context) error { return nil }

// Stop ends it.
func (e *Expirer) Stop(context.Context) error { return nil }
