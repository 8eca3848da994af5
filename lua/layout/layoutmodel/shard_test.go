package layoutmodel

// The store's side of a buffer: a shard is one hash slot, so every method is one script.
// A call serves several partitions of one shard; the fence is one field that open_shard
// reads beside the ledger's others, once a call.

const (
	margin   = 1 << 30 // sequences that a fence skips: more than a partition takes in its life
	linger   = 2
	leaseLen = 12
)

type Entry struct{ uid, t int }

type Ledger struct{ accepted, delivered, evicted, reclaimed, expired, dead int }

func (l Ledger) settled() int { return l.delivered + l.evicted - l.reclaimed + l.expired + l.dead }

type Part struct {
	ents       []Entry
	head, tail int
	from, to   int // to = 0: no range
	token      int
	due        int
}

type DDKey struct{ p, key int }

// fenceState is what both kinds of shards have in their ledger.
type fenceState struct {
	fence      int // the newest layout that spoke to it; its own to begin with
	mark       int // no sequence of the shard is ever this high
	closed     bool
	known      Record       // the newest record that spoke to it
	refusesOld bool         // a field of its ledger is no number, so programs from before layouts are refused
	copied     map[ID]bool  // closed shards whose pauses came here
	paused     map[int]bool // names
}

type Shard struct {
	fenceState
	w     *World
	id    ID
	skew  int
	hw    int
	parts map[int]*Part
	dd    map[DDKey]int
	L     Ledger
}

func newFence(id ID) fenceState {
	return fenceState{fence: id.layout, copied: map[ID]bool{}, paused: map[int]bool{}}
}

func newShard(w *World, id ID) *Shard {
	return &Shard{w: w, id: id, skew: w.skew(), fenceState: newFence(id), parts: map[int]*Part{}, dd: map[DDKey]int{}}
}

func (s *Shard) now() int { return s.w.clock + s.skew }
func (s *Shard) us() int  { return 10 * (s.now() + 1000) }

type Fenced struct {
	mark int
	rec  Record // what the shard knew before
}

// raise is the script fence: from its first call on the shard takes no entries.
func (f *fenceState) raise(w *World, own ID, r Record, high int) Fenced {
	before, layout := f.known, r.current().n
	f.known = f.known.join(r)
	if w.bug("mark-forgets") {
		f.mark = high
	}
	if layout > f.fence {
		if f.fence == own.layout {
			f.mark = high + margin
		}
		f.fence = layout
		f.refusesOld = !w.bug("old-programs-accepted")
	}
	return Fenced{f.mark, before}
}

func (f *fenceState) pauses(w *World) (names []int) {
	for p := 0; p < w.P; p++ {
		if f.paused[p] {
			names = append(names, p)
		}
	}
	return
}

func (s *Shard) raise(r Record) Fenced {
	return s.fenceState.raise(s.w, s.id, r, max(s.us(), s.hw))
}

// copyPauses takes over the pauses of a closed shard, which never change again, once.
func (f *fenceState) copyPauses(w *World, src ID, names []int) {
	if f.copied[src] && !w.bug("pauses-copied-again") {
		return
	}
	f.copied[src] = true
	w.tr("copy of %v from %v", names, src)
	for _, p := range names {
		f.paused[p] = true
	}
}

type Group struct {
	p, key, floor int
	uids          []int
}

type Produced struct {
	moved    bool
	rec      Record
	repeated []bool
}

// produce takes several partitions. Fenced by a newer layout, or closed, it refuses the
// whole call and writes nothing.
func (s *Shard) produce(r Record, groups []Group) Produced {
	w, layout := s.w, r.current().n
	if s.fence > layout || s.closed {
		if w.bug("no-fence") || w.bug("fence-of-new-partitions") && s.parts[groups[0].p] != nil {
		} else {
			return Produced{moved: true, rec: s.known}
		}
	}
	s.known = s.known.join(r)
	a := Produced{repeated: make([]bool, len(groups))}
	for i, g := range groups {
		a.repeated[i] = s.append(g)
	}
	return a
}

// produceOld is the same script in a program from before layouts: it knows of no fence.
func (s *Shard) produceOld(g Group) bool {
	if s.refusesOld || s.closed {
		return false // the ledger holds a foreign value
	}
	s.append(g)
	return true
}

func (s *Shard) append(g Group) (repeated bool) {
	w := s.w
	if g.key != 0 {
		if until, ok := s.dd[DDKey{g.p, g.key}]; ok && until > s.now() {
			return true
		}
		s.dd[DDKey{g.p, g.key}] = s.now() + w.window
	}
	if !w.bug("floor-not-kept") {
		s.hw = max(s.hw, g.floor) // or the next fence would not know of it
	}
	q := s.parts[g.p]
	if q == nil {
		head := max(s.us(), s.hw, g.floor)
		q = &Part{head: head, tail: head, due: s.now() + linger}
		s.parts[g.p] = q
	}
	if w.pools != nil {
		w.pools.takes(w, s.id, g.p)
	}
	for _, u := range g.uids {
		q.ents = append(q.ents, Entry{u, w.clock})
		q.tail++
		w.accept(u, g.p)
	}
	s.L.accepted += len(g.uids)
	w.tr("produce %v p%d %v floor %d head %d", s.id, g.p, g.uids, g.floor, q.head)
	s.overflow(q, w.capacity)
	if len(q.ents) >= w.batch && q.to == 0 {
		q.due = min(q.due, s.now())
	}
	return false
}

func (s *Shard) overflow(q *Part, keep int) {
	n := len(q.ents) - keep
	if n <= 0 {
		return
	}
	for i := 0; i < n; i++ {
		s.w.settle(q.ents[i].uid, "evicted")
	}
	q.ents, q.head = q.ents[n:], q.head+n
	s.L.evicted += n
}

func (s *Shard) die(p int, q *Part) {
	s.hw = max(s.hw, q.tail)
	delete(s.parts, p)
}

func (s *Shard) getDD(p, key int) bool { return s.dd[DDKey{p, key}] > s.now() }

// gone raises the fence and tells, for each name, whether the shard has nothing of it and
// does not pause it. Once nothing is left, nothing comes again.
func (s *Shard) gone(r Record, names []int) ([]bool, Fenced) {
	f := s.raise(r)
	out := make([]bool, len(names))
	for i, p := range names {
		q := s.parts[p]
		out[i] = q == nil || s.w.bug("gone-by-due") && q.due > s.now()
		if s.paused[p] && !s.w.bug("gone-without-pauses") {
			out[i] = false
		}
		if s.w.bug("gone-of-first") {
			out[i] = out[0]
		}
	}
	return out, f
}

func (s *Shard) putOff(names []int) {
	for _, p := range names {
		if q := s.parts[p]; q != nil && q.token == 0 {
			q.due = s.now() + linger
		}
	}
}

type Claimed struct {
	ents  []Entry
	p     int
	from  int
	until int
}

func (s *Shard) dueNow() (list []int) {
	for p := 0; p < s.w.P; p++ {
		if q := s.parts[p]; q != nil && q.due <= s.now() {
			list = append(list, p)
		}
	}
	return
}

// claim leases several partitions under one token. It is not fenced.
func (s *Shard) claim(names []int, token int) (leases []Claimed) {
	for _, p := range names {
		q := s.parts[p]
		if q == nil || q.due > s.now() {
			continue
		}
		if s.paused[p] {
			if s.w.resumed[p] && !s.w.rollbacks {
				s.w.fail("paused although it was resumed")
			}
			q.token, q.due = 0, s.now()+linger
			s.drop(p, q)
			continue
		}
		q.token = 0
		if s.drop(p, q) {
			continue
		}
		to := q.head + min(len(q.ents), s.w.batch)
		if q.to > q.head {
			to = q.to
		}
		q.from, q.to, q.token = q.head, to, token
		q.due = s.now() + leaseLen
		leases = append(leases, Claimed{append([]Entry(nil), q.ents[:to-q.head]...), p, q.from, s.w.clock + leaseLen})
	}
	return
}

// drop expires stale entries; true: nothing is left.
func (s *Shard) drop(p int, q *Part) bool {
	n := 0
	for n < len(q.ents) && q.ents[n].t < s.w.clock-s.w.maxAge {
		s.w.settle(q.ents[n].uid, "expired")
		n++
	}
	q.ents, q.head = q.ents[n:], q.head+n
	s.L.expired += n
	if q.head == q.tail {
		s.die(p, q)
		return true
	}
	return false
}

func (s *Shard) commit(p, token, lo, hi int, class string, uids []Entry) string {
	q := s.parts[p]
	if q == nil || token == 0 || q.token != token {
		return "gone"
	}
	if hi <= q.from {
		return "before"
	}
	if lo != q.from || hi > q.to {
		return "refused"
	}
	reclaimed := max(0, min(q.head-lo, hi-lo))
	head := max(q.head, hi)
	for i, e := range uids {
		if i < reclaimed {
			s.w.reclaim(e.uid)
		}
		s.w.settle(e.uid, class)
	}
	q.ents, q.head = q.ents[head-q.head:], head
	s.L.reclaimed += reclaimed
	if class == "dead" {
		s.L.dead += hi - lo
	} else {
		s.L.delivered += hi - lo
	}
	if hi < q.to {
		q.from = hi
		return "ok"
	}
	q.from, q.to, q.token = 0, 0, 0
	q.due = s.now() + linger
	if len(q.ents) >= s.w.batch {
		q.due = s.now()
	}
	if q.head == q.tail {
		s.die(p, q)
	}
	return "ok"
}

func (s *Shard) release(p, token, delay int) {
	if q := s.parts[p]; q != nil && token != 0 && q.token == token {
		q.token, q.due = 0, s.now()+delay
	}
}

// trim keeps the bound of a partition that lies in two layouts, while nobody holds it.
func (s *Shard) trim(p, keep int) {
	if q := s.parts[p]; q != nil && s.fence > s.id.layout {
		if q.token != 0 && q.due > s.now() && !s.w.bug("trim-leased") {
			return // its holder may be about to show it
		}
		s.overflow(q, keep)
		if q.head == q.tail {
			s.die(p, q)
		}
	}
}

func (s *Shard) depth(p int) int {
	if q := s.parts[p]; q != nil {
		return len(q.ents)
	}
	return 0
}

// close ends a shard for good: fenced, empty by list and by ledger. It returns its mark and
// its pauses, which never change again. Its results of idempotent calls are still asked for.
func (s *Shard) close() (bool, int, []int) {
	if s.closed {
		return true, s.mark, s.pauses(s.w)
	}
	if s.fence <= s.id.layout {
		return false, 0, nil
	}
	if (len(s.parts) > 0 || s.L.accepted != s.L.settled()) && !s.w.bug("close-early") {
		return false, 0, nil
	}
	if s.w.bug("close-early") && len(s.dueNow()) > 0 {
		return false, 0, nil
	}
	s.closed = true
	return true, s.mark, s.pauses(s.w)
}
