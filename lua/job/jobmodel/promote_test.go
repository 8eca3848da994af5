package jobmodel

import (
	"cmp"
	"maps"
	"slices"
	"strings"
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
	s.giveBack()
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
	s.free(ref)
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
	if kind == "lease" && s.bug != "a lapse keeps its slot" {
		s.free(ref)
	}
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
		q.shifts++
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
	for _, seq := range found.tail {
		s.free(Ref{name, seq})
	}
	s.push(found, true)
	if swept.Expired+swept.Found > 0 {
		s.forget(name)
	}
	s.giveBack()
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
// Totals without seq and kept.
func (s *Shard) Account() []int64 {
	var account []int64
	for _, total := range Totals[1 : len(Totals)-1] {
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
	c := &Claimed{Queue: ref.Queue, Attempt: int(attempts), Job: *j, Errors: strings.Join(s.queue(ref.Queue).Errors[ref.Seq], "\n")}
	c.Progress = s.queue(ref.Queue).Progress[ref.Seq]
	if state == Dead {
		c.Reason = reasonOf(s.queue(ref.Queue).Dead[ref.Seq])
	}
	return c, state
}

// sweep lets the expirer look at every job of a shard; it finds what a foreign
// change took out of its state. At the end nothing may be left out.
func (w *World) sweep(end bool) {
	now := w.ms()
	held := map[Ref]bool{} // an expirer leaves those alone
	for ref := range w.model.Lease {
		held[ref] = true
	}
	for _, name := range w.queues {
		q := w.model.queue(name)
		for seq := range q.Dead {
			held[Ref{name, seq}] = true
		}
		seqs := slices.Sorted(maps.Keys(q.Jobs))
		if len(seqs) == 0 {
			continue
		}
		swept := w.store.Expire(name)
		for _, seq := range seqs {
			t := w.jobs[Ref{name, seq}]
			state := w.model.State(t.ref)
			if state == Lost {
				w.bad("expire: %v is still in no state", t.ref)
			}
			if t.unlisted && state == Ready {
				// Its delay, and a first claim, were known only where it was taken from.
				t.unlisted, t.reordered, t.due = false, true, 0
				t.claims = int(w.model.Attempts[t.ref])
				t.tries = max(t.tries, t.claims+1) // a lapse would have ended it
				w.found++
			}
		}
		w.Count["found"] += swept.Found
		w.ran("expire", func(t *truth) bool { return t.expired(now) && !held[t.ref] })
	}
	if end {
		for ref, t := range w.jobs {
			if t.unlisted && !t.gone {
				w.bad("expire: %v was not found", ref)
			}
		}
	}
}

// get asks for a job and holds the answer against what is known of it.
func (w *World) get(t *truth) {
	c, state := w.store.Get(t.ref)
	if c == nil {
		if !t.gone && !t.vanished && w.exists(t) {
			w.bad("get: there is %v", t.ref)
		}
		return
	}
	if t.gone || !w.exists(t) || c.Attempt != t.claims && state != Dead && !t.unlisted {
		w.bad("get: %v is of attempt %d, said %d", t.ref, t.claims, c.Attempt)
	}
	if !t.failed(c.Errors) {
		w.bad("get: %v failed as %q, said %q", t.ref, t.errors, c.Errors)
	}
	if c.Progress != t.progress && !t.vanished && !t.unlisted {
		w.bad("get: %v got as far as %q, said %q", t.ref, t.progress, c.Progress)
	}
	if c.Reason != t.died {
		w.bad("get: %v died as %d, said %d", t.ref, t.died, c.Reason)
	}
	if c.Job.Ends != t.ends || c.Job.CallerID != t.callerID {
		w.bad("get: %v is %+v", t.ref, c.Job)
	}
}
