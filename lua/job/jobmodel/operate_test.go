package jobmodel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// deadOldest is the dead of a queue, in the order of their death.
func (q *Queue) deadOldest(limit int) []int64 {
	seqs := slices.SortedFunc(maps.Keys(q.Dead), func(a, b int64) int {
		return cmp.Or(cmp.Compare(q.Dead[a], q.Dead[b]), cmp.Compare(a, b))
	})
	return seqs[:min(limit, len(seqs))]
}

// A DeadSelection says which dead jobs of a queue are meant: the oldest of those that match, or some by name.
type DeadSelection struct {
	Limit  int
	Reason Reason // NoReason: any
	Age    int64  // ms since they died, at least
	Error  string // part of the last error
	Named  []AckRef
}

// selected are the dead jobs that a selection means, and of each that it names whether it is one.
func (s *Shard) selected(q *Queue, d DeadSelection) (seqs []int64, found string) {
	for _, ref := range d.Named {
		_, dead := q.Dead[ref.Seq]
		j := q.Jobs[ref.Seq]
		if dead && j != nil && j.CallerID == ref.CallerID && !slices.Contains(seqs, ref.Seq) {
			seqs = append(seqs, ref.Seq)
			found += "1"
		} else {
			found += "0"
		}
	}
	if d.Named != nil {
		return seqs, found
	}
	for _, seq := range q.deadOldest(len(q.Dead)) {
		last := ""
		if list := q.Errors[seq]; len(list) > 0 {
			last = strings.SplitN(list[0], " ", 3)[2]
		}
		death := q.Dead[seq]
		if (d.Reason == NoReason || reasonOf(death) == d.Reason) && (d.Age == 0 || death <= float64(s.now()-d.Age)) && strings.Contains(last, d.Error) {
			seqs = append(seqs, seq)
		}
	}
	return seqs[:min(d.Limit, len(seqs))], ""
}

// Respawn makes the oldest dead jobs of a queue ready again, with one try more and a
// new ttl (ms, 0 = never), or deletes them, or counts them. Their attempts go on behind their tries.
func (s *Shard) Respawn(name, verb string, d DeadSelection, ttl int64) (count int, found string) {
	q := s.queue(name)
	remove := verb == "delete"
	seqs, found := s.selected(q, d)
	if len(seqs) == 0 || verb == "count" {
		return len(seqs), found
	}
	for _, seq := range seqs {
		delete(q.Dead, seq)
		s.Ledger["dead"]--
		j := q.Jobs[seq]
		if j == nil {
			q.dropTexts(seq)
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
	return count, found
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
	q.shifts += looked
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
	s.giveBack()
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

// Pause stops the claims of a queue, and Resume lets them go on. by is who and why.
func (s *Shard) Pause(name, by string) {
	since, _, _ := strings.Cut(cmp.Or(s.Paused[name], fmt.Sprint(s.now(), " ")), " ")
	s.Paused[name] = since + " " + by
}

func (s *Shard) Resume(name string) {
	_, was := s.Paused[name]
	delete(s.Paused, name)
	if n := len(s.queue(name).Ready); was && n > 0 && s.bug != "a resume wakes nobody" {
		s.wake(name, n, n)
	}
}

// A Page is a page of a list: sequences, and where the next page begins.
type Page struct {
	Seqs     []int64
	At, Last string // At is "" at the end
}

// List is a page of the jobs of a queue in a state, behind at and last; both are "" for the first.
func (s *Shard) List(name string, state State, limit int, at, last string) (p Page) {
	q, refs := s.queue(name), []string{}
	scores := map[string]float64{}
	switch state {
	case Ready:
		for _, seq := range q.Ready {
			refs = append(refs, fmt.Sprint(seq))
		}
	case Dead:
		for seq, score := range q.Dead {
			scores[fmt.Sprint(seq)] = score
		}
	case AckedState:
		for seq, k := range q.Acked {
			scores[fmt.Sprint(seq)] = float64(k.Until)
		}
	default:
		set := s.Lease
		if state == Delayed {
			set = s.Delay
		}
		for ref, score := range set {
			scores[fmt.Sprint(ref.Seq, " ", ref.Queue)] = score
		}
	}
	order := func(a, b string) int { return cmp.Or(cmp.Compare(scores[a], scores[b]), cmp.Compare(a, b)) }
	index := 0
	if state == Ready {
		if len(q.Ready) > 0 {
			s.Taken[name] += 0
		}
		from, _ := strconv.ParseInt(at, 10, 64)
		if index = int(from - s.Taken[name]); s.bug == "a list counts from its head" {
			index = int(from)
		}
		if near := slices.Index(refs, last); index > 0 && near >= 0 && s.bug != "a list counts from its head" {
			index = near + 1
		}
		index = max(0, index)
	} else {
		refs = slices.SortedFunc(maps.Keys(scores), order)
		if at != "" {
			scores[last], _ = strconv.ParseFloat(at, 64)
			index = sort.Search(len(refs), func(i int) bool { return order(refs[i], last) > 0 })
		}
	}
	for p.Last = last; index < len(refs) && len(p.Seqs) < limit; index++ {
		p.Last = refs[index]
		number, queue, _ := strings.Cut(p.Last, " ")
		seq, _ := strconv.ParseInt(number, 10, 64)
		if state != AckedState && (queue != "" && queue != name || q.Jobs[seq] == nil || !s.exists(Ref{name, seq})) {
			continue
		}
		p.Seqs = append(p.Seqs, seq)
	}
	switch {
	case len(p.Seqs) < limit:
		return Page{Seqs: p.Seqs}
	case state == Ready:
		p.At = fmt.Sprint(s.Taken[name] + int64(index))
	default:
		p.At = Score(scores[p.Last])
	}
	return p
}

// Dead is the oldest dead jobs of a queue.
func (s *Shard) Dead(name string, limit int) []Claimed {
	q, list := s.queue(name), []Claimed{}
	for _, seq := range q.deadOldest(limit) {
		if j := q.Jobs[seq]; j != nil {
			list = append(list, Claimed{Queue: name, Reason: reasonOf(q.Dead[seq]), Job: *j, Errors: strings.Join(q.Errors[seq], "\n")})
		}
	}
	return list
}

// spawnPromote lets a promoter read what is due, and act on it later.
func (w *World) spawnPromote() {
	var due []Due
	read := false
	w.spawn(func() bool {
		if !read {
			due, read = w.store.Due(), true
			return len(due) == 0
		}
		w.promote(due)
		return true
	})
}

func (w *World) promote(due []Due) {
	now := w.ms()
	delayed, dead := maps.Clone(w.model.Delay), map[Ref]bool{}
	for name, q := range w.model.Queue {
		for seq := range q.Dead {
			dead[Ref{name, seq}] = true
		}
	}
	w.store.Promote(due)
	for ref := range delayed {
		if _, still := w.model.Delay[ref]; still {
			continue
		}
		t := w.jobs[ref]
		if now < t.due {
			w.bad("promote: %v is ready %d ms before its time", ref, t.due-now)
		}
		t.due = 0 // the clock may step back behind it now
	}
	for name, q := range w.model.Queue {
		for seq := range q.Dead {
			t := w.jobs[Ref{name, seq}]
			if dead[t.ref] {
				continue
			}
			t.died = Lapsed
			if t.claims < t.tries {
				w.bad("promote: %v is dead after %d claims, it has %d tries", t.ref, t.claims, t.tries)
			}
		}
	}
	w.ran("promote", func(t *truth) bool { return t.expired(now) || t.used() })
}

// operate is what operators and the slow sweeps do.
func (w *World) operate() {
	queue := w.pick(w.queues)
	w.lookAtKept(queue)
	leased := func(t *truth) bool { return w.model.State(t.ref) == Leased }
	switch w.rand.Intn(12) {
	case 11:
		if _, limited := w.limits[queue]; limited {
			w.limit(queue, 1+w.rand.Intn(3))
			if w.rand.Intn(3) == 0 {
				w.advance(300_000) // who waits for a slot is looked at again
				if due := w.store.Due(); len(due) > 0 {
					w.promote(due)
				}
			}
		}
	case 9:
		w.pause(queue)
	case 10:
		w.list(queue)
	case 0:
		w.respawn(queue)
	case 1:
		d := w.deadSelection(queue)
		w.store.Respawn(queue, "count", d, 0)
		w.store.Respawn(queue, "delete", d, 0)
		w.ran("delete dead", func(t *truth) bool { return t.ref.Queue == queue && (t.claims > 0 || t.buried) })
	case 2:
		all, limit := w.rand.Intn(4) == 0, 1+w.rand.Intn(4)
		if all {
			limit = 1000
		}
		if w.rand.Intn(3) == 0 {
			w.store.Purge(queue, all, limit)
			w.ran("purge", func(t *truth) bool { return t.ref.Queue == queue })
		}
	case 3:
		w.sweep(false)
	case 4: // somebody deletes a job, whatever its state
		if t := w.some(func(*truth) bool { return true }); t != nil {
			w.ack([]AckGroup{{t.ref.Queue, []AckRef{{t.ref.Seq, t.callerID}}}})
		}
	case 5: // or settles some, whoever holds them
		var jobs []Settle
		for range 1 + w.rand.Intn(4) {
			if t := w.some(leased); t != nil {
				verb := []string{"nack", "bury", "touch", "requeue"}[w.rand.Intn(4)]
				ms := int64(w.rand.Intn(2) * w.rand.Intn(1000))
				if verb == "requeue" && w.rand.Intn(2) == 0 {
					ms = int64(w.model.Lease[t.ref])
				}
				jobs = append(jobs, Settle{t.ref.Queue, t.ref.Seq, 0, verb, ms, w.said(verb)})
			}
		}
		if len(jobs) > 0 {
			w.settle(jobs, nil)
		}
	case 6:
		if c := w.store.Peek(queue); c != nil {
			t := w.jobs[c.ref()]
			if t == nil || t.gone || t.expired(w.ms()) || c.Attempt != t.claims {
				w.bad("peek: %v, attempt %d", c.ref(), c.Attempt)
			}
		}
		if w.vanished+w.unlisted == 0 { // else it is not exact
			w.store.Counts(queue)
		}
		w.store.Account()
		for _, c := range w.store.Dead(queue, 1+w.rand.Intn(3)) {
			if t := w.jobs[c.ref()]; t == nil || t.gone || c.Reason != t.died || !t.failed(c.Errors) {
				w.bad("dead: %v is said to have died as %d, %q", c.ref(), c.Reason, c.Errors)
			}
		}
	case 7:
		if t := w.some(func(*truth) bool { return true }); t != nil {
			w.get(t)
		}
	case 8: // several acks in a call, one of them twice
		var refs []AckRef
		for _, ref := range slices.SortedFunc(maps.Keys(w.model.Lease), func(a, b Ref) int { return int(a.Seq - b.Seq) }) {
			if ref.Queue == queue && len(refs) < 2 {
				refs = append(refs, AckRef{ref.Seq, w.jobs[ref].callerID})
			}
		}
		if len(refs) > 1 && w.vanished == 0 {
			w.ackTwice(queue, append(refs, refs[0]))
		}
	}
}

// pause pauses a queue, or resumes it.
func (w *World) pause(queue string) {
	if w.model.Paused[queue] == "" || w.rand.Intn(3) == 0 {
		w.store.Pause(queue, fmt.Sprint("ops ", w.rand.Intn(100)))
		w.ran("pause", nil)
		return
	}
	w.store.Resume(queue)
	w.ran("resume", nil)
}

// list pages through the jobs of a queue in a state, while others work. A job that is where it was all the time comes once.
func (w *World) list(queue string) {
	state := []State{Ready, Ready, Delayed, Leased, Dead}[w.rand.Intn(5)]
	limit, q := 1+w.rand.Intn(3), w.model.queue(queue)
	place := func(seq int64) float64 {
		ref := Ref{queue, seq}
		came := float64(w.model.Attempts[ref]) // it came back to the tail so often
		return map[State]float64{Ready: came, Delayed: w.model.Delay[ref], Leased: w.model.Lease[ref], Dead: q.Dead[seq]}[state]
	}
	there := map[int64]float64{}
	for seq := range q.Jobs {
		if ref := (Ref{queue, seq}); w.model.State(ref) == state && w.model.exists(ref) {
			there[seq] = place(seq)
		}
	}
	moved, vanished := q.shifts, w.vanished+w.unlisted
	came, p, pages := map[int64]int{}, Page{}, 0
	w.spawn(func() bool {
		p = w.store.List(queue, state, limit, p.At, p.Last)
		for _, seq := range p.Seqs {
			came[seq]++
		}
		if pages++; p.At != "" && pages < 100 {
			return false
		}
		if state == Ready && q.shifts != moved || w.vanished+w.unlisted != vanished || pages == 100 {
			return true
		}
		for seq, at := range there {
			if ref := (Ref{queue, seq}); w.model.State(ref) == state && place(seq) == at && w.model.exists(ref) && came[seq] != 1 {
				w.bad("list: %v is %v all the time and came %d times", ref, state, came[seq])
			}
		}
		w.Count["listed"]++
		return true
	})
}

func (w *World) ackTwice(queue string, refs []AckRef) {
	replies := w.store.Ack([]AckGroup{{queue, refs}})
	var later []AckRef
	for i, x := range refs {
		t := w.jobs[Ref{queue, x.Seq}]
		if replies[i] == Later {
			later = append(later, x)
			continue
		}
		if (replies[i] == Acked) == t.acked {
			w.bad("ack: %v, %v already, is answered %d", t.ref, t.acked, replies[i])
		}
		t.acked = true
	}
	w.ran("ack", func(t *truth) bool { return t.acked })
	if later != nil {
		w.Count["ack later"]++
		w.ackTwice(queue, later)
	}
}

// deadSelection is by the oldest, by a reason, an age or an error, or by name, of which some are not dead.
func (w *World) deadSelection(queue string) DeadSelection {
	d := DeadSelection{Limit: 1 + w.rand.Intn(3)}
	switch w.rand.Intn(5) {
	case 0:
		d.Reason = Reason(1 + w.rand.Intn(3))
	case 1:
		d.Age = int64(w.rand.Intn(2000))
	case 2:
		d.Error = []string{"e", "1", "no such"}[w.rand.Intn(3)]
	case 3:
		q := w.model.queue(queue)
		for _, seq := range slices.Concat(q.deadOldest(3), q.Ready[:min(1, len(q.Ready))]) {
			if j := q.Jobs[seq]; j != nil {
				d.Named = append(d.Named, AckRef{seq, j.CallerID + []string{"", "", "", "x"}[w.rand.Intn(4)]})
			}
		}
		if len(d.Named) > 0 && w.rand.Intn(3) == 0 {
			d.Named = append(d.Named, d.Named[0])
		}
	}
	return d
}

func (w *World) respawn(queue string) {
	ttl := int64(w.rand.Intn(2) * (1 + w.rand.Intn(5000)))
	q := w.model.queue(queue)
	dead := maps.Clone(q.Dead)
	w.store.Respawn(queue, "respawn", w.deadSelection(queue), ttl)
	for seq := range dead {
		t := w.jobs[Ref{queue, seq}]
		if _, still := q.Dead[seq]; still || t.vanished {
			continue
		}
		if w.unlisted == 0 { // else it may have had more tries than its record says
			w.comesBack(t)
		}
		// It may be claimed once more, and no attempt comes twice.
		t.respawns++
		t.claims, t.given = t.given, t.given+1
		t.tries, t.reordered, t.buried, t.died, t.ends, t.due = t.given, true, false, NoReason, 0, 0
		if ttl > 0 {
			t.ends = w.ms() + ttl
		}
	}
	w.ran("respawn", nil)
}

// comesBack lets the last holder of a job that is respawned settle it later: it was silent, not dead.
func (w *World) comesBack(t *truth) {
	late, attempt, call := w.rand.Intn(30), t.claims, t.holder
	verb := []string{"nack", "bury", "touch"}[w.rand.Intn(3)]
	w.spawn(func() bool {
		if late--; late > 0 && !w.quiet {
			return false
		}
		w.settle([]Settle{{t.ref.Queue, t.ref.Seq, attempt, verb, 500, w.said(verb)}}, []string{call})
		return true
	})
}

// fault is what goes wrong around the scripts.
func (w *World) fault() {
	switch w.rand.Intn(8) {
	case 0, 1: // a process dies, and another takes its place
		w.lanes[w.rand.Intn(len(w.lanes))] = w.newLane()
		w.Count["crash"]++
	case 2:
		w.advance(int64(w.rand.Intn(20000)))
	case 3:
		w.setNow(w.now - int64(w.rand.Intn(3000))*1000)
		w.Count["clock back"]++
	case 4:
		w.foreignChange()
	}
}

// foreignChange is what another program may do to the keys.
func (w *World) foreignChange() {
	there := func(t *truth) bool { return !t.gone && !t.vanished && !t.unlisted }
	t := w.some(func(t *truth) bool { return there(t) && t.callerID != "" })
	if t == nil || w.rand.Intn(2) == 0 {
		t = w.some(there)
	}
	if t == nil {
		return
	}
	_, dead := w.model.queue(t.ref.Queue).Dead[t.ref.Seq]
	switch {
	case w.foreign == "vanish":
		t.vanished = true
		w.vanished++
		w.store.Vanish(t.ref)
		w.Count["vanished"]++
	case w.foreign == "unlist" && !dead:
		t.unlisted = true
		w.unlisted++
		w.store.Unlist(t.ref)
		w.Count["unlisted"]++
	}
}
