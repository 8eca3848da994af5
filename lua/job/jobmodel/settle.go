package jobmodel

import "slices"

// AckGroup is jobs of one queue that are done, or that nobody wants any more.
type AckGroup struct {
	Queue string
	Jobs  []AckRef
}

// AckRef names a job as its id does.
type AckRef struct {
	Seq      int64
	CallerID string
}

// What Ack answers for a job.
const (
	NoJob   = 0
	Acked   = 1
	Deleted = 2
)

// Ack removes the jobs from whatever state they are in.
func (s *Shard) Ack(groups []AckGroup) []int {
	var replies []int
	for _, g := range groups {
		// A group of plain jobs that are all leased takes a short cut, in which a
		// job without a record is acked for its caller and lost for the ledger.
		quick := true
		for i, x := range g.Jobs {
			_, leased := s.Lease[Ref{g.Queue, x.Seq}]
			same := func(y AckRef) bool { return y.Seq == x.Seq }
			quick = quick && leased && x.CallerID == "" && slices.IndexFunc(g.Jobs, same) == i
		}
		for _, x := range g.Jobs {
			removed, claimed := s.remove(Ref{g.Queue, x.Seq}, x.CallerID)
			switch {
			case removed && claimed:
				s.Ledger["acked"]++
				replies = append(replies, Acked)
			case removed:
				s.Ledger["deleted"]++
				replies = append(replies, Deleted)
			case quick:
				replies = append(replies, Acked)
			default:
				replies = append(replies, NoJob)
			}
		}
		s.forget(g.Queue)
	}
	return replies
}

// remove takes a job out of whatever state it is in, and says whether it was ever claimed.
func (s *Shard) remove(ref Ref, callerID string) (removed, claimed bool) {
	q := s.queue(ref.Queue)
	_, leased := s.Lease[ref]
	_, counted := s.Attempts[ref]
	delete(s.Lease, ref)
	delete(s.Attempts, ref)
	if q.Jobs[ref.Seq] == nil {
		if leased {
			s.Ledger["lost"]++
		}
		return false, false
	}
	delete(q.Jobs, ref.Seq)
	if callerID != "" && q.IDs[callerID] == ref.Seq {
		delete(q.IDs, callerID)
	}
	if leased {
		return true, true
	}
	if _, delayed := s.Delay[ref]; delayed {
		delete(s.Delay, ref)
		return true, counted
	}
	if _, dead := q.Dead[ref.Seq]; dead {
		delete(q.Dead, ref.Seq)
		s.Ledger["dead"]--
		return true, true
	}
	if s.bug != "an ack leaves no tombstone" {
		s.Tombstones[ref.Queue]++
	}
	return true, counted
}

// State is where a job is, or became.
type State int

// The numbers are those of settle's answer.
const (
	Gone State = iota
	Ready
	Delayed
	Dead
	Expired
	Lost
	Leased
)

// bury ends a leased job whose tries are used up.
func (s *Shard) bury(ref Ref) State {
	q := s.queue(ref.Queue)
	delete(s.Attempts, ref)
	j := q.Jobs[ref.Seq]
	switch {
	case j == nil:
		s.Ledger["lost"]++
		return Lost
	case s.Keeps(ref.Queue) && !j.expired(s.now()):
		q.Dead[ref.Seq] = s.now()
		s.Ledger["dead"]++
		s.Ledger["died"]++
		return Dead
	}
	q.drop(j)
	s.Ledger["expired"]++
	return Expired
}

// Settle ends or changes a lease without the work being done.
type Settle struct {
	Queue   string
	Seq     int64
	Attempt int    // 0 = whoever holds it
	Verb    string // nack, bury, touch or requeue
	MS      int64  // nack: delay; touch: ttr
}

// Settle does each of the settlements whose attempt still holds its job.
func (s *Shard) Settle(jobs []Settle) []State {
	var replies []State
	for _, x := range jobs {
		ref := Ref{x.Queue, x.Seq}
		q := s.queue(x.Queue)
		deadline, leased := s.Lease[ref]
		attempt := max(1, s.Attempts[ref])
		holds := x.Attempt == 0 || int64(x.Attempt) == attempt || s.bug == "settle ignores the attempt"
		if !leased || !holds {
			replies = append(replies, Gone)
			continue
		}
		if x.Verb == "touch" {
			s.Lease[ref] = float64(s.now() + x.MS)
			if lastTry(deadline) {
				s.Lease[ref] += 0.5
			}
			replies = append(replies, Leased)
			continue
		}
		delete(s.Lease, ref)
		state := Ready
		switch {
		case x.Verb == "requeue":
			delete(s.Attempts, ref)
			if attempt > 1 {
				s.Attempts[ref] = attempt - 1
			}
			if s.bug == "requeue counts the attempt" {
				s.Attempts[ref] = attempt
			}
			q.Ready = append([]int64{x.Seq}, q.Ready...)
			if s.bug != "requeue wakes nobody" {
				s.wake(x.Queue, len(q.Ready), 1)
			}
		case x.Verb == "bury" || lastTry(deadline):
			state = s.bury(ref)
			s.forget(x.Queue)
		default:
			if s.bug != "nack forgets the attempt" {
				s.Attempts[ref] = attempt
			}
			if x.MS > 0 {
				s.Delay[ref] = float64(s.now() + x.MS)
				state = Delayed
			} else {
				q.Ready = append(q.Ready, x.Seq)
				s.wake(x.Queue, len(q.Ready), 1)
			}
		}
		replies = append(replies, state)
	}
	return replies
}
