package jobs

import (
	"cmp"
	"context"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Queue is a queue for the adapter of another protocol, under one key. Its methods do what the
// native routes do, within the same limits, and reject as they do.
type Queue struct {
	api  *api
	call *call
}

// Has reports whether the engine's store has a namespace.
func (e *Engine) Has(namespace string) bool { return e.store.Namespace(namespace) != nil }

// Queue finds a queue. key is what Exchange.Authenticate found for the namespace.
func (e *Engine) Queue(x *ingest.Exchange, key *ingest.Key, namespace,
	queue string) (Queue, *ingest.Rejection) {
	c := &call{Exchange: x, key: key, route: &route{name: "adapter"}}
	if c.namespace = e.store.Namespace(namespace); c.namespace == nil {
		return Queue{}, ingest.Reject(wire.CodeNoSuchNamespace, "")
	}
	return Queue{&api{Engine: e}, c}, c.names(queue, "")
}

// Defaults are what holds for jobs of which their publish and claim do not say it. A queue of
// which no rule says any has those of otherwise.
type Defaults struct {
	TTR, Delay time.Duration
	Tries      int
}

// Defaults are those of the queue.
func (q Queue) Defaults(otherwise Defaults) Defaults {
	ns, name := q.call.namespace, q.call.queue()
	return Defaults{
		TTR:   ns.Lease(otherwise.TTR, name),
		Delay: cmp.Or(ns.Delay(name), otherwise.Delay),
		Tries: cmp.Or(ns.RuledTries(name), otherwise.Tries),
	}
}

// MaxEntry is the largest payload of a job, in bytes.
func (q Queue) MaxEntry() int { return q.api.cfg.MaxEntry }

// Claim claims up to count jobs, waits for them, and answers in the adapter's form, also where
// there is none. A job that was claimed tries times before becomes a dead letter instead.
func (q Queue) Claim(count, tries int, ttr, wait time.Duration, f Form) *ingest.Rejection {
	return limited(reads, func(a *api, c *call) *ingest.Rejection {
		return a.lease(c, count, tries, ttr, wait, f)
	})(q.api, q.call)
}

// Settle does what leases say.
func (q Queue) Settle(leases []Lease) {
	all := make([]*settlement, len(leases))
	for i := range leases {
		l := &leases[i]
		all[i] = &settlement{ID: l.ID, Attempt: int64(l.Attempt), Do: l.Do,
			MS: l.After.Milliseconds()}
		all[i].resolve(q.call.namespace, q.call.queue())
	}
	q.api.run(q.call, all)
	for i, s := range all {
		l := &leases[i]
		if l.Bad = s.wrong != "" || s.ack == nil && s.change == nil; l.Bad {
			continue
		}
		l.State = s.state()
		if err := s.err(); err != nil {
			l.Rejected = q.api.reject(q.call, err)
		}
	}
}

// Lease is a job that a client holds, and what is done with it.
type Lease struct {
	ID      string
	Attempt int           // 0: any
	Do      string        // ack, nack or touch
	After   time.Duration // of a nack and a touch

	// The result.
	Bad      bool   // no job of the queue has such an ID
	State    string // of the job now
	Rejected *ingest.Rejection
}

// Counts says how many jobs the queue has. Where too many are delayed and leased to tell them apart, all
// count as leased: who scales by it must not take a busy queue for an idle one.
func (q Queue) Counts() (ready, delayed, leased int64, rejected *ingest.Rejection) {
	rejected = q.ask(false, func(ctx context.Context) error {
		n, err := q.api.store.Counts(ctx, q.call.namespace, q.call.queue())
		ready, delayed, leased = n.Ready, n.Delayed, n.Leased
		if leased < 0 {
			delayed, leased = 0, n.Pending
		}
		return err
	})
	return ready, delayed, leased, rejected
}

// Names are the queues of the namespace that have jobs.
func (q Queue) Names() (names []string, rejected *ingest.Rejection) {
	rejected = q.ask(false, func(ctx context.Context) (err error) {
		names, err = q.api.store.Queues(ctx, q.call.namespace)
		return err
	})
	return names, rejected
}

// Purge deletes all jobs of the queue, whatever their state.
func (q Queue) Purge() *ingest.Rejection {
	return q.ask(true, func(ctx context.Context) error {
		_, err := q.api.store.Purge(ctx, q.call.namespace, q.call.queue(), true)
		return err
	})
}

// ask counts as one job against the rate at which the token consumes.
func (q Queue) ask(changes bool, read func(ctx context.Context) error) *ingest.Rejection {
	if _, rejected := q.call.take(q.call.key.Limiters().Consume, 1); rejected != nil {
		return rejected
	}
	return q.api.ask(q.call, changes, read)
}

// Message is a job to publish.
type Message struct {
	Payload, Attributes []byte
	Delay               time.Duration
	Tries               int

	// The result.
	ID       string
	Rejected *ingest.Rejection
}

// Publish publishes messages, each by itself.
func (q Queue) Publish(all []Message) {
	if len(all) == 0 {
		return
	}
	rejected := limited(writes, func(a *api, c *call) *ingest.Rejection {
		return a.publishEach(c, all)
	})(q.api, q.call)
	for i := range all {
		if all[i].ID == "" && all[i].Rejected == nil {
			all[i].Rejected = rejected
		}
	}
}
