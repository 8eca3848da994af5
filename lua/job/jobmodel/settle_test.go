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
		// Jobs that are all leased are acked for their caller, also one whose record
		// is gone: that one is lost for the ledger.
		allLeased := true
		for i, x := range g.Jobs {
			_, leased := s.Lease[Ref{g.Queue, x.Seq}]
			same := func(y AckRef) bool { return y.Seq == x.Seq }
			allLeased = allLeased && leased && slices.IndexFunc(g.Jobs, same) == i
		}
		for _, x := range g.Jobs {
			_, leased := s.Lease[Ref{g.Queue, x.Seq}]
			over := !leased && !s.exists(Ref{g.Queue, x.Seq})
			removed, claimed := s.remove(Ref{g.Queue, x.Seq}, x.CallerID)
			reply := NoJob
			switch {
			case removed && over && s.bug != "an ack finds expired jobs":
				s.Ledger["expired"]++
			case removed && claimed:
				s.Ledger["acked"]++
				reply = Acked
			case removed:
				s.Ledger["deleted"]++
				reply = Deleted
			case allLeased:
				s.queue(g.Queue).dropID(x.CallerID, x.Seq)
				reply = Acked
			}
			replies = append(replies, reply)
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
	if q.Jobs[ref.Seq] == nil {
		if leased {
			s.Ledger["lost"]++
			delete(s.Attempts, ref)
		}
		return false, false
	}
	delete(s.Attempts, ref)
	delete(q.Jobs, ref.Seq)
	q.dropID(callerID, ref.Seq)
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

// bury ends a leased job whose tries are used up, or that nobody wants to try again.
func (s *Shard) bury(ref Ref, why Reason) State {
	q := s.queue(ref.Queue)
	delete(s.Attempts, ref)
	j := q.Jobs[ref.Seq]
	switch {
	case j == nil:
		s.Ledger["lost"]++
		return Lost
	case s.Keeps(ref.Queue) && !j.expired(s.now()):
		q.Dead[ref.Seq] = why.death(s.now())
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
	MS      int64  // nack: delay; touch: ttr; requeue: deadline of the lease, 0 = any
}

// Settle does each of the settlements whose attempt still holds its job. Those of a
// queue that are requeued keep their order at the head of the queue; those that are
// given back go behind it.
func (s *Shard) Settle(jobs []Settle) []State {
	replies := make([]State, len(jobs))
	var ends []int
	var pushes []*push
	for i, x := range jobs {
		ref := Ref{x.Queue, x.Seq}
		deadline, leased := s.Lease[ref]
		attempt := max(1, s.Attempts[ref])
		holds := x.Attempt == 0 || int64(x.Attempt) == attempt || s.bug == "settle ignores the attempt"
		another := x.Verb == "requeue" && x.MS > 0 && int64(deadline) != x.MS && s.bug != "requeue ignores the deadline"
		lapsed := leased && !s.exists(ref) && s.queue(x.Queue).Jobs[x.Seq] != nil && s.bug != "a lapsed lease holds an expired job"
		if !leased || !holds || another || lapsed {
			continue
		}
		if x.Verb == "touch" {
			s.Lease[ref] = float64(s.now() + x.MS)
			if lastTry(deadline) && s.bug != "touch grants another try" {
				s.Lease[ref] += 0.5
			}
			replies[i] = Leased
			continue
		}
		delete(s.Lease, ref)
		p := pushTo(&pushes, x.Queue)
		replies[i] = Ready
		switch {
		case x.Verb == "requeue":
			delete(s.Attempts, ref)
			if attempt > 1 {
				s.Attempts[ref] = attempt - 1
			}
			if s.bug == "requeue counts the attempt" {
				s.Attempts[ref] = attempt
			}
			p.head = append(p.head, x.Seq)
		case x.Verb == "bury" || lastTry(deadline):
			ends = append(ends, i)
		default:
			if s.bug != "nack forgets the attempt" {
				s.Attempts[ref] = attempt
			}
			if x.MS > 0 {
				s.Delay[ref] = float64(s.now() + x.MS)
				replies[i] = Delayed
			} else {
				p.tail = append(p.tail, x.Seq)
			}
		}
	}
	for _, i := range ends {
		why := Nacked
		if jobs[i].Verb == "bury" && s.bug != "a bury counts as a nack" {
			why = Buried
		}
		replies[i] = s.bury(Ref{jobs[i].Queue, jobs[i].Seq}, why)
	}
	for _, p := range pushes {
		s.push(p, s.bug != "settle wakes nobody")
		if len(ends) > 0 {
			s.forget(p.queue)
		}
	}
	return replies
}

// push is what a call puts into the list of a queue.
type push struct {
	queue      string
	head, tail []int64
	lapsed     bool // some of them were leased until now
}

// pushTo is the push of a queue, a new one for its first job.
func pushTo(pushes *[]*push, queue string) *push {
	for _, p := range *pushes {
		if p.queue == queue {
			return p
		}
	}
	*pushes = append(*pushes, &push{queue: queue})
	return (*pushes)[len(*pushes)-1]
}

func (s *Shard) push(p *push, wakes bool) {
	q := s.queue(p.queue)
	q.Ready = append(slices.Concat(p.head, q.Ready), p.tail...)
	if n := len(p.head) + len(p.tail); n > 0 && wakes {
		s.wake(p.queue, len(q.Ready), n)
	}
}
