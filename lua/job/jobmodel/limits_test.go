package jobmodel

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Limit bounds the leases of a queue, or of each value of an attribute.
type Limit struct {
	Most int
	By   string
}

// Held is what a claim says of a queue that has ready jobs and no slot.
const Held = -1 << 50

// Limit sets what claims say of a queue from now on.
func (s *Shard) Limit(queue string, limit Limit) { s.Limits[queue] = limit }

// group is that of a job.
func (l Limit) group(j *Job) string {
	if l.By == "" {
		return ""
	}
	value := regexp.MustCompile(`"` + l.By + `":"([^"]*)"`).FindStringSubmatch(j.Attributes + `"` + l.By + `":""`)
	return value[1]
}

// leases is how many slots of a group are taken.
func (s *Shard) leases(queue, group string) (n int) {
	for ref, kind := range s.Slots {
		if ref.Queue == queue && kind == "+"+group {
			n++
		}
	}
	return n
}

// full says whether a queue has no slot for any job.
func (s *Shard) full(queue string) bool {
	limit, limited := s.Limits[queue]
	if s.bug == "a claim goes over the limit" {
		limit.Most++
	}
	return limited && limit.By == "" && s.leases(queue, "") >= limit.Most
}

// parks lets a job wait whose group is full, and says whether it does.
func (s *Shard) parks(j *Job, queue string) bool {
	limit, limited := s.Limits[queue]
	group := limit.group(j)
	used := s.leases(queue, group)
	if s.bug == "a group counts for all" {
		used = s.leases(queue, "")
	}
	if !limited || limit.By == "" || used < limit.Most {
		return false
	}
	s.Slots[Ref{queue, j.Seq}] = "~" + group
	s.Delay[Ref{queue, j.Seq}] = s.lookAgain(j.Seq)
	s.Waited[queue] = true
	if q := s.queue(queue); s.bug == "a full group holds up the others" {
		for _, seq := range q.Ready {
			s.Delay[Ref{queue, seq}] = s.lookAgain(seq)
		}
		q.Ready = nil
	}
	return true
}

// lookAgain is when a promoter looks at a job that waits for a slot.
func (s *Shard) lookAgain(seq int64) float64 { return float64(s.now()+150_000+seq%150_000) + 0.5 }

// hold keeps jobs of a queue waiting that wait for a slot and are due, and returns the other ones. Where their group has slots
// left, its oldest become ready.
func (s *Shard) hold(queue string, seqs []int64, p *push) (others []int64, ready int64) {
	limit := s.Limits[queue]
	if limit.By == "" || s.bug == "jobs of a full group become ready" {
		return seqs, 0
	}
	var due []Ref
	kinds, room := map[Ref]string{}, map[string]int{}
	for _, seq := range seqs {
		ref := Ref{queue, seq}
		kind, at := s.Slots[ref], s.Delay[ref]
		if kind == "" || kind[0] != '~' || !lastTry(at) || at > float64(s.now()) {
			others = append(others, seq)
			continue
		}
		due, kinds[ref] = append(due, ref), kind
		used := s.leases(queue, kind[1:])
		room[kind] = limit.Most - used
		if len(s.queue(queue).Ready) > 0 {
			room[kind] = min(room[kind], used, 1)
		}
	}
	for _, ref := range due {
		if kind := kinds[ref]; room[kind] > 0 {
			p.tail = append(p.tail, s.oldestWaiting(queue, kind))
			room[kind]--
			ready++
		}
	}
	for _, ref := range due {
		if s.Slots[ref] == kinds[ref] {
			s.Delay[ref] = s.lookAgain(ref.Seq)
		}
	}
	return others, ready
}

// left is how many jobs a claim could have got.
func (s *Shard) left(queue string) int {
	n := len(s.queue(queue).Ready)
	limit, limited := s.Limits[queue]
	switch {
	case !limited || limit.By != "" || n == 0:
		return n
	case s.full(queue):
		s.Waited[queue] = s.bug != "a claim without a slot leaves no word"
		return Held
	}
	return min(n, limit.Most-s.leases(queue, ""))
}

// free notes that a job is leased or delayed no more. The verb calls giveBack last.
func (s *Shard) free(ref Ref) { s.freed = append(s.freed, ref) }

// giveBack gives the slots back, and each to the oldest job of the group that waits for one.
func (s *Shard) giveBack() {
	var names []string
	back, ready := map[string]int{}, map[string]int{}
	for _, ref := range s.freed {
		if !slices.Contains(names, ref.Queue) {
			names = append(names, ref.Queue)
		}
	}
	slices.SortStableFunc(s.freed, func(a, b Ref) int {
		return cmp.Compare(slices.Index(names, a.Queue), slices.Index(names, b.Queue))
	})
	type group struct{ queue, name string }
	var groups []group // in the order in which the first slot of each is given back
	slots := map[group]int{}
	for _, ref := range s.freed {
		if kind, held := s.Slots[ref]; held && kind[0] != '~' {
			g := group{ref.Queue, kind[1:]}
			if slots[g] == 0 {
				groups = append(groups, g)
			}
			slots[g]++
			back[ref.Queue]++
		}
		delete(s.Slots, ref)
	}
	for _, g := range groups {
		for range slots[g] {
			seq := s.oldestWaiting(g.queue, "~"+g.name)
			if seq == 0 {
				break
			}
			q := s.queue(g.queue)
			q.Ready = slices.Concat([]int64{seq}, q.Ready)
			q.shifts++
			ready[g.queue]++
		}
	}
	s.freed = nil
	for _, name := range names {
		if back[name] == 0 || !s.Waited[name] {
			continue
		}
		waits := false
		for ref, kind := range s.Slots {
			waits = waits || ref.Queue == name && kind[0] == '~'
		}
		if ready[name] == 0 && !waits {
			delete(s.Waited, name)
		}
		if len(s.queue(name).Ready) > 0 && s.bug != "a freed slot wakes nobody" {
			s.wake(name, back[name], back[name])
		}
	}
}

// oldestWaiting takes the oldest job that waits for a slot; 0: none does.
func (s *Shard) oldestWaiting(queue, kind string) int64 {
	refs := slices.SortedFunc(maps.Keys(s.Slots), func(a, b Ref) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, ref := range refs {
		if ref.Queue != queue || s.Slots[ref] != kind {
			continue
		}
		delete(s.Slots, ref)
		if at := s.Delay[ref]; lastTry(at) || s.bug == "a job that is gone waits for a slot" {
			delete(s.Delay, ref)
			if s.bug != "a slot ends with the job that it was for" {
				s.Slots[ref] = "!" + kind[1:]
			}
			return ref.Seq
		}
	}
	return 0
}

// slotLines are the part of Picture about slots.
func (s *Shard) slotLines() (lines []string) {
	groups, counts := map[string]map[string]bool{}, map[string]int{}
	for ref, kind := range s.Slots {
		lines = append(lines, fmt.Sprintf("slots %d %s %s", ref.Seq, ref.Queue, kind))
		if kind[0] == '~' {
			lines = append(lines, fmt.Sprintf("parked %s %d %s %d 0", ref.Queue, len(kind)-1, kind[1:], ref.Seq))
		}
		if kind[0] != '+' {
			continue
		}
		counts[ref.Queue+" "+kind[1:]]++
		if kind == "+" {
			continue // the group without a name counts for none
		}
		if groups[ref.Queue] == nil {
			groups[ref.Queue] = map[string]bool{}
		}
		groups[ref.Queue][kind] = true
	}
	for group, n := range counts {
		lines = append(lines, fmt.Sprintf("slots #%s %d", group, n))
	}
	for queue, all := range groups {
		lines = append(lines, fmt.Sprintf("slots @%s %d", queue, len(all)))
	}
	for queue, waited := range s.Waited {
		if waited {
			lines = append(lines, fmt.Sprintf("slots ?%s publish w:", queue))
		}
	}
	return lines
}

// limit gives a queue a limit.
func (w *World) limit(queue string, limit Limit) {
	w.limits[queue] = limit
	for _, s := range w.shards {
		s.store.Limit(queue, limit)
	}
	for _, p := range w.processes { // whose settings change has its polls ask again
		for at := range p.heard {
			p.heard[at]++
		}
		waiting := p.waiting
		p.waiting = nil
		for _, x := range waiting {
			x.woken = true
			w.begin(x, x.plan(w))
		}
	}
}

// leases is how many leases a group has, whatever is counted.
func (w *World) leases(s *shard, queue, group string) (n int) {
	for ref := range s.model.Lease {
		j := s.model.queue(queue).Jobs[ref.Seq]
		if limit := w.limits[queue]; ref.Queue == queue && (limit.By == "" || j != nil && limit.group(j) == group) {
			n++
		}
	}
	return n
}

// full says that a poll may wait beside a ready job of the queue.
func (w *World) full(s *shard, queue string) bool {
	limit, limited := w.limits[queue]
	used := w.leases(s, queue, "")
	if s.vanished+s.unlisted > 0 {
		used = max(used, s.model.leases(queue, ""))
	}
	return limited && limit.By == "" && used >= limit.Most
}

// judgeLimit holds what a claim handed out against the limit of its queue.
func (w *World) judgeLimit(s *shard, c Claimed) {
	limit, limited := w.limits[c.Queue]
	if n := w.leases(s, c.Queue, limit.group(&c.Job)); limited && n > limit.Most {
		w.bad("claim: %v is one of %d leases, %+v are allowed", c.ref(), n, limit)
	}
}

// judgeHeld holds what a promote took from the jobs that wait for a slot against the slots that there are, and those that it freed.
func (w *World) judgeHeld(s *shard, before map[Ref]string) {
	took, used := map[string]int{}, map[string]int{}
	for ref, kind := range before {
		group, left := ref.Queue+" "+kind[1:], s.model.Slots[ref] != kind
		switch {
		case w.limits[ref.Queue].By == "":
		case kind[0] == '~' && left:
			took[group]++
		case kind[0] != '~' && left:
			took[group]--
		}
		if kind[0] == '+' {
			used[group]++
		}
	}
	for group, n := range took {
		queue, _, _ := strings.Cut(group, " ")
		if room := max(0, w.limits[queue].Most-used[group]); n > room && s.vanished+s.unlisted == 0 {
			w.bad("promote: %d jobs of %s wait no more, which has slots for %d", n, group, room)
		}
	}
}

// Keep says how long acked jobs of a queue are kept, ms, and how many of the shard.
type Keep struct{ MS, All int64 }

// Kept is an acked job that is kept.
type Kept struct {
	Until  int64 // ms
	Record string
	Said   string // attempt, ms and result
}

// ResultOf is what the ack of a job says.
func ResultOf(seq int64) string {
	if seq%3 == 0 {
		return ""
	}
	return fmt.Sprintf(`{"of": %d}`, seq)
}

// Keep sets what acks say of a queue from now on.
func (s *Shard) Keep(queue string, keep Keep) { s.Keeping[queue] = keep }

// keepAcked keeps jobs of a queue that were acked.
func (s *Shard) keepAcked(queue string, jobs map[int64]Kept) {
	q, keep := s.queue(queue), s.Keeping[queue]
	if len(jobs) == 0 || keep.MS == 0 {
		return
	}
	maps.Copy(q.Acked, jobs)
	s.Ledger["kept"] += int64(len(jobs))
	held, total := int64(len(q.Acked)), s.Ledger["kept"]
	room := max((held-4*(keep.All-total)+4)/5, 0) // who drops a job also leaves one more
	switch s.bug {
	case "kept jobs make no room":
		room = 0
	case "a queue keeps as many as there are places":
		room = max(total-keep.All, 0)
	}
	s.dropKept(queue, s.now(), room)
}

// DropKept forgets the kept jobs of a queue whose time is over, or all, and says how many are left of them.
func (s *Shard) DropKept(queue string, all bool) int {
	now := s.now()
	if all {
		now = 1e15
	}
	return s.dropKept(queue, now, 0)
}

func (s *Shard) dropKept(queue string, now, room int64) int {
	q, over := s.queue(queue), int64(0)
	seqs := slices.SortedFunc(maps.Keys(q.Acked), func(a, b int64) int {
		return cmp.Or(cmp.Compare(q.Acked[a].Until, q.Acked[b].Until), cmp.Compare(a, b))
	})
	for _, seq := range seqs {
		if q.Acked[seq].Until <= now {
			over++
		}
	}
	count := min(max(over, room), int64(len(seqs)))
	for _, seq := range seqs[:count] {
		delete(q.Acked, seq)
	}
	if s.bug != "kept jobs that are over still count" {
		s.Ledger["kept"] -= count
	}
	if delete(s.KeptQueues, queue); int(count) < len(seqs) {
		s.KeptQueues[queue] = q.Acked[seqs[count]].Until
	}
	return int(max(0, over-count))
}

// GetKept is an acked job that is kept.
func (s *Shard) GetKept(ref Ref) Kept { return s.queue(ref.Queue).Acked[ref.Seq] }

// lookAtKept reads what is kept of a queue, and forgets some of it.
func (w *World) lookAtKept(s *shard, queue string) {
	if w.keeping[queue].MS == 0 {
		return
	}
	for _, t := range s.jobs {
		if k := s.store.GetKept(t.ref); k.Until > 0 && !t.acked {
			w.bad("get: %v is kept, and was not acked", t.ref)
		}
	}
	for at, last, pages := "", "", 0; pages == 0 || at != ""; pages++ {
		p := s.store.List(queue, AckedState, 2, at, last)
		at, last = p.At, p.Last
	}
	if w.extra.Intn(2) == 0 {
		s.store.DropKept(queue, w.extra.Intn(4) == 0)
		w.ran(s, "drop kept", nil)
	}
	if n := len(s.model.queue(queue).Acked); n > 0 {
		w.Count["kept"]++
	}
}

// checkShare holds what the queue of an ack keeps against what it leaves to others.
func (w *World) checkShare(s *shard, queue string) {
	held, total, all := int64(len(s.model.queue(queue).Acked)), s.model.Ledger["kept"], w.keeping[queue].All
	if held > 4*(all-total) {
		w.bad("ack: %s keeps %d jobs, and leaves %d of %d", queue, held, all-total, all)
	}
}

// checkKept holds what a shard keeps against its bounds.
func (w *World) checkKept(s *shard, verb string) {
	kept := int64(0)
	for name, q := range s.model.Queue {
		n := int64(len(q.Acked))
		kept += n
		if at, listed := s.model.KeptQueues[name]; listed != (n > 0) {
			w.bad("%s: %s keeps %d jobs, in the index: %d", verb, name, n, at)
		}
	}
	if s.model.Ledger["kept"] != kept {
		w.bad("%s: the ledger has %d kept jobs, the shard %d", verb, s.model.Ledger["kept"], kept)
	}
}
