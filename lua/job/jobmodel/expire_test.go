package jobmodel

import (
	"maps"
	"slices"
)

// Swept is what an expire call did.
type Swept struct{ Expired, Found int }

// State is where a job is; Lost is nowhere, after a foreign change.
func (s *Shard) State(ref Ref) State {
	q := s.queue(ref.Queue)
	if q.Jobs[ref.Seq] == nil {
		return Gone
	}
	if _, leased := s.Lease[ref]; leased {
		return Leased
	}
	if _, delayed := s.Delay[ref]; delayed {
		return Delayed
	}
	if _, dead := q.Dead[ref.Seq]; dead {
		return Dead
	}
	if slices.Contains(q.Ready, ref.Seq) {
		return Ready
	}
	return Lost
}

// Expire drops the jobs of a queue whose time is over, while nobody holds them and
// they are not dead, and makes those ready again that are nowhere.
func (s *Shard) Expire(name string) Swept {
	q := s.queue(name)
	var swept Swept
	found := &push{queue: name}
	for _, seq := range slices.Sorted(maps.Keys(q.Jobs)) {
		ref := Ref{name, seq}
		j, state := q.Jobs[seq], s.State(ref)
		switch {
		case j.expired(s.now()) && state != Leased && (state != Dead || s.bug == "dead jobs expire"):
			s.remove(ref, j.CallerID)
			if state == Lost { // no reference to it is left
				s.Tombstones[name]--
			}
			s.Ledger["expired"]++
			swept.Expired++
		case state == Lost && s.bug != "the audit finds nothing":
			found.tail = append(found.tail, seq)
			swept.Found++
		}
	}
	s.push(found, true)
	if swept.Expired+swept.Found > 0 {
		s.forget(name)
	}
	return swept
}

// Counts is how many jobs of a queue are in which state.
type Counts struct {
	Ready, Delayed, Leased, Dead int
	Oldest                       int64 // sequence of the first ready job, 0 without one
}

// Counts counts the jobs of a queue.
func (s *Shard) Counts(name string) Counts {
	var c Counts
	q := s.queue(name)
	for seq := range q.Jobs {
		switch s.State(Ref{name, seq}) {
		case Delayed:
			c.Delayed++
		case Leased:
			c.Leased++
		case Dead:
			c.Dead++
		default:
			c.Ready++
		}
	}
	for _, seq := range q.Ready {
		if q.Jobs[seq] != nil {
			c.Oldest = seq
			break
		}
	}
	return c
}

// Account is the ledger with the jobs that are delayed and leased, in the order of
// Totals without seq.
func (s *Shard) Account() []int64 {
	var account []int64
	for _, total := range Totals[1:] {
		account = append(account, s.Ledger[total])
	}
	return append(account, int64(len(s.Delay)), int64(len(s.Lease)), s.keptKeys())
}

// exists says whether there is a job for the verbs. One whose ttl is over exists only as
// a dead letter, or until its lease is over. An ack takes any lease that was not ended yet.
func (s *Shard) exists(ref Ref) bool {
	j := s.queue(ref.Queue).Jobs[ref.Seq]
	return j != nil && (!j.expired(s.now()) || s.State(ref) == Dead || s.Lease[ref] > float64(s.now()))
}

// Get is a job that exists, and its state; else nil, Gone.
func (s *Shard) Get(ref Ref) (*Claimed, State) {
	j, state := s.queue(ref.Queue).Jobs[ref.Seq], s.State(ref)
	if !s.exists(ref) {
		return nil, Gone
	}
	attempts := s.Attempts[ref]
	switch state {
	case Leased:
		attempts = max(1, attempts)
	case Lost:
		state = Ready
	}
	c := &Claimed{Queue: ref.Queue, Attempt: int(attempts), Job: *j}
	if state == Dead {
		c.Reason = reasonOf(s.queue(ref.Queue).Dead[ref.Seq])
	}
	return c, state
}
