package drain

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

const (
	// defaultGroupBytes bounds the payload of a coalesced Write whose sink does not.
	defaultGroupBytes = 4 << 20
	// minLingerShare is the part of the linger, or of max_age where that is shorter,
	// that a group waits for at least, up to maxMinLinger. Otherwise, under a backlog
	// whose oldest entries are always about to go stale, each would close its group at
	// once.
	minLingerShare = 8
	maxMinLinger   = 125 * time.Millisecond
	// backlogLinger is how long a lease waits that leaves more behind: several batches, all
	// of them full, or half of the bytes that one claim brings at most. The leases of the
	// few other partitions that are due come with it.
	backlogLinger = 50 * time.Millisecond
	deepBytes     = 512 << 10
	// stopLinger is how long a group waits after Stop for leases that were claimed
	// before.
	stopLinger = 10 * time.Millisecond
	// aloneShare is the part of the Writes that partitions which failed alone get.
	aloneShare = 16
	// handBackAfter is how often what waits for a Write is looked at for leases that
	// are about to end, and how long a suspect waits for which there is no room.
	handBackAfter = time.Second
	// emptyWait is how long an empty queue waits for its signal.
	emptyWait = time.Hour
)

// Why a group closed, a closed set.
const (
	closedEntries  = "entries"
	closedBytes    = "bytes"
	closedBatches  = "batches"
	closedLinger   = "linger"
	closedDeadline = "deadline" // an entry or a lease cannot wait any longer
	closedBacklog  = "backlog"  // a deep lease waits: few partitions are due, and others will not come
	closedSuspects = "suspects" // as many as may be written together
	closedAlone    = "alone"    // part of a rejected unit, a probe, or a partition that failed alone
	closedStop     = "stop"
)

// Why a member was given back without a Write, a closed set.
const (
	backLease        = "lease" // too little of it is left
	backSuspects     = "suspects"
	backNotConnected = "not_connected"
	backStopped      = "stopped"
)

// A coalescer is the sink guard of a sink that wants large Writes: the pending
// Writes of the lease workers, its members, wait in a queue until there are enough
// for a group, which goes out in one Write. Each member gets its share of the outcome.
//
// A partition whose Write failed together with others is a suspect. Suspects have a queue of
// their own, and so have those that failed alone, so that what the sink does not take
// costs the others one Write.
type coalescer struct {
	*guard.Guard
	caps     groupCaps
	claiming context.Context
	metrics  *groupMetrics

	quit    chan struct{}
	running sync.WaitGroup

	mu       sync.Mutex
	queues   [queueKinds]*queue
	suspects suspects
}

// groupCaps are the Caps of a sink that coalesces, without zero values.
type groupCaps struct {
	entries, batches, bytes int
	linger, minLinger       time.Duration
	maxAge                  time.Duration // of the namespace
	batch                   int           // entries of a full batch
	leases                  int           // members that may wait, about
}

// coalesces reports whether a sink gets Writes of several partitions. Under
// at-most-once it does not: there the commit comes right before the Write, so entries
// that wait for others would be lost in a crash, or be too old when their turn comes.
func coalesces(ns *partition.Namespace, caps sink.Caps) bool {
	return caps.Linger > 0 && caps.MaxBatches > 1 && ns.Policy.Delivery != partition.AtMostOnce
}

func newGroupCaps(ns *partition.Namespace, caps sink.Caps, cfg Config) groupCaps {
	c := groupCaps{
		entries:   caps.PreferEntries,
		batches:   caps.MaxBatches,
		bytes:     caps.MaxBytes,
		linger:    caps.Linger,
		minLinger: min(caps.Linger/minLingerShare, ns.Policy.MaxAge/minLingerShare, maxMinLinger),
		maxAge:    ns.Policy.MaxAge,
		batch:     ns.Policy.Batch,
	}
	if c.bytes <= 0 {
		c.bytes = defaultGroupBytes
	}
	if c.entries <= 0 {
		c.entries = c.batches * ns.Policy.Batch
	}
	// While one group of single entries is written, the next one gathers.
	c.leases = min(groupsInHand*min(c.entries, c.batches)+cfg.Workers, maxGroupLeases)
	return c
}

func newCoalescer(g *guard.Guard, caps groupCaps, claiming context.Context,
	m *groupMetrics) *coalescer {
	c := &coalescer{
		Guard:    g,
		caps:     caps,
		claiming: claiming,
		metrics:  m,
		quit:     make(chan struct{}),
		suspects: newSuspects(min(caps.entries, caps.batches)),
	}
	for kind := range c.queues {
		c.queues[kind] = &queue{kind: queueKind(kind), changed: lifecycle.NewSignal()}
	}
	return c
}

func (c *coalescer) start() {
	for _, q := range c.queues {
		c.running.Go(func() { c.serve(q) })
	}
}

// stop ends what start began. No worker writes any more.
func (c *coalescer) stop() {
	close(c.quit)
	c.running.Wait()
}

// Begin reserves nothing: a group does when it is written.
func (c *coalescer) Begin() bool { return c.IsOpen() }

func (c *coalescer) Withdraw() {}

// Write waits until its share of a group is written, or is handed back.
func (c *coalescer) Write(w guard.Write) (guard.Pending, guard.Outcome, error) {
	m := &member{Write: w, done: make(chan struct{})}
	for _, b := range w.Batches {
		m.bytes += payloadBytes(b.Entries)
	}
	if wait, joined := c.join(m); !joined {
		return w.Pending, guard.Outcome{All: guard.Unwritten, After: wait}, nil
	}
	<-m.done
	return m.Pending, m.outcome, m.err
}

// join puts a member into its queue. It is false when that is full of suspects, who may
// try again after wait, and when Writes are cancelled.
func (c *coalescer) join(m *member) (wait time.Duration, joined bool) {
	now, tripped := time.Now(), c.Tripped()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Stopping() {
		c.metrics.givenBack.WithLabelValues(backStopped).Inc()
		return 0, false
	}
	m.failures = c.suspects.failures[m.Partition]
	q := c.queues[trusted]
	switch {
	case m.Alone || m.failures >= aloneFrom:
		q = c.queues[single]
	case m.failures > 0:
		q = c.queues[suspected]
	}
	if q.kind != trusted && !m.Alone && len(q.waiting) >= c.caps.leases/4 {
		c.metrics.givenBack.WithLabelValues(backSuspects).Inc()
		return handBackAfter, false
	}
	m.closeAt, m.reason = now, closedAlone
	if q.kind != single && m.failures < lastTogether && !tripped {
		m.closeAt, m.reason = c.closing(m, now)
	}
	q.add(m)
	return 0, true
}

// closing is when a member's group must close, and why.
func (c *coalescer) closing(m *member, now time.Time) (at time.Time, reason string) {
	switch {
	case c.claiming.Err() != nil:
		return now.Add(stopLinger), closedStop
	case m.Trial:
		return now, closedDeadline
	}
	at, reason = now.Add(c.caps.linger), closedLinger
	life := max(c.MinLife(c.caps.maxAge), c.caps.minLinger)
	for _, latest := range []time.Time{m.Stale.Add(-life), m.End.Add(-c.Timeout)} {
		if latest.Before(at) {
			at, reason = latest, closedDeadline
		}
	}
	if soonest := now.Add(c.caps.minLinger); at.Before(soonest) {
		at = soonest
	}
	if soon := now.Add(backlogLinger); soon.Before(at) && c.leavesMore(m) {
		at, reason = soon, closedBacklog
	}
	return at, reason
}

// leavesMore reports whether the lease of a member was most likely cut, so that the
// rest of its partition waits behind it.
func (c *coalescer) leavesMore(m *member) bool {
	n := len(m.Batches)
	return m.bytes >= deepBytes || n > 1 && len(m.Batches[n-1].Entries) == c.caps.batch
}

// serve starts the groups of a queue until quit.
func (c *coalescer) serve(q *queue) {
	claimed, cancelled := c.claiming.Done(), c.Writing.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	look := time.Now() // when to look for leases about to end; others that join do not put it off
	for {
		c.mu.Lock()
		reason, wait := c.due(q, time.Now())
		c.mu.Unlock()
		var permit <-chan struct{}
		if reason != "" {
			permit, wait = c.Slots.Free, handBackAfter
		}
		if wait < emptyWait {
			wait = min(wait, time.Until(look))
		}
		timer.Reset(wait)
		select {
		case <-permit:
			c.dispatch(q)
		case <-q.changed:
		case now := <-timer.C:
			look = now.Add(handBackAfter)
			c.handBack(q, backLease, c.leaseTooShort)
		case <-claimed:
			claimed = nil
			c.mu.Lock()
			q.closeAll()
			c.mu.Unlock()
		case <-cancelled:
			cancelled = nil
			c.handBack(q, backStopped, func(*member) bool { return true })
		case <-c.quit:
			return
		}
	}
}

// due is why a group of the queue is to be written now, or how long none is.
func (c *coalescer) due(q *queue, now time.Time) (reason string, wait time.Duration) {
	switch {
	case len(q.waiting) == 0:
		return "", emptyWait
	case !c.mayRun(q):
		return "", handBackAfter
	case q.kind == suspected && len(q.waiting) >= c.suspects.size:
		return closedSuspects, 0
	case q.entries >= c.caps.entries:
		return closedEntries, 0
	case q.bytes >= c.caps.bytes:
		return closedBytes, 0
	case len(q.waiting) > 1 && q.batches >= c.caps.batches:
		return closedBatches, 0
	}
	if wait = q.closeAt.Sub(now); wait <= 0 {
		return q.reason, 0
	}
	return "", wait
}

// mayRun reports whether the queue may have another Write. Suspects get half of the
// Writes at most, and those that failed alone a sixteenth, for they may hang for all of
// the sink timeout.
func (c *coalescer) mayRun(q *queue) bool {
	if q.kind == trusted {
		return true
	}
	n := c.AtOnce()
	if q.kind == single && !q.waiting[0].Alone && q.writes >= max(1, n/aloneShare) {
		return false
	}
	return c.queues[suspected].writes+c.queues[single].writes < max(1, n/2)
}

// dispatch writes a group of the queue; the caller took the permit.
func (c *coalescer) dispatch(q *queue) {
	c.mu.Lock()
	reason, _ := c.due(q, time.Now())
	if reason == "" {
		c.mu.Unlock()
		c.Slots.Put(1)
		return
	}
	size := len(q.waiting)
	switch {
	case q.alone():
		size, reason = 1, closedAlone
	case q.kind == suspected:
		size = c.suspects.size
	}
	group := q.take(size, c.caps)
	q.writes++
	c.mu.Unlock()
	c.metrics.closed.WithLabelValues(reason).Inc()
	c.running.Go(func() {
		c.deliver(q, group)
		c.mu.Lock()
		q.writes--
		c.mu.Unlock()
		c.Slots.Put(1)
		for _, q := range c.queues {
			q.changed.Ring()
		}
	})
}

// handBack ends the wait of members without a Write.
func (c *coalescer) handBack(q *queue, reason string, which func(*member) bool) {
	c.mu.Lock()
	list := q.remove(which)
	c.mu.Unlock()
	for _, m := range list {
		c.giveBack(m, reason)
	}
}

// giveBack ends the wait of a member that no Write had.
func (c *coalescer) giveBack(m *member, reason string) {
	c.metrics.givenBack.WithLabelValues(reason).Inc()
	m.finish(guard.Outcome{All: guard.Unwritten}, nil)
}

// leaseTooShort reports whether too little of a member's lease is left for a Write.
// It joined with half of the sink timeout at least.
func (c *coalescer) leaseTooShort(m *member) bool { return time.Until(m.End) < c.Timeout/4 }
