package jobmodel

import (
	"cmp"
	"maps"
	"slices"
)

// Due is jobs of a queue that a promoter read as due.
type Due struct {
	Queue string
	Kind  string // delay, lease, or head: the queue deserves a look
	Seqs  []int64
}

// Promoted is how many jobs became what.
type Promoted struct{ Ready, Dead, Expired, Lost int64 }

// Due is what a promoter reads before it acts: delays, then leases, then heads,
// each by queue.
func (s *Shard) Due() []Due {
	var due []Due
	for _, kind := range []string{"delay", "lease"} {
		set := s.dueSet(kind)
		by := map[string][]int64{}
		for ref, at := range set {
			if at <= float64(s.now()) {
				by[ref.Queue] = append(by[ref.Queue], ref.Seq)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(by)) {
			slices.SortFunc(by[name], func(a, b int64) int {
				return cmp.Or(cmp.Compare(set[Ref{name, a}], set[Ref{name, b}]), cmp.Compare(a, b))
			})
			due = append(due, Due{name, kind, by[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Queues)) {
		if s.Queues[name] <= s.now() {
			due = append(due, Due{Queue: name, Kind: "head"})
		}
	}
	return due
}

func (s *Shard) dueSet(kind string) map[Ref]float64 {
	if kind == "delay" {
		return s.Delay
	}
	return s.Lease
}

// Promote makes ready, or dead, what is still due.
func (s *Shard) Promote(due []Due) Promoted {
	var ready int64
	before := maps.Clone(s.Ledger)
	for _, d := range due {
		if d.Kind == "head" {
			s.head(d.Queue)
			continue
		}
		set, now := s.dueSet(d.Kind), float64(s.now())
		var last []Ref
		pushed := 0
		q := s.queue(d.Queue)
		for _, seq := range d.Seqs {
			ref := Ref{d.Queue, seq}
			at, still := set[ref]
			if !still || at > now && s.bug != "promote trusts what was read" {
				continue
			}
			delete(set, ref)
			if d.Kind == "lease" && lastTry(at) && s.bug != "a lapse never ends a job" {
				last = append(last, ref)
				continue
			}
			if d.Kind == "lease" && s.bug != "a lapse forgets the attempt" {
				s.Attempts[ref] = max(1, s.Attempts[ref])
			}
			q.Ready = append(q.Ready, seq)
			pushed++
		}
		if pushed > 0 && s.bug != "promote wakes nobody" {
			s.wake(d.Queue, len(q.Ready), pushed)
		}
		ready += int64(pushed)
		for _, ref := range last {
			s.bury(ref)
		}
		if len(last) > 0 {
			s.forget(d.Queue)
		}
	}
	became := func(class string) int64 { return s.Ledger[class] - before[class] }
	return Promoted{ready, became("died"), became("expired"), became("lost")}
}

// head drops what expired at the head of a queue that deserves a look.
func (s *Shard) head(name string) {
	now, q := s.now(), s.queue(name)
	if at, known := s.Queues[name]; !known || at > now {
		return
	}
	look := now + HeadCheck
	for len(q.Ready) > 0 {
		ref := Ref{name, q.Ready[0]}
		j := q.Jobs[ref.Seq]
		if j != nil && !j.expired(now) {
			if j.Ends > 0 {
				look = min(look, j.Ends)
			}
			break
		}
		q.Ready = q.Ready[1:]
		if j == nil {
			s.dangling(ref)
			continue
		}
		q.drop(j)
		delete(s.Attempts, ref)
		if s.bug != "an expired head is not counted" {
			s.Ledger["expired"]++
		}
	}
	s.Queues[name] = look
	s.met(name)
}
