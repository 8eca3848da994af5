package drain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// The rules of the scripts claim, commit and release, as the fake store keeps them.

// pop takes the n oldest entries, and returns how many of them the sink has
// accepted: whatever takes those, they are delivered.
func (p *fakePartition) pop(n int64) (done int64) {
	done = p.doneIn(p.head, p.head+n)
	p.entries = p.entries[n:]
	p.head += n
	return done
}

func (p *fakePartition) doneIn(lo, hi int64) (n int64) {
	for seq := range p.done {
		if seq >= lo && seq < hi {
			n++
		}
	}
	return n
}

func (sp *fakeSpace) die(name string) {
	sp.mark = max(sp.mark, sp.partitions[name].tail)
	delete(sp.partitions, name)
}

func (s *fakeStore) claim(c *partition.ClaimResult, until time.Time, lease time.Duration) {
	sp, now := s.spaces[c.Namespace.Name], s.now()
	pol := c.Namespace.Policy
	p := sp.partitions[c.Partition]
	if s.paused[""] {
		c.Paused = partition.NamespacePaused
		return
	}
	if p == nil || p.due > now {
		return
	}
	head := p.head
	for len(p.entries) > 0 && p.entries[0].Occurred < now-pol.MaxAge.Milliseconds() {
		if p.pop(1) > 0 {
			sp.ledger.Delivered++
		} else {
			c.Expired++
		}
	}
	if p.head > head {
		sp.ledger.Expired += int64(c.Expired)
		p.token, p.hasFrom = "", false
	}
	if len(p.entries) == 0 {
		sp.die(c.Partition)
		return
	}
	if s.paused[c.Partition] {
		c.Paused, p.token, p.hasFrom = partition.PartitionPaused, "", false
		maxAge := pol.MaxAge.Milliseconds()
		p.due = min(now+maxAge, max(now+max(500, maxAge/16), p.entries[0].Occurred+maxAge+1))
		return
	}
	attempt := 1
	var cuts []int64
	to := p.head
	if p.held && p.to > p.head {
		attempt = p.attempt + 1
		for _, cut := range p.cuts {
			if cut > to {
				cuts, to = append(cuts, cut), cut
			}
		}
	} else {
		for len(cuts) < c.MaxBatches && to < p.tail {
			n := min(int64(pol.Batch), p.tail-to)
			if len(cuts) > 0 && n < int64(min(pol.Batch, pol.Capacity)) {
				break
			}
			to += n
			cuts = append(cuts, to)
		}
	}
	l := &partition.Lease{
		Namespace: c.Namespace, Partition: c.Partition, Attempt: attempt, From: p.head, To: to,
		Cuts: cuts, Entries: slices.Clone(p.entries[:to-p.head]), Until: until,
	}
	c.Lease = l
	if p.doneIn(p.head, to) > 0 {
		l.Done = make([]bool, len(l.Entries))
		for i := range l.Done {
			l.Done[i] = p.done[p.head+int64(i)]
		}
	}
	if s.spoil--; s.spoil >= 0 {
		l.Entries = nil
	}
	s.tokens++
	l.Token = "t" + strconv.Itoa(s.tokens)
	p.held, p.hasFrom = true, true
	p.from, p.to, p.cuts, p.attempt, p.token = p.head, to, cuts, attempt, l.Token
	p.due = now + lease.Milliseconds()
}

func (s *fakeStore) rearm(sp *fakeSpace, name string, p *fakePartition) {
	pol := sp.ns.Policy
	switch n := len(p.entries); {
	case n == 0:
		sp.die(name)
	case n >= min(pol.Batch, pol.Capacity):
		p.due = s.now()
	default:
		p.due = s.now() + pol.Linger.Milliseconds()
	}
}

// holder is the partition of a lease, or nil when another holder has it.
func (s *fakeStore) holder(l *partition.Lease) (*fakeSpace, *fakePartition) {
	sp := s.spaces[l.Namespace.Name]
	p := sp.partitions[l.Partition]
	if p == nil || p.token != l.Token {
		return sp, nil
	}
	return sp, p
}

func (s *fakeStore) release(t *partition.Release) error {
	sp, p := s.holder(t.Lease)
	if p == nil {
		return partition.ErrGone
	}
	if t.Delay < 0 || t.Attempt < 0 {
		panic(fmt.Sprintf("release with delay %v attempt %d", t.Delay, t.Attempt))
	}
	for i, done := range t.Done {
		seq := t.Lease.From + int64(i)
		if !done || p.done[seq] || seq < p.from {
			continue
		}
		if p.done[seq] = true; seq < p.head { // evicted while it was out
			sp.ledger.Evicted--
			sp.ledger.Delivered++
		}
	}
	p.token, p.hasFrom, p.attempt = "", false, t.Attempt
	p.due = s.now() + t.Delay.Milliseconds()
	return nil
}

func (s *fakeStore) commit(t *partition.Commit) error {
	sp, p := s.holder(t.Lease)
	if p == nil {
		return partition.ErrGone
	}
	if t.Hi <= t.Lo || int64(t.Delivered+t.Expired+t.Dead) != t.Hi-t.Lo || len(t.DeadLetters) != t.Dead {
		panic(fmt.Sprintf("commit that does not add up: %+v", *t))
	}
	if s.accepted != nil && sp.ns.Policy.Delivery == partition.AtLeastOnce {
		if took := s.accepted(t.Lease.Partition, t.Lo, t.Hi); t.Delivered > took {
			panic(fmt.Sprintf("[%d, %d) commits %d delivered, the sink took %d", t.Lo, t.Hi, t.Delivered, took))
		}
	}
	switch {
	case t.Hi <= p.from && t.Hi <= p.committed:
		return nil
	case t.Lo != p.from || t.Hi > p.to:
		return &partition.RangeError{From: p.from}
	}
	counted := p.doneIn(t.Lo, min(p.head, t.Hi)) // delivered when they were evicted
	reclaimed := min(max(p.head-t.Lo, 0), t.Hi-t.Lo)
	sp.ledger.Evicted -= reclaimed - counted
	sp.ledger.Delivered += int64(t.Delivered) - counted
	sp.ledger.Expired += int64(t.Expired)
	sp.ledger.Dead += int64(t.Dead)
	sp.letters = append(sp.letters, t.DeadLetters...)
	if t.Hi > p.head {
		p.pop(t.Hi - p.head)
	}
	maps.DeleteFunc(p.done, func(seq int64, _ bool) bool { return seq < t.Hi })
	p.from, p.committed = t.Hi, t.Hi
	if t.Hi == p.to {
		p.held, p.hasFrom, p.token = false, false, ""
		s.rearm(sp, t.Lease.Partition, p)
	} else if p.head == p.tail {
		sp.die(t.Lease.Partition)
	}
	return nil
}
