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

// Promote makes ready, or dead, what is still due: first what was delayed, then what
// was leased, then it looks at heads.
func (s *Shard) Promote(due []Due) Promoted {
	before := maps.Clone(s.Ledger)
	var ready int64
	var pushes []*push
	var ended []string
	for _, d := range due {
		pushTo(&pushes, d.Queue)
	}
	for _, kind := range []string{"delay", "lease"} {
		for _, d := range due {
			if d.Kind != kind {
				continue
			}
			p := pushTo(&pushes, d.Queue)
			for _, seq := range d.Seqs {
				if ref := (Ref{d.Queue, seq}); s.lapse(kind, ref) {
					ended = append(ended, d.Queue)
				} else if s.becomesReady(kind, ref) {
					p.tail = append(p.tail, seq)
					p.lapsed = p.lapsed || kind == "lease"
					ready++
				}
			}
		}
	}
	for _, p := range pushes {
		s.push(p, s.bug != "promote wakes nobody")
		// The ttl of what lapsed may have ended in somebody's hands, after the last look.
		if p.lapsed && len(s.queue(p.queue).Ready) == len(p.tail) && s.look(p.queue, true) {
			ended = append(ended, p.queue)
		}
	}
	for _, d := range due {
		if d.Kind == "head" && s.look(d.Queue, false) {
			ended = append(ended, d.Queue)
		}
	}
	for _, name := range ended {
		s.forget(name)
	}
	became := func(class string) int64 { return s.Ledger[class] - before[class] }
	return Promoted{ready, became("died"), became("expired"), became("lost")}
}

// lapse ends a job whose last lease is over.
func (s *Shard) lapse(kind string, ref Ref) bool {
	at, still := s.Lease[ref]
	if kind != "lease" || !still || at > float64(s.now()) || !lastTry(at) || s.bug == "a lapse never ends a job" {
		return false
	}
	delete(s.Lease, ref)
	why := Lapsed
	if s.bug == "a lapse counts as a nack" {
		why = Nacked
	}
	s.bury(ref, why)
	return true
}

func (s *Shard) becomesReady(kind string, ref Ref) bool {
	set := s.dueSet(kind)
	at, still := set[ref]
	if !still || at > float64(s.now()) && s.bug != "promote trusts what was read" {
		return false
	}
	delete(set, ref)
	if kind == "lease" && s.bug != "a lapse forgets the attempt" {
		s.Attempts[ref] = max(1, s.Attempts[ref])
	}
	return true
}

// look drops what expired at the head of a queue that deserves a look, or early.
func (s *Shard) look(name string, early bool) bool {
	now, q := s.now(), s.queue(name)
	if at, known := s.Queues[name]; !known || at > now && !early {
		return false
	}
	next := now + HeadCheck
	for len(q.Ready) > 0 {
		ref := Ref{name, q.Ready[0]}
		j := q.Jobs[ref.Seq]
		if j != nil && !j.expired(now) {
			if j.Ends > 0 {
				next = min(next, j.Ends)
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
	s.Queues[name] = next
	s.clearTombstones(name)
	return true
}
