package jobmodel

import (
	"cmp"
	"maps"
	"slices"
)

// deadOldest is the dead of a queue, in the order of their death.
func (q *Queue) deadOldest(limit int) []int64 {
	seqs := slices.SortedFunc(maps.Keys(q.Dead), func(a, b int64) int {
		return cmp.Or(cmp.Compare(q.Dead[a], q.Dead[b]), cmp.Compare(a, b))
	})
	return seqs[:min(limit, len(seqs))]
}

// Respawn makes the oldest dead jobs of a queue ready again, with one try more and a
// new ttl (ms, 0 = never), or deletes them. Their attempts go on behind their tries.
func (s *Shard) Respawn(name string, remove bool, limit int, ttl int64) (count int) {
	q := s.queue(name)
	seqs := q.deadOldest(limit)
	if len(seqs) == 0 {
		return 0
	}
	for _, seq := range seqs {
		delete(q.Dead, seq)
		s.Ledger["dead"]--
		j := q.Jobs[seq]
		if j == nil {
			s.Ledger["lost"]++
			continue
		}
		count++
		if remove {
			q.drop(j)
			s.Ledger["deleted"]++
			continue
		}
		again := *j
		if s.Attempts[Ref{name, seq}] = int64(j.Tries); s.bug == "a respawn begins attempts anew" {
			delete(s.Attempts, Ref{name, seq})
			again.Tries = 0
		}
		again.Tries, again.Ends = again.Tries+1, 0
		if ttl > 0 {
			again.Ends = s.now() + ttl
		}
		q.Jobs[seq] = &again
		q.Ready = append(q.Ready, seq)
		s.Ledger["respawned"]++
	}
	if !remove && count > 0 {
		s.wake(name, len(q.Ready), count)
	}
	s.forget(name)
	return count
}

// Purge deletes jobs of a queue: the oldest ready ones, and then, where all is set,
// those in every other state. It looks at limit references and jobs at most; as a
// model it wants a limit that is enough for all.
func (s *Shard) Purge(name string, all bool, limit int) (looked, deleted int) {
	q := s.queue(name)
	looked = min(limit, len(q.Ready))
	for _, seq := range q.Ready[:looked] {
		ref := Ref{name, seq}
		if j := q.Jobs[seq]; j != nil {
			q.drop(j)
			delete(s.Attempts, ref)
			deleted++
		} else {
			s.dangling(ref)
		}
	}
	q.Ready = q.Ready[looked:]
	if all && looked < limit {
		for _, seq := range slices.Sorted(maps.Keys(q.Jobs)) {
			s.remove(Ref{name, seq}, q.Jobs[seq].CallerID)
			looked++
			deleted++
		}
	}
	if s.bug != "purge does not count" {
		s.Ledger["deleted"] += int64(deleted)
	}
	s.clearTombstones(name)
	s.forget(name)
	return looked, deleted
}

// Peek is the next ready job of a queue; nil when there is none among the first 200.
func (s *Shard) Peek(name string) *Claimed {
	q := s.queue(name)
	for _, seq := range q.Ready[:min(200, len(q.Ready))] {
		if j := q.Jobs[seq]; j != nil && !j.expired(s.now()) {
			return &Claimed{Queue: name, Attempt: int(s.Attempts[Ref{name, seq}]), Job: *j}
		}
	}
	return nil
}

// Dead is the oldest dead jobs of a queue.
func (s *Shard) Dead(name string, limit int) []Claimed {
	q, list := s.queue(name), []Claimed{}
	for _, seq := range q.deadOldest(limit) {
		if j := q.Jobs[seq]; j != nil {
			list = append(list, Claimed{Queue: name, Reason: reasonOf(q.Dead[seq]), Job: *j})
		}
	}
	return list
}
