package jobmodel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Held is what a claim says of a queue that has ready jobs and no slot.
const Held = -1 << 50

// Limit sets how many leases claims allow a queue from now on.
func (s *Shard) Limit(queue string, most int) { s.Limits[queue] = most }

// leases is how many slots of a queue are taken.
func (s *Shard) leases(queue string) (n int) {
	for ref := range s.Slots {
		if ref.Queue == queue {
			n++
		}
	}
	return n
}

// full says whether a queue has no slot for any job.
func (s *Shard) full(queue string) bool {
	most, limited := s.Limits[queue]
	if s.bug == "a claim goes over the limit" {
		most++
	}
	return limited && s.leases(queue) >= most
}

// left is how many jobs a claim could have got.
func (s *Shard) left(queue string) int {
	n := len(s.queue(queue).Ready)
	most, limited := s.Limits[queue]
	switch {
	case !limited || n == 0:
		return n
	case s.full(queue):
		s.Waited[queue] = s.bug != "a claim without a slot leaves no word"
		return Held
	}
	return min(n, most-s.leases(queue))
}

// free notes that a job is leased no more. The verb calls giveBack last.
func (s *Shard) free(ref Ref) { s.freed = append(s.freed, ref) }

// giveBack gives the slots back, and wakes those who wait for one.
func (s *Shard) giveBack() {
	var names []string
	back := map[string]int{}
	for _, ref := range s.freed {
		if !slices.Contains(names, ref.Queue) {
			names = append(names, ref.Queue)
		}
		if s.Slots[ref] {
			back[ref.Queue]++
		}
		delete(s.Slots, ref)
	}
	s.freed = nil
	for _, name := range names {
		if back[name] == 0 || !s.Waited[name] {
			continue
		}
		delete(s.Waited, name)
		if len(s.queue(name).Ready) > 0 && s.bug != "a freed slot wakes nobody" {
			s.wake(name, back[name], back[name])
		}
	}
}

// slotLines are the part of Picture about slots.
func (s *Shard) slotLines() (lines []string) {
	counts := map[string]int{}
	for ref := range s.Slots {
		lines = append(lines, fmt.Sprintf("slots %d %s +", ref.Seq, ref.Queue))
		counts[ref.Queue]++
	}
	for queue, n := range counts {
		lines = append(lines, fmt.Sprintf("slots #%s %d", queue, n))
	}
	for queue, waited := range s.Waited {
		if waited {
			lines = append(lines, fmt.Sprintf("slots ?%s publish w:", queue))
		}
	}
	return lines
}

// limit gives a queue a limit.
func (w *World) limit(queue string, most int) {
	w.limits[queue] = most
	w.store.Limit(queue, most)
	delete(w.asleep, queue) // whoever waits asks again
}

// leases is how many leases a queue has, whatever is counted.
func (w *World) leases(queue string) (n int) {
	for ref := range w.model.Lease {
		if ref.Queue == queue {
			n++
		}
	}
	return n
}

// full says that nobody gets a ready job of the queue.
func (w *World) full(queue string) bool {
	most, limited := w.limits[queue]
	used := w.leases(queue)
	if w.vanished+w.unlisted > 0 {
		used = max(used, w.model.leases(queue))
	}
	return limited && used >= most
}

// judgeLimit holds what a claim handed out against the limit of its queue.
func (w *World) judgeLimit(c Claimed) {
	most, limited := w.limits[c.Queue]
	if n := w.leases(c.Queue); limited && n > most {
		w.bad("claim: %v is one of %d leases, %d are allowed", c.ref(), n, most)
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
func (w *World) lookAtKept(queue string) {
	if w.keeping[queue].MS == 0 {
		return
	}
	for _, t := range w.jobs {
		if k := w.store.GetKept(t.ref); k.Until > 0 && !t.acked {
			w.bad("get: %v is kept, and was not acked", t.ref)
		}
	}
	for at, last, pages := "", "", 0; pages == 0 || at != ""; pages++ {
		p := w.store.List(queue, AckedState, 2, at, last)
		at, last = p.At, p.Last
	}
	if w.rand.Intn(2) == 0 {
		w.store.DropKept(queue, w.rand.Intn(4) == 0)
		w.ran("drop kept", nil)
	}
	if n := len(w.model.queue(queue).Acked); n > 0 {
		w.Count["kept"]++
	}
}

// checkShare holds what the queue of an ack keeps against what it leaves to others.
func (w *World) checkShare(queue string) {
	held, total, all := int64(len(w.model.queue(queue).Acked)), w.model.Ledger["kept"], w.keeping[queue].All
	if held > 4*(all-total) {
		w.bad("ack: %s keeps %d jobs, and leaves %d of %d", queue, held, all-total, all)
	}
}

// checkKept holds what a shard keeps against its bounds.
func (w *World) checkKept(verb string) {
	kept := int64(0)
	for name, q := range w.model.Queue {
		n := int64(len(q.Acked))
		kept += n
		if at, listed := w.model.KeptQueues[name]; listed != (n > 0) {
			w.bad("%s: %s keeps %d jobs, in the index: %d", verb, name, n, at)
		}
	}
	if w.model.Ledger["kept"] != kept {
		w.bad("%s: the ledger has %d kept jobs, the shard %d", verb, w.model.Ledger["kept"], kept)
	}
}
