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
	for _, seq := range slices.Sorted(maps.Keys(q.Jobs)) {
		ref := Ref{name, seq}
		j, state := q.Jobs[seq], s.State(ref)
		switch {
		case j.expired(s.now()) && state != Leased && (state != Dead || s.bug == "dead jobs expire"):
			s.remove(ref, j.CallerID)
			s.Ledger["expired"]++
			swept.Expired++
		case state == Lost && s.bug != "the audit finds nothing":
			q.Ready = append(q.Ready, seq)
			s.wake(name, len(q.Ready), 1)
			swept.Found++
		}
	}
	if swept.Expired > 0 {
		s.forget(name)
	}
	return swept
}

// Get is a job and its state; nil, Gone without one, or if its time is over while
// nobody holds it and it is not dead.
func (s *Shard) Get(ref Ref) (*Claimed, State) {
	j, state := s.queue(ref.Queue).Jobs[ref.Seq], s.State(ref)
	if j == nil || j.expired(s.now()) && state != Leased && state != Dead {
		return nil, Gone
	}
	attempts := s.Attempts[ref]
	switch state {
	case Leased:
		attempts = max(1, attempts)
	case Lost:
		state = Ready
	}
	return &Claimed{ref.Queue, int(attempts), *j}, state
}
