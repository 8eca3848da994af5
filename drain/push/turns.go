package push

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

const (
	// maxClaims is how many queues one call to the store claims from: Redis runs it
	// in one go.
	maxClaims = 32
	// maxUnsettled is how many settlements may wait. Beyond it nothing is claimed.
	maxUnsettled = 8192
	// slotPause is how often a target without a free slot looks for one that came back
	// without a Write having ended.
	slotPause = 250 * time.Millisecond
)

// admit notes that a source may have ready jobs, and gives it a turn; t.mu is held.
func (t *target) admit(src *source) {
	src.due = true
	if src.inRing {
		return
	}
	src.inRing = true
	s := t.shard(src.shard)
	s.ring = append(s.ring, src)
	t.inRings++
	if !s.active {
		s.active = true
		t.active = append(t.active, s)
	}
}

// readmit gives the due sources of a queue a turn; t.mu is held.
func (t *target) readmit(q *queue) {
	for _, src := range q.sources {
		if src.due {
			t.admit(src)
		}
	}
}

// A wait is for something that time alone brings.
type wait struct {
	waits bool // it is in the target's list
	at    time.Time
	over  func() // what is done then, before a pump; t.mu is held
}

// wait adds w to what the timer waits for, unless it waits already; t.mu is held.
func (t *target) wait(w *wait, d time.Duration) {
	if w.waits {
		return
	}
	w.waits, w.at = true, time.Now().Add(d)
	i, _ := slices.BinarySearchFunc(t.waits, w, func(a, b *wait) int { return a.at.Compare(b.at) })
	if t.waits = slices.Insert(t.waits, i, w); i == 0 {
		t.timer.Reset(d)
	}
}

// tick ends the waits that are over. It is the timer's.
func (t *target) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for len(t.waits) > 0 && !now.Before(t.waits[0].at) {
		w := t.waits[0]
		t.waits = t.waits[1:]
		if w.waits = false; w.over != nil {
			w.over()
		}
	}
	t.pump()
	if len(t.waits) > 0 {
		t.timer.Reset(time.Until(t.waits[0].at))
	}
}

// pump starts a call to each shard from which a Write can be made; t.mu is held. Shards
// take turns, and the queues of a shard do.
func (t *target) pump() {
	now := time.Now()
	pass := t.passing(now)
	for range len(t.active) {
		s := t.active[0]
		t.active = t.active[1:]
		var claims []*claim
		if pass != nil && !s.busy && !s.rest.waits {
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
		t.unblock.Ring()
	}
}

// passing tells which queues may be claimed from now: nil for none.
func (t *target) passing(now time.Time) func(queue string) bool {
	if t.blocked || t.inRings == 0 || t.p.life.Claiming.Err() != nil || t.unsettled >= maxUnsettled {
		return nil
	}
	if !t.guard.Tripped() {
		if t.guard.IsOpen() {
			return func(string) bool { return true }
		}
		t.blocked = true
		return nil
	}
	var names []string
	for _, s := range t.active {
		if s.busy || s.rest.waits {
			continue
		}
		for _, src := range s.ring {
			if q := src.queue; len(names) < guard.MaxHistory/2 && src.due && !now.Before(q.hold) &&
				q.running == 0 {
				names = append(names, q.name)
			}
		}
	}
	probes := map[string]bool{}
	if len(names) > 0 {
		if names = t.guard.Pass(names); len(names) == 0 {
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

// A claim is a claim with what is reserved for it.
type claim struct {
	job.Claim
	source *source
	batch  int // jobs in a Write, at most
	slots  int // reserved for them
	probe  bool
}

// plan reserves slots for the sources of a shard whose turn it is, each its share of
// what is free; t.mu is held.
func (t *target) plan(s *shard, now time.Time, pass func(queue string) bool) (claims []*claim) {
	ns := t.p.store.Namespace(t.namespace)
	if ns == nil {
		return nil
	}
	probing := t.guard.Tripped()
	share := max(1, t.slots.Available()/max(1, t.inRings))
	for range len(s.ring) {
		if len(claims) == maxClaims {
			break
		}
		src := s.ring[0]
		q := src.queue
		free := q.concurrency() - q.running
		switch {
		case !src.due, free <= 0: // the end of a Write readmits it
			if src.due && !q.slow() {
				q.limit.Wanted()
			}
			t.leaveRing(s)
			continue
		case now.Before(q.hold):
			t.leaveRing(s)
			t.wait(&q.wait, q.hold.Sub(now))
			continue
		case src.rate.waits:
			t.leaveRing(s)
			continue
		case !pass(q.name):
			s.ring = append(s.ring[1:], src)
			continue
		}
		batch := q.batch(now)
		if probing {
			free = 1
		}
		writes := t.slots.More(min(free, share, (job.MaxCount+batch-1)/batch))
		if writes == 0 {
			t.wait(&t.slotWait, slotPause)
			break
		}
		t.leaveRing(s)
		src.due = false
		q.lastTurn(src)
		q.running += writes
		t.running += writes
		claims = append(claims, &claim{
			Claim: job.Claim{
				Namespace:  ns,
				Shard:      s.number,
				Queues:     []string{q.name},
				TTR:        t.p.cfg.SinkTimeout + leaseSlack,
				Count:      min(writes*batch, job.MaxCount),
				ReportLeft: true,
				By:         pusher,
			},
			source: src,
			batch:  batch,
			slots:  writes,
			probe:  probing,
		})
	}
	return claims
}

// leaveRing takes the first source out of a ring; t.mu is held.
func (t *target) leaveRing(s *shard) {
	s.ring[0].inRing = false
	s.ring = s.ring[1:]
	t.inRings--
}

const (
	// maxJobSettlements is how many jobs one call settles.
	maxJobSettlements = 512
	// callTimeout bounds a call to the store: less than the leaseSlack, so that a job whose
	// claim is answered late can still be written.
	callTimeout = 3 * time.Second
	// Calls to a shard that fails are so far apart.
	minCallPause, maxCallPause = 50 * time.Millisecond, 2 * time.Second
)

// A shard is what a target has on its way to one shard of the store: one call at a
// time, which carries its settlements and its claims together.
type shard struct {
	number int
	lane   *job.Lane
	ring   []*source // due ones, in the order of their turns
	active bool      // is in the target's list of shards with due sources
	busy   bool      // a call runs

	settlements []*settlement // wait for a call
	failures    int           // calls in a row that failed
	rest        wait          // no call meanwhile
	unknown     bool          // a claim's outcome is unknown, and not yet reverted
}

// settle starts a call to a shard that has something to settle, or a claim to revert; t.mu
// is held. A call with claims reverts by itself, but there may be none for long. When no
// more is claimed, finish reverts.
func (t *target) settle(s *shard) {
	revert := s.unknown && t.p.life.Claiming.Err() == nil
	if (len(s.settlements) > 0 || revert) && !s.busy && !s.rest.waits {
		t.start(s, nil)
	}
}

// revert gives back what a claim with an unknown outcome may have leased.
func (t *target) revert(s *shard, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(t.p.life.Calling, limit)
	defer cancel()
	return t.p.store.Revert(ctx, s.lane)
}

// start makes a call with claims and with what waits to be settled; t.mu is held.
func (t *target) start(s *shard, claims []*claim) {
	n := min(len(s.settlements), maxJobSettlements)
	settlements := s.settlements[:n:n]
	s.settlements = s.settlements[n:]
	s.busy = true
	t.running++
	go t.call(s, claims, settlements, s.unknown && len(claims) == 0)
}

// call runs claims and settlements of one shard. revert: claims with an unknown outcome, too.
func (t *target) call(s *shard, claims []*claim, settlements []*settlement, revert bool) {
	var b job.Batch
	for _, c := range claims {
		b.Claims = append(b.Claims, &c.Claim)
	}
	for _, x := range settlements {
		x.add(&b)
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(t.p.life.Calling, callTimeout)
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
	t.ended.Ring()
}

// noteCall learns whether the store answered for a shard; t.mu is held.
func (t *target) noteCall(s *shard, failure error) {
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
	t.wait(&s.rest, guard.Backoff(minCallPause, maxCallPause, s.failures, 0.5+rand.Float64()/2))
}

// claimed hands the jobs of a claim to Writes, and gives back what was reserved for more;
// t.mu is held. The error is that of a store that cannot be used.
func (t *target) claimed(s *shard, c *claim, sent time.Time) (failure error) {
	src, q := c.source, c.source.queue
	now := time.Now()
	jobs := c.Jobs
	used := (len(jobs) + c.batch - 1) / c.batch
	q.running -= c.slots - used
	t.running -= c.slots - used
	t.slots.Put(c.slots - used)
	if c.probe && used == 0 {
		t.guard.Unused(1)
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
		t.rejections.Add("store rejects claims of a queue, left alone for 30s", c.Err,
			zap.String("queue", q.name))
		src.due, q.hold = true, now.Add(guard.Quarantine)
	}
	// A claim that got less than it asked for left the queue empty, unless its answer was full
	// or its rate lets no more pass.
	held := len(c.Held) > 0 && c.Held[0] > 0
	old := c.Namespace != t.p.store.Namespace(t.namespace) // its limit may be another one by now
	if c.More || held || old || len(jobs) == c.Count && (len(c.Left) == 0 || c.Left[0] != 0) {
		src.due = true
	}
	if held && !old {
		t.wait(&src.rate, time.Duration(c.Held[0])*time.Millisecond)
	}
	t.readmit(q)
	end := sent.Add(c.TTR - guard.LeaseMargin)
	for len(jobs) > 0 {
		n := min(c.batch, len(jobs))
		w := &write{
			target: t,
			queue:  q,
			ns:     c.Namespace,
			shard:  src.shard,
			jobs:   jobs[:n:n],
			end:    end,
		}
		jobs = jobs[n:]
		go w.run()
	}
	return failure
}
