package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// Who waits for the end of a job looks once, which has the end told, and again once it is told: at once by
// an ack or a settle of this process, by all else through the channel of ends of the job's shard. Without a word it
// looks again each lookAgain, as a store that was full, or went back, may have told nothing. While the
// channel is not heard, or a look fails, it looks after pauses that double up to maxAwaitPause, and longer
// ones where many wait, as each of them adds awaitShare: so a process asks 500 times a second at most.
const (
	lookAgain     = 30 * time.Second
	maxAwaitPause = time.Second
	awaitShare    = 2 * time.Millisecond
)

// An endKey names a shard of a namespace.
type endKey struct {
	namespace string
	shard     int
}

// ends are the waits for jobs of a shard.
type ends struct {
	ns    *job.Namespace // that Want was called with
	heard bool           // its channel is
	of    map[int64]map[*client]bool
}

// awaits are all waits for ends. The engine's lock guards them.
type awaits map[endKey]*ends

func (a awaits) hear(event job.WakeEvent) {
	at := a[endKey{event.Namespace, event.Shard}]
	switch {
	case event.Kind == job.WakeLost:
		for _, at := range a {
			at.heard = false
		}
		a.nudgeAll()
	case at == nil:
	case event.Kind == job.WakeSubscribed && !at.heard:
		at.heard = true
		at.nudgeAll()
	case event.Kind == job.WakeEnded:
		at.ended(event.Seq)
	}
}

func (a awaits) nudgeAll() {
	for _, at := range a {
		at.nudgeAll()
	}
}

func (e *ends) nudgeAll() {
	for seq := range e.of {
		e.ended(seq)
	}
}

// ended has those look that wait for a job.
func (e *ends) ended(seq int64) {
	for c := range e.of[seq] {
		c.nudge()
	}
}

// tellEnd has those of this process look that wait for a job.
func (e *Engine) tellEnd(ns *job.Namespace, ref job.Ref) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at := e.awaits[endKey{ns.Name, ref.Shard}]; at != nil {
		at.ended(ref.Seq)
	}
}

// attend adds a wait for a job, until leave.
func (e *Engine) attend(c *client, ns *job.Namespace, ref job.Ref) (leave func()) {
	key := endKey{ns.Name, ref.Shard}
	e.awaited.Add(1)
	e.mu.Lock()
	at := e.awaits[key]
	first := at == nil
	if first {
		at = &ends{ns: ns, of: map[int64]map[*client]bool{}}
		e.awaits[key] = at
	}
	if at.of[ref.Seq] == nil {
		at.of[ref.Seq] = map[*client]bool{}
	}
	at.of[ref.Seq][c] = true
	e.mu.Unlock()
	if first {
		e.wakes.Want(ns, ref.Shard, job.EndsQueue)
	}
	e.hangups.add(c)
	return func() {
		e.hangups.remove(c)
		e.mu.Lock()
		if delete(at.of[ref.Seq], c); len(at.of[ref.Seq]) == 0 {
			delete(at.of, ref.Seq)
		}
		last := len(at.of) == 0
		if last {
			delete(e.awaits, key)
		}
		e.mu.Unlock()
		if last {
			e.wakes.Unwant(at.ns, ref.Shard, job.EndsQueue)
		}
		e.awaited.Add(-1)
	}
}

// hears reports whether the end of a job of a shard is told to this process.
func (e *Engine) hears(namespace string, shard int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.awaits[endKey{namespace, shard}]
	return at != nil && at.heard
}

// await shows a job once it has ended, or at the end of the wait. One that ends unseen, since its queue
// keeps no acked jobs, is shown as it was seen last, gone and without its payload.
func (a *api) await(c *call, ref job.Ref) *ingest.Rejection {
	wait := c.duration("wait", 0, 0, a.cfg.MaxWait)
	if c.wrong != nil {
		return c.wrong
	}
	if !a.enter() {
		return a.reject(c, ErrStopping)
	}
	defer a.claims.Done()
	taken, rejected := c.take(c.key.Limiters().Consume, 1)
	if rejected != nil {
		return rejected
	}
	reserve := c.Wait
	if wait == 0 {
		reserve = c.Reserve
	}
	if rejected := reserve(pollCost); rejected != nil {
		taken.Refund()
		return rejected
	}
	waiter := &client{conn: c.Conn(), wake: lifecycle.NewSignal()}
	if wait > 0 {
		defer a.attend(waiter, c.namespace, ref)()
	}
	deadline, pause := time.Now().Add(wait), minPause
	var seen *job.Job
	whole := wait == 0 // what it reads is shown
	for {
		heard := a.hears(c.namespace.Name, ref.Shard) // before it looks: what comes later is told
		j, state, rejected := a.lookAt(c, ref, whole, seen)
		left := time.Until(deadline)
		over := left <= 0 || state == job.Acked || state == job.Dead || state == job.Gone
		lasts := rejected != nil && rejected.Code != wire.CodeOverloaded && rejected.Code != wire.CodeStoreUnavailable
		switch {
		case rejected != nil && (lasts || left <= 0):
			return rejected
		case rejected != nil:
		case over && (whole || state == job.Gone):
			answer, err := a.shown(c, j, state, nil)
			if err != nil {
				return a.reject(c, err)
			}
			return c.Answer(200, jsonType, append(answer, '\n'))
		default:
			j.Payload, j.Attributes = nil, nil // a wait holds no more memory than it reserved
			seen = &j
			if whole = over; whole {
				continue
			}
		}
		rest := a.again
		if !heard || rejected != nil {
			rest, pause = pause, min(2*pause, maxAwaitPause)
		}
		select {
		case <-waiter.wake:
		case <-time.After(min(left, max(rest, time.Duration(a.awaited.Load())*awaitShare))):
		case <-c.Stopping():
			deadline = time.Now()
		}
		switch {
		case hasHungUp(c.Conn()):
			return a.reject(c, ErrHungUp)
		case c.Revoked(c.key):
			return a.reject(c, ErrRevoked)
		}
		if c.namespace = a.store.Namespace(c.namespace.Name); c.namespace == nil {
			return ingest.Reject(wire.CodeNoSuchNamespace, "")
		}
	}
}

// lookAt reads a job that is awaited; whole: to show it. seen is what it was before.
func (a *api) lookAt(c *call, ref job.Ref, whole bool, seen *job.Job) (j job.Job, state job.State, rejected *ingest.Rejection) {
	read := a.store.Get
	if of, ok := a.store.(job.Ends); ok && !whole {
		read = of.Await
	}
	rejected = a.ask(c, false, func(ctx context.Context) (err error) {
		if j, state, err = read(
			ctx,
			c.namespace,
			c.queue(),
			ref,
		); errors.Is(err, job.ErrNoJob) && seen != nil {
			j, state, err = *seen, job.Gone, nil
		}
		return err
	})
	return j, state, rejected
}
