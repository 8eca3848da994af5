package jobmodel

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Publish is one group: jobs of one queue, stored whole or not at all.
type Publish struct {
	Queue      string
	Delay      int64  // ms
	Key        string // of an idempotent publish
	CallerID   string // of a group of one job
	Unique     string // key of a job that is the only one for Window, ms
	Window     int64
	Ends       int64 // ms, 0 = never
	Tries      int
	Attributes string
	Payloads   []string
}

// Stored is the answer to a Publish.
type Stored struct {
	Status int
	First  int64 // sequence
	Count  int   // jobs that are stored so
}

// What Stored.Status says.
const (
	TooManyQueues = 0
	StoredNow     = 1
	StoredBefore  = 2
	Exists        = 3
	TooManyJobs   = 4
	TooManyKeys   = 6
)

// Quota is what a shard may hold.
type Quota struct{ Jobs, Queues, Keys int64 }

// Publish stores each of the groups, or says why it does not.
func (s *Shard) Publish(quota Quota, groups []Publish) []Stored {
	seq := max(s.NowUS, s.Ledger["seq"]+1)
	if s.bug == "sequences follow the clock" {
		seq = s.NowUS
	}
	var replies []Stored
	var names []string
	taken := map[string]int64{} // callers' ids of jobs that this call stores
	pushed := map[string]int{}
	for _, g := range groups {
		reply := s.mayPublish(quota, g, taken)
		if reply.Status == StoredNow {
			reply.First = seq
			if _, named := pushed[g.Queue]; !named {
				names = append(names, g.Queue)
			}
			over := s.over(g)
			if g.CallerID != "" {
				taken[g.Queue+"/"+g.CallerID] = seq
			}
			pushed[g.Queue] += s.store(g, seq)
			if over != 0 {
				s.remove(Ref{g.Queue, over}, g.CallerID)
				s.Ledger["expired"]++
			}
			if g.Key != "" {
				s.Stored[g.Queue+"/"+g.Key] = Stored{StoredBefore, seq, reply.Count}
				s.countKey(KeyKept)
			}
			if g.Unique != "" {
				s.Uniques[g.Queue+"/"+g.Unique] = Unique{seq, s.now() + g.Window}
				s.countKey(g.Window)
			}
			seq += int64(reply.Count)
			s.Ledger["seq"] = seq - 1
		}
		replies = append(replies, reply)
	}
	for _, name := range names {
		if pushed[name] > 0 {
			s.wake(name, len(s.queue(name).Ready), pushed[name])
		}
	}
	s.giveBack()
	return replies
}

// mayPublish is the answer to a group that is not stored, or StoredNow without its sequence.
func (s *Shard) mayPublish(quota Quota, g Publish, taken map[string]int64) Stored {
	q, count := s.queue(g.Queue), len(g.Payloads)
	if before, repeated := s.Stored[g.Queue+"/"+g.Key]; g.Key != "" && repeated {
		return before
	}
	if u, unique := s.Uniques[g.Queue+"/"+g.Unique]; g.Unique != "" && unique && s.bug != "a unique key is not looked up" {
		return Stored{Exists, u.First, 1}
	}
	if first := taken[g.Queue+"/"+g.CallerID]; first != 0 && s.bug != "a caller's id is not looked up" {
		return Stored{Exists, first, 1}
	}
	live := s.live()
	if first, known := q.IDs[g.CallerID]; known && q.Jobs[first] != nil && s.bug != "a caller's id is not looked up" {
		if s.exists(Ref{g.Queue, first}) || s.bug == "an expired job keeps its caller's id" {
			return Stored{Exists, first, 1}
		}
		live--
	}
	if live+int64(count) > quota.Jobs && s.bug != "the quota is not checked" {
		return Stored{Status: TooManyJobs}
	}
	keys := int64(0)
	for _, key := range []string{g.Key, g.Unique} {
		if key != "" {
			keys++
		}
	}
	if keys > 0 && s.keptKeys()+keys > quota.Keys && s.bug != "the quota is not checked" {
		return Stored{Status: TooManyKeys}
	}
	if len(q.Jobs) == 0 && int64(len(s.Queues)) >= quota.Queues {
		return Stored{Status: TooManyQueues}
	}
	return Stored{StoredNow, 0, count}
}

// KeyKept is how long each key is kept, ms.
const KeyKept = 3600_000

// A Unique is the job that was stored under a key, until it may be stored again, ms.
type Unique struct{ First, Until int64 }

// countKey counts a key that is kept for some ms, in steps.
func (s *Shard) countKey(keep int64) {
	maps.DeleteFunc(s.Keys, func(at, _ int64) bool { return at*1000 <= s.now() })
	step := int64(1)
	for step*8000 <= keep {
		step *= 2
	}
	s.Keys[(s.now()+keep+step*1000-1)/(step*1000)*step]++
}

// keptKeys is how many keys count.
func (s *Shard) keptKeys() (n int64) {
	for at, keys := range s.Keys {
		if at*1000 > s.now() {
			n += keys
		}
	}
	return n
}

// over is the expired job whose caller's id a group takes, 0 without one.
func (s *Shard) over(g Publish) int64 {
	old, known := s.queue(g.Queue).IDs[g.CallerID]
	if !known || s.queue(g.Queue).Jobs[old] == nil || s.exists(Ref{g.Queue, old}) || s.bug == "an expired job outlives its caller's id" {
		return 0
	}
	return old
}

// store writes the jobs of a group and says how many of them are ready.
func (s *Shard) store(g Publish, first int64) (ready int) {
	q := s.queue(g.Queue)
	if len(q.Jobs) == 0 {
		s.Queues[g.Queue] = s.now() + HeadCheck
		if g.Ends > 0 {
			s.Queues[g.Queue] = min(s.Queues[g.Queue], g.Ends)
		}
	}
	for i, payload := range g.Payloads {
		seq := first + int64(i)
		q.Jobs[seq] = &Job{seq, g.Ends, g.Tries, g.CallerID, g.Attributes, payload}
		if g.Delay > 0 {
			s.Delay[Ref{g.Queue, seq}] = float64(s.now() + g.Delay)
		} else {
			q.Ready = append(q.Ready, seq)
			ready++
		}
	}
	if g.CallerID != "" {
		q.IDs[g.CallerID] = first
	}
	s.Ledger["published"] += int64(len(g.Payloads))
	return ready
}

// Claim asks for jobs of some queues, the most wanted first.
type Claim struct {
	TTR    int64 // ms
	Count  int
	Queues []string
}

// Claimed is one job as a claim hands it out.
type Claimed struct {
	Queue   string
	Attempt int
	Reason  Reason // of a dead one
	Job     Job
	Errors  string // of a job that is read: why attempts failed, the newest first

	Progress string // of one that Get reads: of which attempt, percent and text
}

func (c Claimed) ref() Ref { return Ref{c.Queue, c.Job.Seq} }

// ClaimReply is the answer to a call of claim.
type ClaimReply struct {
	Now, Expired, Lost int64
	Left               map[string]int // by queue; 0 where reportLeft does not ask and the answer was not full
	Jobs               [][]Claimed    // by claim
}

// maxJobs is how many jobs a call of claim hands out at most.
const maxJobs = 1000

// Claim hands ready jobs out, and remembers under the lane what it handed out.
// maxBytes is how large the records of the answer may get, about; it has one job at
// least. All claims get maxJobs together. A claim behind a full answer gets nothing, and the
// answer says how many are left.
func (s *Shard) Claim(lane, token string, maxBytes int, claims []Claim, reportLeft map[string]bool) ClaimReply {
	now, bytes := s.now(), 0
	r := ClaimReply{Now: now, Left: map[string]int{}}
	expired, lost := s.Ledger["expired"], s.Ledger["lost"]
	handed := &Handed{Token: token}
	cut := map[string]bool{} // queues of claims that got less than they asked for
	met := map[string]bool{} // queues with expired jobs, true: with references without a job
	var order []string       // of those
	for _, claim := range claims {
		got := []Claimed{}
		for _, name := range claim.Queues {
			q := s.queue(name)
			r.Left[name] = 0
			if s.Paused[name] != "" && s.bug != "a paused queue gives jobs" {
				continue
			}
			for len(got) < claim.Count && len(handed.Jobs) < maxJobs && len(q.Ready) > 0 && (bytes < maxBytes || bytes == 0) && !s.full(name) {
				ref := Ref{name, q.Ready[0]}
				q.Ready = q.Ready[1:]
				if _, listed := s.Taken[name]; listed && s.bug != "claims are not counted for lists" {
					s.Taken[name]++
				}
				j := q.Jobs[ref.Seq]
				if _, known := met[name]; !known && (j == nil || j.expired(now)) {
					order = append(order, name)
				}
				if j == nil {
					met[name] = true
					s.dangling(ref)
					if s.bug == "a tombstone ends a claim" {
						break
					}
					continue
				}
				if j.expired(now) && s.bug != "a claim hands out expired jobs" {
					if !met[name] {
						met[name] = false
					}
					q.drop(j)
					delete(s.Attempts, ref)
					s.Ledger["expired"]++
					continue
				}
				got = append(got, Claimed{Queue: name, Attempt: s.lend(handed, ref, claim.TTR), Job: *j})
				bytes += len(j.Record())
			}
			cut[name] = cut[name] || len(got) < claim.Count
		}
		r.Jobs = append(r.Jobs, got)
	}
	if len(handed.Jobs) > 0 {
		s.Handed[lane] = handed
	}
	for _, name := range order {
		if met[name] {
			s.clearTombstones(name)
		}
		s.forget(name)
	}
	for name := range r.Left {
		if s.Paused[name] == "" && (reportLeft[name] || cut[name]) {
			r.Left[name] = s.left(name)
		}
	}
	r.Expired, r.Lost = s.Ledger["expired"]-expired, s.Ledger["lost"]-lost
	return r
}

// lend leases a job and says its attempt.
func (s *Shard) lend(handed *Handed, ref Ref, ttr int64) int {
	j := s.queue(ref.Queue).Jobs[ref.Seq]
	attempt := s.Attempts[ref] + 1
	deadline := float64(s.now() + ttr)
	if attempt >= int64(j.Tries) && s.bug != "the last try is not marked" {
		deadline += 0.5
	}
	s.Lease[ref] = deadline
	if _, limited := s.Limits[ref.Queue]; limited {
		s.Slots[ref] = true
	}
	if attempt > 1 {
		s.Attempts[ref] = attempt
	}
	handed.Jobs = append(handed.Jobs, lease{ref, deadline})
	return int(attempt)
}

// Revert takes back a claim whose caller never learned the answer, and says how
// many jobs are ready again.
func (s *Shard) Revert(lane, token string, queues []string) int {
	handed := s.Handed[lane]
	if handed == nil || handed.Token != token && s.bug != "revert ignores the token" {
		return 0
	}
	delete(s.Handed, lane)
	var pushes []*push
	for _, name := range queues {
		pushTo(&pushes, name)
	}
	n := 0
	for _, h := range handed.Jobs {
		deadline, leased := s.Lease[h.Ref]
		same := math.Floor(deadline) == math.Floor(h.Deadline) || s.bug == "revert ignores the deadline"
		if !leased || !same || !slices.Contains(queues, h.Ref.Queue) || s.Attempts[h.Ref] == 1 {
			continue
		}
		delete(s.Lease, h.Ref)
		if s.bug != "a revert keeps its slot" {
			s.free(h.Ref)
		}
		if attempt := s.Attempts[h.Ref]; attempt > 1 && s.bug != "revert counts the attempt" {
			s.Attempts[h.Ref] = attempt - 1
		}
		p := pushTo(&pushes, h.Ref.Queue)
		p.head = append(p.head, h.Ref.Seq)
		n++
	}
	for _, p := range pushes {
		s.push(p, true)
	}
	s.giveBack()
	return n
}

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
	Later   = -2 // the call has copied enough records of jobs that are kept
)

// CopiedBytes is how many bytes of records an ack copies, about. The scripts that walk have it, too, so that walks meet it.
const CopiedBytes = 50

// Ack removes the jobs from whatever state they are in.
func (s *Shard) Ack(groups []AckGroup) []int {
	var replies []int
	copied := 0
	for _, g := range groups {
		jobs := g.Jobs
		for i, x := range g.Jobs {
			if s.Keeping[g.Queue].MS == 0 {
				break
			} else if copied >= CopiedBytes {
				jobs = g.Jobs[:i]
				break
			} else if j := s.queue(g.Queue).Jobs[x.Seq]; j != nil {
				copied += len(j.Record())
			}
		}
		// Jobs that are all leased are acked for their caller, also one whose record
		// is gone: that one is lost for the ledger.
		allLeased := true
		for i, x := range jobs {
			_, leased := s.Lease[Ref{g.Queue, x.Seq}]
			same := func(y AckRef) bool { return y.Seq == x.Seq }
			allLeased = allLeased && leased && slices.IndexFunc(jobs, same) == i
		}
		kept := map[int64]Kept{}
		for _, x := range jobs {
			_, leased := s.Lease[Ref{g.Queue, x.Seq}]
			j, attempt := s.queue(g.Queue).Jobs[x.Seq], max(1, s.Attempts[Ref{g.Queue, x.Seq}])
			over := !leased && !s.exists(Ref{g.Queue, x.Seq})
			removed, claimed := s.remove(Ref{g.Queue, x.Seq}, x.CallerID)
			reply := NoJob
			switch {
			case removed && over && s.bug != "an ack finds expired jobs":
				s.Ledger["expired"]++
			case removed && claimed:
				s.Ledger["acked"]++
				reply = Acked
				kept[x.Seq] = Kept{s.now() + s.Keeping[g.Queue].MS, j.Record(), fmt.Sprintf("%d %d %s", attempt, s.now(), ResultOf(x.Seq))}
			case removed:
				s.Ledger["deleted"]++
				reply = Deleted
			case allLeased:
				s.queue(g.Queue).dropID(x.CallerID, x.Seq)
				reply = Acked
			}
			replies = append(replies, reply)
		}
		replies = append(replies, slices.Repeat([]int{Later}, len(g.Jobs)-len(jobs))...)
		s.keepAcked(g.Queue, kept)
		if len(jobs) > 0 {
			s.forget(g.Queue)
		}
	}
	s.giveBack()
	return replies
}

// remove takes a job out of whatever state it is in, and says whether it was ever claimed.
func (s *Shard) remove(ref Ref, callerID string) (removed, claimed bool) {
	q := s.queue(ref.Queue)
	_, leased := s.Lease[ref]
	_, counted := s.Attempts[ref]
	delete(s.Lease, ref)
	if s.bug != "an end keeps its slot" {
		s.free(ref)
	}
	if q.Jobs[ref.Seq] == nil {
		if leased {
			s.Ledger["lost"]++
			delete(s.Attempts, ref)
			q.dropTexts(ref.Seq)
		}
		return false, false
	}
	delete(s.Attempts, ref)
	delete(q.Jobs, ref.Seq)
	if s.bug != "an ack keeps the errors" {
		q.dropTexts(ref.Seq)
	}
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
	AckedState // of a list
)

// bury ends a leased job whose tries are used up, or that nobody wants to try again.
func (s *Shard) bury(ref Ref, why Reason) State {
	q := s.queue(ref.Queue)
	delete(s.Attempts, ref)
	j := q.Jobs[ref.Seq]
	switch {
	case j == nil:
		q.dropTexts(ref.Seq)
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
	Said    string // nack and bury: why; touch: percent and text; "" = unsaid
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
			if progress := s.queue(x.Queue).Progress; x.Said != "" {
				if s.Attempts[ref] = attempt; progress[x.Seq] == "" || s.bug != "the first progress is kept" {
					progress[x.Seq] = fmt.Sprint(attempt, " ", x.Said)
				}
			}
			continue
		}
		delete(s.Lease, ref)
		s.free(ref)
		if q := s.queue(x.Queue); x.Said != "" {
			list := slices.Concat([]string{fmt.Sprintf("%d %d %s", attempt, s.now(), x.Said)}, q.Errors[x.Seq])
			if q.Errors[x.Seq] = list[:min(3, len(list))]; s.bug == "the first error is kept" && len(list) > 1 {
				q.Errors[x.Seq] = list[1:]
			}
		}
		p := pushTo(&pushes, x.Queue)
		replies[i] = Ready
		switch {
		case x.Verb == "requeue":
			if delete(s.Attempts, ref); attempt > 1 {
				s.Attempts[ref] = attempt - 1
			}
			if s.bug != "a requeue keeps the progress" {
				delete(s.queue(x.Queue).Progress, x.Seq)
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
	s.giveBack()
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
	q.shifts += len(p.head)
	q.Ready = append(slices.Concat(p.head, q.Ready), p.tail...)
	if n := len(p.head) + len(p.tail); n > 0 && wakes {
		s.wake(p.queue, len(q.Ready), n)
	}
}
