package jobmodel

import (
	"math"
	"slices"
)

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
	for _, claim := range claims {
		got := []Claimed{}
		for _, name := range claim.Queues {
			q := s.queue(name)
			r.Left[name] = 0
			for len(got) < claim.Count && len(handed.Jobs) < maxJobs && len(q.Ready) > 0 && (bytes < maxBytes || bytes == 0) {
				ref := Ref{name, q.Ready[0]}
				q.Ready = q.Ready[1:]
				j := q.Jobs[ref.Seq]
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
	for name, dangling := range met {
		if dangling {
			s.clearTombstones(name)
		}
		s.forget(name)
	}
	for name := range r.Left {
		if reportLeft[name] || cut[name] {
			r.Left[name] = len(s.queue(name).Ready)
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
		if !leased || !same || !slices.Contains(queues, h.Ref.Queue) {
			continue
		}
		delete(s.Lease, h.Ref)
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
	return n
}
