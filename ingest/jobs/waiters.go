package jobs

import (
	"maps"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// What a claim that waits holds in bytes, about, beside its connection: itself, its answer's
// head and its goroutine; a waiter; and a queue that it is the first to wait for, with its
// subscription, beside the name twice. A test measures them.
const (
	pollCost   = 2 << 10
	waiterCost = 128
	queueCost  = 768
)

// queueKey names a queue of a shard.
type queueKey struct {
	namespace string
	shard     int
	queue     string
}

// queue is a queue of a shard that polls wait for. There is one while a poll does. The
// engine's lock guards it.
type queue struct {
	key        queueKey
	ns         *job.Namespace // that Want was called with
	polls      int            // that wait for it, listed or not
	woken      int            // polls that it woke and that have not asked since
	subscribed bool           // its wakes are heard
	held       *time.Timer    // its rate lets the next job pass then; nil: it held nothing back yet
	ends       waiter         // beside the first and the last of the list, which is a ring
}

// waiter is a poll in the list of one of its queues.
type waiter struct {
	poll       *poll
	queue      *queue
	prev, next *waiter
}

// first is the poll that is listed for longest; nil: none is.
func (q *queue) first() *poll { return q.ends.next.poll }

// list puts a poll at the ends of the lists of its queues.
func (p *poll) list() {
	p.listed, p.unheard = true, 0
	for i := range p.waiters {
		w := &p.waiters[i]
		ends := &w.queue.ends
		w.prev, w.next = ends.prev, ends
		w.prev.next, ends.prev = w, w
		if !w.queue.subscribed {
			p.unheard++
		}
	}
}

// unlist takes a poll out of the lists.
func (p *poll) unlist() {
	if !p.listed {
		return
	}
	p.listed = false
	for i := range p.waiters {
		w := &p.waiters[i]
		w.prev.next, w.next.prev = w.next, w.prev
	}
}

// asked ends what wake began.
func (p *poll) asked() {
	if p.woke != nil {
		p.woke.woken--
		p.woke = nil
	}
}

// follow lists a poll, in the shards where its queues are now. It reports whether the wakes of
// all of them are heard, and whether one has woken the poll since the call before. After an
// error the poll ends, and is not listed again: leave sees that it was woken.
func (e *Engine) follow(p *poll) (heard, woken bool, err error) {
	if err := p.gone(); err != nil {
		return false, false, err
	}
	e.mu.Lock()
	woken = p.waiters != nil && !p.listed
	fresh, empty, err := e.join(p)
	if err == nil && !p.listed {
		p.list()
	}
	heard = p.unheard == 0
	e.mu.Unlock()
	for _, q := range fresh {
		e.wakes.Want(q.ns, q.key.shard, q.key.queue)
	}
	e.unwant(empty)
	return heard, woken, err
}

// join gives a poll its waiters, where it has none or its namespace has another policy. It
// returns the queues that no poll waited for before, and those that none waits for any more.
// All polls share the names of queues: those that came with a request are dropped.
func (e *Engine) join(p *poll) (fresh, empty []*queue, err error) {
	now := e.store.Namespace(p.Namespace.Name)
	switch {
	case e.stopped || p.ended:
		return nil, nil, ErrStopping
	case now == nil:
		return nil, nil, ErrNoNamespace
	case p.waiters != nil && now == p.Namespace && p.shards == now.ShardCount():
		return nil, nil, nil
	}
	paid := p.waiters != nil
	empty = e.part(p)
	if now != p.Namespace || p.shards != now.ShardCount() {
		p.Namespace = now
		e.plan(p)
	}
	// A queue is paid by the poll that makes it: one that outlives it has cost its namespace as
	// much before.
	cost := pollCost
	p.waiters = make([]waiter, 0, p.before(len(p.steps)))
	for i := range p.steps {
		names := p.queues(i)
		for at, name := range names {
			key := queueKey{now.Name, p.steps[i].shard, name}
			q := e.queues[key]
			cost += waiterCost
			if q == nil {
				cost += queueCost + 2*len(name)
				key.queue = strings.Clone(name)
				q = &queue{key: key, ns: now}
				q.ends.prev, q.ends.next = &q.ends, &q.ends
				e.queues[key] = q
				fresh = append(fresh, q)
			}
			names[at] = q.key.queue
			q.polls++
			p.waiters = append(p.waiters, waiter{poll: p, queue: q})
		}
	}
	if !paid && p.Reserve != nil && !p.Reserve(cost) {
		e.part(p)
		return nil, nil, ErrOverloaded
	}
	e.polls[p] = struct{}{}
	return fresh, empty, nil
}

// before is how many waiters the first steps of a poll have.
func (p *poll) before(step int) (n int) {
	for _, s := range p.steps[:step] {
		n += int(s.to - s.from)
	}
	return n
}

// part takes the waiters from a poll, and returns the queues that no poll waits for any more.
// The caller calls unwant for these, without the lock.
func (e *Engine) part(p *poll) (empty []*queue) {
	p.unlist()
	p.asked()
	for i := range p.waiters {
		q := p.waiters[i].queue
		if q.polls--; q.polls == 0 {
			q.release()
			delete(e.queues, q.key)
			empty = append(empty, q)
		}
	}
	p.waiters = nil
	return empty
}

// leave ends the wait of a poll. What it was woken for and has not asked wakes others.
func (e *Engine) leave(p *poll) {
	e.hangups.remove(&p.client)
	e.mu.Lock()
	if !p.listed {
		p.at = 0 // it was woken since it asked
	}
	rest := p.waiters
	if rest != nil {
		rest = rest[p.before(p.at):]
	}
	delete(e.polls, p)
	empty := e.part(p)
	for i := range rest {
		e.wake(rest[i].queue, 1, true)
	}
	e.mu.Unlock()
	e.unwant(empty)
}

func (e *Engine) unwant(queues []*queue) {
	for _, q := range queues {
		e.wakes.Unwant(q.ns, q.key.shard, q.key.queue)
	}
}

// wake lets those n polls ask that wait longest for a queue; without failing, those only that do
// not fail. One that asks already may be past the queue, and busy elsewhere for long: it asks
// again, but does not count.
func (e *Engine) wake(q *queue, n int, failing bool) {
	for w := q.ends.next; w.poll != nil && n > 0; w = w.next {
		p := w.poll
		if p.failing && !failing {
			continue
		}
		p.unlist()
		p.nudge()
		e.metrics.woken.Inc()
		if p.asking {
			continue
		}
		if p.woke == nil {
			p.woke = q
			q.woken++
		}
		n--
	}
}

// hold lets a poll ask once the rate of a queue lets jobs pass again: those that wait cost the
// store nothing until then.
func (e *Engine) hold(q *queue, ms int64) {
	q.release()
	q.held = time.AfterFunc(time.Duration(ms)*time.Millisecond, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.wake(q, 1, true)
	})
}

func (q *queue) release() {
	if q.held != nil {
		q.held.Stop()
	}
}

// hear is told what happens to the subscriptions.
func (e *Engine) hear(event job.WakeEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if event.Kind == job.WakeLost || event.Queue == job.EndsQueue {
		e.awaits.hear(event)
	}
	switch event.Kind {
	case job.WakeRestart:
		for p := range e.polls {
			if p.Namespace.Name == event.Namespace {
				p.ended = true
				p.nudge()
			}
		}
		return
	case job.WakeLost:
		for _, q := range e.queues {
			q.subscribed = false
		}
		for p := range e.polls {
			p.unheard = len(p.waiters)
			p.nudge()
		}
		return
	}
	q := e.queues[queueKey{event.Namespace, event.Shard, event.Queue}]
	switch {
	case q == nil:
	case event.Kind == job.WakeHeard:
		e.wake(q, max(1, event.Count), true)
	case event.Kind == job.WakeSubscribed && !q.subscribed:
		q.subscribed = true
		for w := q.ends.next; w.poll != nil; w = w.next {
			if w.poll.unheard--; w.poll.unheard == 0 {
				w.poll.nudge()
			}
		}
	}
}

// Refresh has the claims that wait with a token that was removed end, and those of a namespace
// with another policy ask in the shards where its queues are now; who waits for the end of a job
// looks again. Call it when tokens or namespaces have changed.
func (e *Engine) Refresh() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for p := range e.polls {
		if p.Revoked != nil && p.Revoked() || e.store.Namespace(p.Namespace.Name) != p.Namespace {
			p.nudge()
		}
	}
	e.awaits.nudgeAll()
	maps.DeleteFunc(e.last,
		func(namespace string, _ answer) bool {
			return e.store.Namespace(namespace) == nil
		})
}
