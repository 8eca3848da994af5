package drain

import (
	"errors"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
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
		if !c.Guard.Begin() {
			for _, m := range p.members {
				c.unresolved(m, p.rejected, backNotConnected)
			}
			continue
		}
		o, err := c.writeMembers(q.kind, p.members)
		if n := len(p.members); o.All == guard.Rejected && n > 1 {
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
	minLife := c.MinLife(c.caps.maxAge) / 2
	kept := p.members[:0:0]
	for _, m := range p.members {
		if c.leaseTooShort(m) {
			c.unresolved(m, p.rejected, backLease)
			continue
		}
		if m.Pending = m.StillFresh(now, minLife); m.Entries == 0 {
			m.finish(guard.Outcome{All: guard.Accepted}, nil)
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
	c.suspects.add(m.Partition, 1)
	c.mu.Unlock()
	m.finish(guard.Outcome{All: guard.Retryable, Reason: guard.ReasonPermanent}, rejected)
}

// writeMembers makes one Write of all members, which ends when the first of them
// must, and gives each its outcome.
func (c *coalescer) writeMembers(kind queueKind, group []*member) (guard.Outcome, error) {
	all, end := guard.Pending{Stale: group[0].Stale}, group[0].End
	writes := make([]*guard.Pending, len(group))
	for i, m := range group {
		writes[i] = &m.Pending
		all.Batches = append(all.Batches, m.Batches...)
		all.Entries += m.Entries
		all.Trial = all.Trial || m.Trial
		if m.Stale.Before(all.Stale) {
			all.Stale = m.Stale
		}
		if m.End.Before(end) {
			end = m.End
		}
	}
	if limit := time.Now().Add(c.suspectLimit()); kind == suspected && limit.Before(end) {
		end = limit
	}
	c.metrics.writeEntries.Observe(float64(all.Entries))
	o, err := c.Attempt(all, end)
	shares := make([]guard.Share, len(group))
	for i, own := range o.Divide(writes) {
		group[i].outcome = own
		shares[i] = guard.Share{Partition: group[i].Partition, Failed: own.All == guard.Retryable}
	}
	c.Ended(o, err, shares...)
	return o, err
}

// suspectLimit is how long a Write of suspects may take: a part of the sink timeout
// while nothing is known of the sink.
func (c *coalescer) suspectLimit() time.Duration {
	if pace := c.WriteTime(); pace > 0 {
		return max(minSuspectTime, suspectTime*pace)
	}
	return c.Timeout / suspectTime
}

// judge learns from a Write which partitions to keep apart.
func (c *coalescer) judge(kind queueKind, p part, o guard.Outcome) {
	tripped := c.Tripped()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case o.All == guard.Retryable && tripped:
		c.suspects.clear()
	case o.All == guard.Retryable:
		if o.CauseKnown() {
			return
		}
		c.suspects.failed(p.members)
		if kind == suspected && len(p.members) > 1 {
			c.suspects.shrink(len(p.members))
		}
	case o.All == guard.Rejected && p.rejected != nil:
		c.suspects.add(p.members[0].Partition, aloneFrom/2) // its next Writes may be poisoned, too
	default:
		for _, m := range p.members {
			if m.outcome.All == guard.Accepted {
				c.suspects.succeeded(m)
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
	c.Panicked("worker panicked", value)
	for _, m := range group {
		if !m.finished {
			m.finish(guard.Outcome{All: guard.Retryable, Reason: guard.ReasonPanic}, errGroupPanicked)
		}
	}
}

var errGroupPanicked = errors.New("the write of a group panicked")
