package drain

import (
	"slices"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

const (
	// groupsInHand is how many groups of single entries the leases in hand make up:
	// one is written, one gathers.
	groupsInHand = 2
	// maxGroupLeases bounds the leases in hand of a coalescing sink, at about 10 kB of
	// memory each beside their entries.
	maxGroupLeases = 32_768
	// maxGroupsBytes bounds their payloads: so many groups of as many bytes as a Write
	// may have. What is claimed in one round may come on top.
	maxGroupsBytes = 4
)

// A queueKind tells whose Writes a queue holds.
type queueKind int

const (
	trusted   queueKind = iota
	suspected           // failed together with others
	single              // written alone: failed alone, or part of a rejected unit
	queueKinds
)

// A member is the pending Write of one lease that waits for its group.
type member struct {
	guard.Write
	bytes    int
	failures int       // of its partition
	closeAt  time.Time // its group closes by then
	reason   string

	outcome  guard.Outcome
	err      error
	finished bool
	done     chan struct{} // closes when outcome and err are known
}

// finish tells the member's worker what became of it. Nothing else may touch it
// afterwards.
func (m *member) finish(o guard.Outcome, err error) {
	m.outcome = o
	m.err = err
	m.finished = true
	close(m.done)
}

// A queue holds members in the order in which they came. The coalescer's lock guards
// it.
type queue struct {
	kind    queueKind
	changed lifecycle.Signal // look again

	waiting                 []*member
	entries, batches, bytes int       // of those waiting
	closeAt                 time.Time // the first of theirs
	reason                  string
	writes                  int // groups that are being written
}

// add puts a member at the end; in front one that must be written alone, so that the
// others stay together.
func (q *queue) add(m *member) {
	if m.Alone || m.failures == lastTogether {
		q.waiting = slices.Insert(q.waiting, 0, m)
	} else {
		q.waiting = append(q.waiting, m)
	}
	q.count(m, 1)
	q.changed.Ring()
}

// count adds a member, or with -1 takes it out.
func (q *queue) count(m *member, n int) {
	q.entries += n * m.Entries
	q.batches += n * len(m.Batches)
	q.bytes += n * m.bytes
	if n > 0 && (q.closeAt.IsZero() || m.closeAt.Before(q.closeAt)) {
		q.closeAt, q.reason = m.closeAt, m.reason
	}
}

// alone reports whether the first member must be written alone.
func (q *queue) alone() bool { return q.kind == single || q.waiting[0].failures == lastTogether }

// take removes up to size members from the front, as many as one Write may have.
func (q *queue) take(size int, caps groupCaps) []*member {
	entries, batches, bytes := 0, 0, 0
	n := 0
	for n < min(size, len(q.waiting)) && entries < caps.entries {
		m := q.waiting[n]
		entries += m.Entries
		batches += len(m.Batches)
		bytes += m.bytes
		if n > 0 && (batches > caps.batches || bytes > caps.bytes) {
			break
		}
		n++
	}
	group := slices.Clone(q.waiting[:n])
	q.keep(q.waiting[n:])
	return group
}

// remove takes out the members for which which is true.
func (q *queue) remove(which func(*member) bool) (removed []*member) {
	var kept []*member
	for _, m := range q.waiting {
		if which(m) {
			removed = append(removed, m)
		} else {
			kept = append(kept, m)
		}
	}
	if len(removed) > 0 {
		q.keep(kept)
	}
	return removed
}

// keep makes the queue hold just these.
func (q *queue) keep(list []*member) {
	q.waiting = slices.Clone(list)
	q.entries = 0
	q.batches = 0
	q.bytes = 0
	q.closeAt, q.reason = time.Time{}, ""
	for _, m := range q.waiting {
		q.count(m, 1)
	}
}

// closeAll closes the groups of those waiting now.
func (q *queue) closeAll() {
	now := time.Now()
	for _, m := range q.waiting {
		m.closeAt, m.reason = now, closedStop
	}
	q.keep(q.waiting)
}
