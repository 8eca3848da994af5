package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

const (
	// maxPushClaims is how many queues one call to the store claims from: Redis runs it
	// in one go.
	maxPushClaims = 32
	// maxJobSettlements is how many jobs one call settles.
	maxJobSettlements = 512
	// maxUnsettled is how many settlements may wait. Beyond it nothing is claimed.
	maxUnsettled = 8192
	// callTimeout bounds a call to the store: less than the leaseSlack, so that a job whose
	// claim is answered late can still be written.
	callTimeout = 3 * time.Second
	// Calls to a shard that fails are so far apart.
	minCallPause, maxCallPause = 50 * time.Millisecond, 2 * time.Second
	// slotPause is how often a target without a free slot looks for one that came back
	// without a Write having ended.
	slotPause = 250 * time.Millisecond
)

// A pushTarget pushes the queues of a namespace that go to one sink. There is no loop:
// whatever changes, pump starts the calls that can now be made.
type pushTarget struct {
	p         *Pusher
	namespace string
	sink      string // its name
	label     string
	log       *zap.Logger
	guard     *sinkGuard
	slots     *slots // for Writes
	writes    int    // that may run at once, unless the guard has a limit
	metrics   *pushTargetMetrics
	refusals  *refusalLog
	closed    error // what the sink's Close said

	mu        sync.Mutex
	queues    map[string]*pushQueue
	shards    map[int]*pushShard
	active    []*pushShard  // with due sources, in the order of their turns
	due       int           // sources in the rings
	unsettled int           // jobs
	running   int           // Writes and calls
	blocked   bool          // the sink lets nothing pass; follow waits for it
	waiting   bool          // a timer of slotPause runs
	unblock   chan struct{} // holds one: blocked was set
	ended     chan struct{} // holds one: a Write or a call has ended
}

func newPushTarget(p *Pusher, namespace, name string, s PushSink, m *pushTargetMetrics) *pushTarget {
	t := &pushTarget{
		p: p, namespace: namespace, sink: name, label: s.Label, metrics: m,
		log:    p.log.With(zap.String("namespace", namespace), zap.String("sink", s.Label)),
		queues: map[string]*pushQueue{}, shards: map[int]*pushShard{},
		unblock: make(chan struct{}, 1), ended: make(chan struct{}, 1),
	}
	t.refusals = &refusalLog{log: t.log}
	cfg := DefaultConfig() // how long the pauses between two Opens are
	cfg.SinkTimeout = p.cfg.SinkTimeout
	t.guard = newSinkGuard(p.writing, s.Sink, cfg, t.log, &m.sinkMetrics)
	t.writes = p.cfg.MaxWrites
	if n := s.Sink.Caps().MaxInFlight; n > 0 {
		t.writes = min(t.writes, n)
	}
	t.slots = newSlots(t.writes)
	m.concurrency.Set(float64(t.writes))
	if s.Sink.Caps().MaxInFlight == 0 {
		t.guard.limit = newAdaptiveLimit(t.slots, m.concurrency)
	}
	return t
}

// signal fills a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// follow pumps when a sink that let nothing pass lets something pass again.
func (t *pushTarget) follow(ctx context.Context) {
	for t.guard.wait(ctx) {
		t.mu.Lock()
		t.blocked = false
		t.pump()
		t.mu.Unlock()
		select {
		case <-t.unblock:
		case <-ctx.Done():
		}
	}
}

// finish waits, when claiming has ended, until no Write and no call runs and nothing is
// left to settle. Then it closes the sink.
func (t *pushTarget) finish() {
	calling := t.p.calling.Done()
	for {
		t.mu.Lock()
		if t.p.calling.Err() != nil {
			t.abandon()
		}
		done := t.running == 0 && t.unsettled == 0
		t.mu.Unlock()
		if done {
			break
		}
		select {
		case <-t.ended:
		case <-calling:
			calling = nil
		}
	}
	t.mu.Lock()
	shards := slices.Collect(maps.Values(t.shards))
	t.mu.Unlock()
	for _, s := range shards {
		if !s.unknown {
			continue
		}
		if err := t.revert(s, stopGrace/2); err != nil {
			t.log.Warn("claims with an unknown outcome are not given back; their leases lapse", zap.Int("shard", s.number), zap.Error(err))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.p.cfg.SinkTimeout)
	defer cancel()
	defer context.AfterFunc(t.p.calling, cancel)()
	if err := t.guard.close(ctx); err != nil {
		t.closed = fmt.Errorf("close sink %s of namespace %s: %w", t.sink, t.namespace, err)
	}
}

// abandon gives up what waits to be settled: the leases lapse. t.mu is held.
func (t *pushTarget) abandon() {
	for _, s := range t.shards {
		t.metrics.jobs.WithLabelValues(pushLapsed).Add(float64(len(s.settlements)))
		t.unsettled -= len(s.settlements)
		s.settlements = nil
	}
}

// revert gives back what a claim with an unknown outcome may have leased.
func (t *pushTarget) revert(s *pushShard, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(t.p.calling, limit)
	defer cancel()
	return t.p.store.Revert(ctx, s.lane)
}

// shard is what is known of a shard; t.mu is held.
func (t *pushTarget) shard(number int) *pushShard {
	s := t.shards[number]
	if s == nil {
		s = &pushShard{number: number, lane: t.p.store.NewLane()}
		t.shards[number] = s
	}
	return s
}

// list notes that a queue that the rule matches has jobs, or is named by the rule.
func (t *pushTarget) list(ns *job.Namespace, name string, r *PushRule) {
	var wanted []*pushSource
	t.mu.Lock()
	now := time.Now()
	q := t.queues[name]
	if q == nil {
		q = &pushQueue{name: name, rule: r, tokens: r.burst(), refilled: now}
		t.queues[name] = q
		t.metrics.queues.Set(float64(len(t.queues)))
	}
	q.listed = now
	for _, shard := range ns.Shards(name) {
		if !slices.ContainsFunc(q.sources, func(s *pushSource) bool { return s.shard == shard }) {
			src := &pushSource{queue: q, shard: shard}
			q.sources = append(q.sources, src)
			wanted = append(wanted, src)
		}
	}
	t.mu.Unlock()
	if len(wanted) == 0 {
		return
	}
	// The wakes may call heard while they hold a lock of theirs, so no lock is held here.
	for _, src := range wanted {
		t.p.wakes.Want(ns, src.shard, name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, src := range wanted {
		t.admit(src)
	}
	t.pump()
}

// poll looks at every queue after a list: those whose wakes are not heard are due, and
// those that were not listed for long are forgotten, where lists can be believed.
func (t *pushTarget) poll(ns *job.Namespace, listed bool) {
	var forgotten []*pushQueue
	t.mu.Lock()
	now := time.Now()
	for name, q := range t.queues {
		if listed && now.Sub(q.listed) > forgetAfter && q.running == 0 {
			forgotten = append(forgotten, q)
			delete(t.queues, name)
			for _, src := range q.sources {
				src.due = false
			}
			continue
		}
		for _, src := range q.sources {
			if !src.subscribed {
				t.admit(src)
			}
		}
	}
	t.metrics.queues.Set(float64(len(t.queues)))
	t.pump()
	t.mu.Unlock()
	for _, q := range forgotten {
		for _, src := range q.sources {
			t.p.wakes.Unwant(ns, src.shard, q.name)
		}
	}
}

// heard is called for an event of the wakes.
func (t *pushTarget) heard(e job.WakeEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Queue == "" {
		for _, q := range t.queues {
			t.heardOf(q, e)
		}
	} else if q := t.queues[e.Queue]; q != nil {
		t.heardOf(q, e)
	}
	t.pump()
}

// heardOf is heard for one queue; t.mu is held. A queue is asked after each event: what
// was pushed before a subscription was not heard of.
func (t *pushTarget) heardOf(q *pushQueue, e job.WakeEvent) {
	for _, src := range q.sources {
		if e.Queue == "" || src.shard == e.Shard {
			switch e.Kind {
			case job.WakeSubscribed:
				src.subscribed = true
			case job.WakeLost:
				src.subscribed = false
			}
			t.admit(src)
		}
	}
}

// admit notes that a source may have ready jobs, and gives it a turn; t.mu is held.
func (t *pushTarget) admit(src *pushSource) {
	src.due = true
	if src.inRing {
		return
	}
	src.inRing = true
	s := t.shard(src.shard)
	s.ring = append(s.ring, src)
	t.due++
	if !s.active {
		s.active = true
		t.active = append(t.active, s)
	}
}

// readmit gives the due sources of a queue a turn; t.mu is held.
func (t *pushTarget) readmit(q *pushQueue) {
	for _, src := range q.sources {
		if src.due {
			t.admit(src)
		}
	}
}

// later readmits a queue after a while; t.mu is held.
func (t *pushTarget) later(q *pushQueue, wait time.Duration) {
	time.AfterFunc(wait, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.readmit(q)
		t.pump()
	})
}

// pump starts a call to each shard from which a Write can be made; t.mu is held. Shards
// take turns, and the queues of a shard do.
func (t *pushTarget) pump() {
	now := time.Now()
	pass := t.passing(now)
	for range len(t.active) {
		s := t.active[0]
		t.active = t.active[1:]
		var claims []*pushClaim
		if pass != nil && !s.busy && !now.Before(s.retry) {
			claims = t.plan(s, now, pass)
		}
		if s.active = len(s.ring) > 0; s.active {
			t.active = append(t.active, s)
		}
		if len(claims) > 0 {
			t.start(s, claims)
		}
	}
	if t.blocked {
		signal(t.unblock)
	}
}

// settle starts a call to a shard that has something to settle, or a claim to revert; t.mu
// is held. A call with claims reverts by itself, but there may be none for long. When no
// more is claimed, finish reverts.
func (t *pushTarget) settle(s *pushShard) {
	revert := s.unknown && t.p.claiming.Err() == nil
	if (len(s.settlements) > 0 || revert) && !s.busy && !time.Now().Before(s.retry) {
		t.start(s, nil)
	}
}

// passing tells which queues may be claimed from now: nil for none.
func (t *pushTarget) passing(now time.Time) func(queue string) bool {
	if t.blocked || t.due == 0 || t.p.claiming.Err() != nil || t.unsettled >= maxUnsettled {
		return nil
	}
	if !t.guard.tripped() {
		if open, _ := t.guard.opener.state(); open {
			return func(string) bool { return true }
		}
		t.blocked = true
		return nil
	}
	var names []string
	for _, s := range t.active {
		if s.busy || now.Before(s.retry) {
			continue
		}
		for _, src := range s.ring {
			if q := src.queue; len(names) < maxHistory/2 && src.due && !now.Before(q.hold) && q.running == 0 {
				names = append(names, q.name)
			}
		}
	}
	probes := map[string]bool{}
	if len(names) > 0 {
		if names = t.guard.pass(names); len(names) == 0 {
			t.blocked = true
			return nil
		}
	}
	for _, name := range names {
		probes[name] = true
	}
	return func(queue string) bool {
		defer delete(probes, queue)
		return probes[queue]
	}
}

// A pushClaim is a claim with what is reserved for it.
type pushClaim struct {
	job.Claim
	source *pushSource
	batch  int // jobs in a Write
	writes int // slots
	probe  bool
}

// plan reserves slots for the sources of a shard whose turn it is, each its share of
// what is free; t.mu is held.
func (t *pushTarget) plan(s *pushShard, now time.Time, pass func(queue string) bool) (claims []*pushClaim) {
	ns := t.p.store.Namespace(t.namespace)
	if ns == nil {
		return nil
	}
	probing := t.guard.tripped()
	share := max(1, t.slots.available()/max(1, t.due))
	for range len(s.ring) {
		if len(claims) == maxPushClaims {
			break
		}
		src := s.ring[0]
		q := src.queue
		free := q.concurrency() - q.running
		jobs, wait := q.allowed(now)
		switch {
		case !src.due, free <= 0: // the end of a Write readmits it
			t.leaveRing(s)
			continue
		case now.Before(q.hold):
			t.leaveRing(s)
			t.later(q, q.hold.Sub(now))
			continue
		case jobs == 0:
			t.leaveRing(s)
			t.later(q, wait)
			continue
		case !pass(q.name):
			s.ring = append(s.ring[1:], src)
			continue
		}
		batch := q.batch(now)
		if probing {
			free, jobs = 1, min(jobs, batch)
		}
		writes := t.slots.more(min(free, share, (min(jobs, job.MaxCount)+batch-1)/batch))
		if writes == 0 {
			t.waitForSlot()
			break
		}
		jobs = min(jobs, writes*batch, job.MaxCount)
		t.leaveRing(s)
		src.due = false
		q.running += writes
		q.took(jobs)
		t.running += writes
		claims = append(claims, &pushClaim{
			Claim: job.Claim{
				Namespace: ns, Shard: s.number, Queues: []string{q.name}, TTR: t.p.cfg.SinkTimeout + leaseSlack, Count: jobs, ReportLeft: true,
			},
			source: src, batch: batch, writes: writes, probe: probing,
		})
	}
	return claims
}

// waitForSlot looks again soon; t.mu is held. The end of a Write pumps by itself, but a
// limit may give slots back at other times.
func (t *pushTarget) waitForSlot() {
	if t.guard.limit != nil && !t.waiting {
		t.waiting = true
		time.AfterFunc(slotPause, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.waiting = false
			t.pump()
		})
	}
}

// leaveRing takes the first source out of a ring; t.mu is held.
func (t *pushTarget) leaveRing(s *pushShard) {
	s.ring[0].inRing = false
	s.ring = s.ring[1:]
	t.due--
}

// start makes a call with claims and with what waits to be settled; t.mu is held.
func (t *pushTarget) start(s *pushShard, claims []*pushClaim) {
	n := min(len(s.settlements), maxJobSettlements)
	settlements := s.settlements[:n:n]
	s.settlements = s.settlements[n:]
	s.busy = true
	t.running++
	go t.call(s, claims, settlements, s.unknown && len(claims) == 0)
}

// call runs claims and settlements of one shard. revert: claims with an unknown outcome, too.
func (t *pushTarget) call(s *pushShard, claims []*pushClaim, settlements []*pushSettlement, revert bool) {
	var b job.Batch
	for _, c := range claims {
		b.Claims = append(b.Claims, &c.Claim)
	}
	for _, x := range settlements {
		x.add(&b)
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(t.p.calling, callTimeout)
	if len(claims)+len(settlements) > 0 {
		t.p.store.Run(ctx, s.lane, &b)
	}
	cancel()
	var failure error
	if revert {
		failure = t.revert(s, callTimeout)
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if revert && failure == nil {
		s.unknown = false
	}
	for _, x := range settlements {
		if err := t.settled(s, x); err != nil {
			failure = err
		}
	}
	for _, c := range claims {
		if err := t.claimed(s, c, sent); err != nil {
			failure = err
		}
	}
	t.noteCall(s, failure)
	s.busy = false
	t.running--
	t.pump()
	t.settle(s)
	signal(t.ended)
}

// noteCall learns whether the store answered for a shard; t.mu is held.
func (t *pushTarget) noteCall(s *pushShard, failure error) {
	if failure == nil {
		if s.failures > 0 {
			t.p.outage.End()
		}
		s.failures = 0
		return
	}
	if s.failures++; s.failures == 1 {
		t.p.outage.Begin(zap.String("namespace", t.namespace), zap.Int("shard", s.number), zap.Error(failure))
	}
	pause := backoff(minCallPause, maxCallPause, s.failures, 0.5+rand.Float64()/2)
	s.retry = time.Now().Add(pause)
	time.AfterFunc(pause, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pump()
		t.settle(s)
	})
}

// claimed hands the jobs of a claim to Writes, and gives back what was reserved for more;
// t.mu is held. The error is that of a store that cannot be used.
func (t *pushTarget) claimed(s *pushShard, c *pushClaim, sent time.Time) (failure error) {
	src, q := c.source, c.source.queue
	now := time.Now()
	jobs := c.Jobs
	used := (len(jobs) + c.batch - 1) / c.batch
	q.took(len(jobs) - c.Count)
	q.running -= c.writes - used
	t.running -= c.writes - used
	t.slots.put(c.writes - used)
	if c.probe && used == 0 {
		t.guard.unused(1)
	}
	if c.Err == nil {
		s.unknown = false // a lane reverts before it claims
	}
	switch {
	case c.Err == nil && len(jobs) == 0:
		t.metrics.claims.WithLabelValues(claimIdle).Inc()
	case c.Err == nil:
		t.metrics.claims.WithLabelValues(claimLeased).Inc()
		q.listed = now
	case errors.Is(c.Err, partition.ErrUnavailable), errors.Is(c.Err, partition.ErrUnknown):
		outcome := claimUnavailable
		if errors.Is(c.Err, partition.ErrUnknown) {
			outcome, s.unknown = claimUnknown, true
		}
		t.metrics.claims.WithLabelValues(outcome).Inc()
		src.due, failure = true, c.Err
	default:
		t.metrics.claims.WithLabelValues(claimBroken).Inc()
		t.refusals.add("store refuses to hand out jobs of a queue, left alone for 30s", c.Err, zap.String("queue", q.name))
		src.due, q.hold = true, now.Add(quarantine)
	}
	// A claim that got less than it asked for left the queue empty, unless its answer was full.
	if c.More || len(jobs) == c.Count && (len(c.Left) == 0 || c.Left[0] != 0) {
		src.due = true
	}
	t.readmit(q)
	end := sent.Add(c.TTR - leaseMargin)
	for len(jobs) > 0 {
		n := min(c.batch, len(jobs))
		w := &pushWrite{target: t, queue: q, ns: c.Namespace, shard: src.shard, jobs: jobs[:n:n], end: end}
		jobs = jobs[n:]
		go w.run()
	}
	return failure
}
