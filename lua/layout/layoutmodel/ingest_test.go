package layoutmodel

import "slices"

// A Part1 is what one request has for one partition, in a lane.
type Part1 struct {
	p, key  int
	uids    []int
	born    int
	arrival int
	again   bool
}

// late: its client does not wait any longer. A repeat is sent within the time that results
// are kept.
func (q *Part1) late(w *World) bool {
	if q.again {
		return w.clock-q.born > 2*w.window/3
	}
	return w.clock-q.born > w.window/3
}

func readRecord(a *Actor) bool {
	if a.w.pools != nil {
		return refresh(a)
	}
	mine := a.rec.clone()
	r, ok, _ := call(a, func() Record { a.w.rec = a.w.rec.join(mine); return a.w.rec.clone() })
	if ok {
		a.rec = a.rec.join(r)
	}
	return ok
}

// learn takes up what a shard knew.
func (p *Proc) learn(r Record) (news bool) {
	n, had := p.rec.current().n, len(p.rec.layouts)
	r.version = 0 // it has the process read the whole record, too
	p.take(r)
	return p.rec.current().n > n || p.w.pools != nil && len(p.rec.layouts) > had // or one that a record lost
}

func (w *World) raise(id ID, r Record) Fenced {
	if w.q != nil {
		return w.q.shard(w, id).raise(r)
	}
	return w.shard(id).raise(r)
}

func (w *World) fences(id ID) *fenceState { return &w.shard(id).fenceState }

// fenceOlder makes sure that no older home of a name takes anything any more. It returns the
// floor of sequences in the layout.
func fenceOlder(a *Actor, name int, cur Layout) (floor int, ok bool) {
	w := a.w
	floor = a.rec.floor
	for _, l := range a.rec.older(cur.n) {
		id := l.home(name)
		if mark, known := a.fenced[id]; known {
			floor = max(floor, mark)
			continue
		}
		if w.bug("produce-unfenced") {
			continue
		}
		mine := a.rec.clone()
		f, ok, _ := call(a, func() Fenced { return w.raise(id, mine) })
		if !ok || a.learn(f.rec) {
			return 0, false
		}
		a.fenced[id] = f.mark
		floor = max(floor, f.mark)
	}
	if w.bug("no-floor") {
		floor = 0
	}
	return floor, true
}

// homedAt are the names whose home in a layout is a shard.
func homedAt(l Layout, id ID, names []int) (list []int) {
	for _, p := range names {
		if l.home(p) == id {
			list = append(list, p)
		}
	}
	return
}

// ---- ingest: a process with a receiver and two lanes. The lane of a partition is that of
// its home, so it changes with the layout. ----

func laneOf(l Layout, p int) int { return (l.home(p).idx + l.n) % 2 }

func receiver(a *Actor) {
	w := a.w
	for !w.quiet {
		if w.rnd.IntN(25) == 0 {
			readRecord(a)
		}
		var q *Part1
		if len(w.retry) > 0 && w.rnd.IntN(3) == 0 {
			q = w.retry[0]
			w.retry = w.retry[1:]
			if w.clock-q.born > 2*w.window/3 {
				a.pass()
				continue
			}
			w.procs++ // it may be stored already, so its arrival says nothing
			q = &Part1{p: q.p, key: q.key, uids: q.uids, born: q.born, again: true}
		} else {
			q = &Part1{p: w.rnd.IntN(w.P), born: w.clock}
			for range 1 + w.rnd.IntN(3) {
				w.uid++
				q.uids = append(q.uids, w.uid)
				w.sendAt[w.uid] = w.step
			}
			if w.rnd.IntN(3) == 0 {
				w.key++
				q.key = w.key
			}
		}
		a.arrivals++
		q.arrival = a.arrivals
		for _, u := range q.uids {
			if _, again := w.arrival[u]; again {
				w.arrival[u] = [2]int{-w.procs, 0}
			} else {
				w.arrival[u] = [2]int{a.number, q.arrival}
			}
		}
		l := laneOf(a.layout, q.p)
		a.lanes[l] = append(a.lanes[l], q)
		if w.rnd.IntN(3) > 0 {
			a.pass()
		}
	}
}

// change puts a process into the newest layout, once no lane has a flush out: so no part is
// sent to its new home while an older one of its partition may still be on its way.
func (p *Proc) change() {
	if p.rec.current().n == p.layout.n {
		return
	}
	if (p.flushing[0] || p.flushing[1]) && !p.w.bug("lanes-change-apart") {
		return
	}
	p.layout = p.rec.current()
	all := append(append([]*Part1(nil), p.lanes[0]...), p.lanes[1]...)
	if !p.w.bug("refused-go-behind") {
		slices.SortStableFunc(all, func(x, y *Part1) int { return x.arrival - y.arrival })
	}
	p.lanes = [2][]*Part1{}
	for _, q := range all {
		l := laneOf(p.layout, q.p)
		p.lanes[l] = append(p.lanes[l], q)
	}
	p.w.stats["lane changes"]++
}

func lane(number int) func(a *Actor) {
	return func(a *Actor) {
		w := a.w
		for {
			a.change()
			if len(a.lanes[number]) == 0 || a.rec.current().n != a.layout.n && !w.bug("lanes-change-apart") {
				a.pass() // empty, or the other lane has to end its flush first
				continue
			}
			n := min(len(a.lanes[number]), 1+w.rnd.IntN(4))
			flush := append([]*Part1(nil), a.lanes[number][:n]...)
			a.lanes[number] = a.lanes[number][n:]
			a.flushing[number] = true
			left := flushTo(a, a.layout, flush)
			a.flushing[number] = false
			if w.bug("refused-go-behind") {
				a.lanes[number] = append(a.lanes[number], left...)
			} else {
				a.lanes[number] = append(left, a.lanes[number]...)
			}
			if len(left) > 0 {
				w.stats["refused and sent again"]++
			}
			if w.bug("refused-go-behind") {
				a.pass()
			}
		}
	}
}

func ack(w *World, q *Part1) {
	for _, u := range q.uids {
		if _, have := w.ackAt[u]; !have {
			w.ackAt[u] = w.step
		}
	}
	w.acks++
}

// flushTo sends parts to their homes in a layout: one call a shard. It returns those that
// were refused because a newer layout has spoken to their shard; all others are answered.
func flushTo(a *Actor, l Layout, parts []*Part1) (left []*Part1) {
	w := a.w
	floors := map[*Part1]int{}
	var byShard []ID
	groups := map[ID][]*Part1{}
	for _, q := range parts {
		floor, ok := fenceOlder(a, q.p, l)
		if a.rec.current().n != l.n { // a newer layout: everything not sent yet waits
			left = append(left, q)
			continue
		}
		if !ok || q.late(w) {
			continue // 503, not stored
		}
		if q.key != 0 && !w.bug("no-old-results") {
			found, failed := false, false
			for _, o := range a.rec.remembered(w, l.n) {
				f, ok, _ := call(a, func() bool { return w.shard(o.home(q.p)).getDD(q.p, q.key) })
				found, failed = found || ok && f, failed || !ok
			}
			if failed {
				continue
			}
			if found {
				ack(w, q)
				continue
			}
		}
		floors[q] = floor
		id := l.home(q.p)
		if groups[id] == nil {
			byShard = append(byShard, id)
		}
		groups[id] = append(groups[id], q)
	}
	for _, id := range byShard {
		list := groups[id]
		for _, q := range list {
			if q.late(w) {
				list = nil // the clients do not wait any longer
				break
			}
		}
		var gs []Group
		for _, q := range list {
			gs = append(gs, Group{q.p, q.key, floors[q], q.uids})
		}
		if len(gs) == 0 {
			continue
		}
		mine := a.rec.clone()
		if mine.current().n != l.n { // claims the layout that it was planned for
			mine.layouts = mine.layouts[:slices.IndexFunc(mine.layouts, func(o Layout) bool { return o.n == l.n })+1]
		}
		r, ok, maybe := call(a, func() Produced { return w.shard(id).produce(mine, gs) })
		switch {
		case !ok && maybe:
			w.unknown++
			for _, q := range list {
				if q.key != 0 {
					w.retry = append(w.retry, q)
				}
			}
		case !ok:
		case r.moved:
			w.stats["moved answers"]++
			a.learn(r.rec)
			left = append(left, list...)
		default:
			for _, q := range list {
				ack(w, q)
			}
		}
	}
	slices.SortStableFunc(left, func(x, y *Part1) int { return x.arrival - y.arrival })
	return left
}

// oldProgram is an ingest from before layouts: it knows the first one, as configured.
func oldProgram(a *Actor) {
	w := a.w
	first := w.rec.layouts[0]
	for !w.quiet {
		g := Group{p: w.rnd.IntN(w.P)}
		for range 1 + w.rnd.IntN(2) {
			w.uid++
			g.uids = append(g.uids, w.uid)
			w.sendAt[w.uid] = w.step
		}
		r, ok, _ := call(a, func() bool { return w.shard(first.home(g.p)).produceOld(g) })
		if ok && r {
			for _, u := range g.uids {
				w.ackAt[u] = w.step
			}
		}
		a.pass()
	}
}
