package push

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

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
		w := &write{target: t, queue: q, ns: c.Namespace, shard: src.shard, jobs: jobs[:n:n], end: end}
		jobs = jobs[n:]
		go w.run()
	}
	return failure
}
