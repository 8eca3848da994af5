package push

import (
	"slices"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
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
