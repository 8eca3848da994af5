package drain

import (
	"errors"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// A part of a group is what goes into one Write.
type part struct {
	members  []*member
	rejected error // not nil: the sink rejected a Write that held more than these
}

// deliver writes a group. A Write that is rejected as a whole is split between its
// members, down to one, so that a poison entry costs its own partition only; that
// one's worker goes on within its lease. The halves follow one another, in 2·log2(n)
// Writes for one poison entry among n members.
func (c *coalescer) deliver(q *queue, group []*member) {
	defer c.recoverGroup(group)
	for parts := []part{{members: group}}; len(parts) > 0; {
		p := parts[len(parts)-1]
		parts = parts[:len(parts)-1]
		if p.members = c.ready(p); len(p.members) == 0 {
			continue
		}
		if !c.sinkGuard.begin() {
			for _, m := range p.members {
				c.unresolved(m, p.rejected, backNotConnected)
			}
			continue
		}
		o, err := c.writeMembers(q.kind, p.members)
		if n := len(p.members); o.all == rejected && n > 1 {
			parts = append(parts, part{p.members[n/2:], err}, part{p.members[:n/2], err})
			continue
		}
		c.judge(q.kind, p, o)
		for _, m := range p.members {
			m.finish(m.outcome, err)
		}
	}
}

// ready returns the members that can be written now, without entries that have
// become too old while they waited. It ends the wait of the others.
func (c *coalescer) ready(p part) []*member {
	now := time.Now()
	// They joined with minLife, which is two Writes: one is left.
	minLife := c.minLife(c.caps.maxAge) / 2
	kept := p.members[:0:0]
	for _, m := range p.members {
		if c.leaseTooShort(m) {
			c.unresolved(m, p.rejected, backLease)
			continue
		}
		if m.pendingWrite = m.stillFresh(now, minLife); m.entries == 0 {
			m.finish(writeOutcome{all: accepted}, nil)
			continue
		}
		kept = append(kept, m)
	}
	return kept
}

// unresolved hands back a member that is not written. What was in a Write that the
// sink rejected was presented, and may be the cause.
func (c *coalescer) unresolved(m *member, rejected error, reason string) {
	if rejected == nil {
		c.giveBack(m, reason)
		return
	}
	c.mu.Lock()
	c.suspects.strike(m.partition, 1)
	c.mu.Unlock()
	m.finish(writeOutcome{all: retryable, reason: reasonPermanent}, rejected)
}

// writeMembers makes one Write of all members, which ends when the first of them
// must, and gives each its outcome.
func (c *coalescer) writeMembers(kind queueKind, group []*member) (writeOutcome, error) {
	var batches []*sink.Batch
	stale, end, trial, entries := group[0].stale, group[0].end, false, 0
	for _, m := range group {
		batches = append(batches, m.batches...)
		if m.stale.Before(stale) {
			stale = m.stale
		}
		if m.end.Before(end) {
			end = m.end
		}
		trial = trial || m.trial
		entries += m.entries
	}
	if limit := time.Now().Add(c.suspectLimit()); kind == suspected && limit.Before(end) {
		end = limit
	}
	c.metrics.writeEntries.Observe(float64(entries))
	o, err := c.attempt(batches, stale, end, trial)
	o.divide(group)
	c.opener.end(o.reopen)
	c.learn(o, c.breaker.recordGroup(group, o, err))
	return o, err
}

// suspectLimit is how long a Write of suspects may take: a part of the sink timeout
// while nothing is known of the sink.
func (c *coalescer) suspectLimit() time.Duration {
	if pace := c.writeTime(); pace > 0 {
		return max(minSuspectTime, suspectTime*pace)
	}
	return c.timeout / suspectTime
}

// divide gives each member its share of the outcome of a Write of all their batches.
func (o *writeOutcome) divide(group []*member) {
	for _, m := range group {
		m.outcome = *o
		m.outcome.named = nil
	}
	if o.named == nil {
		return
	}
	type place struct {
		member *member
		batch  int
	}
	var places []place // by the batch in the Write
	for _, m := range group {
		for i := range m.batches {
			places = append(places, place{m, i})
		}
		m.outcome.after, m.outcome.reason = 0, ""
	}
	for at, f := range o.named {
		p := places[at.batch]
		own := &p.member.outcome
		if own.named == nil {
			own.named = make(map[position]failure)
		}
		own.named[position{p.batch, at.entry}] = f
		own.reason = reasonPartial
		if after, ok := sink.ThrottledFor(f.err); ok {
			own.after = max(own.after, after)
		}
	}
	for _, m := range group {
		if again := m.outcome.retries(); again > 0 && again == m.entries {
			m.outcome.all = retryable
		}
	}
}

// retries is how many entries the sink named to be tried again.
func (o *writeOutcome) retries() (n int) {
	for _, f := range o.named {
		if f.disposition == retryable {
			n++
		}
	}
	return n
}

// judge learns from a Write which partitions to keep apart. A throttle and a lost
// connection are the sink's, and where the sink named entries the cause is known.
func (c *coalescer) judge(kind queueKind, p part, o writeOutcome) {
	tripped := c.tripped()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case o.all == retryable && tripped:
		c.suspects.clear()
	case o.all == retryable:
		if o.named != nil || o.outlived || o.reason == reasonThrottled || o.reason == reasonNotConnected || o.reason == reasonStopped {
			return
		}
		c.suspects.accuse(p.members)
		if kind == suspected && len(p.members) > 1 {
			c.suspects.shrink(len(p.members))
		}
	case o.all == rejected && p.rejected != nil:
		c.suspects.strike(p.members[0].partition, convicted/2) // its next Writes may be poisoned, too
	default:
		for _, m := range p.members {
			if m.outcome.all == accepted {
				c.suspects.acquit(m)
			}
		}
		if kind == suspected {
			c.suspects.grow(len(p.members))
		}
	}
}

// recoverGroup is for panics outside of the sink: bugs of ours. Nobody may wait for
// ever. It is deferred.
func (c *coalescer) recoverGroup(group []*member) {
	value := recover()
	if value == nil {
		return
	}
	c.panicked(value)
	for _, m := range group {
		if !m.finished {
			m.finish(writeOutcome{all: retryable, reason: reasonPanic}, errGroupPanicked)
		}
	}
}

var errGroupPanicked = errors.New("the write of a group panicked")
