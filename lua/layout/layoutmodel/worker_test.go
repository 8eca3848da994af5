package layoutmodel

import "slices"

// ---- programs of queues ----

// byNumber is the shard that ids name by a number.
func (r Record) byNumber(number int) (id ID, ok bool) {
	for _, l := range r.layouts {
		if number >= l.first && number < l.first+l.shards {
			id, ok = l.id(number-l.first), true
		}
	}
	return id, ok
}

// firstNumber is where the numbers of a further layout of n shards begin. None comes twice.
func (r Record) firstNumber(w *World, n int) (first int) {
	for _, l := range r.layouts {
		if !l.closed || !w.bug("numbers-without-floor") {
			first = max(first, l.first+l.shards)
		}
	}
	for _, l := range r.layouts {
		if w.bug("numbers-without-floor") && l.closed && l.shards >= n {
			return l.first // those of a closed layout, whose sequences may come again, too
		}
	}
	return first
}

func publisher(a *Actor) {
	w := a.w
	type request struct{ q, cid, key, uid, delay, born int }
	var again *request
	for !w.quiet {
		if w.rnd.IntN(20) == 0 {
			readRecord(a)
		}
		x := again
		if again = nil; x == nil {
			w.uid++
			x = &request{q: w.rnd.IntN(w.P), uid: w.uid, born: w.clock}
			if w.rnd.IntN(3) == 0 {
				x.cid = 1 + w.rnd.IntN(3)
			}
			if w.rnd.IntN(3) > 0 {
				w.key++
				x.key = w.key
			}
			if w.rnd.IntN(8) == 0 {
				x.delay = 1 + w.rnd.IntN(40)
			}
			w.q.jobs[x.uid] = &jobGhost{q: x.q, sent: w.step, maxDelivered: tries}
		}
		for range 4 {
			if w.clock-x.born > 2*w.window/3 {
				break // its client does not wait any longer
			}
			cur := a.rec.current()
			if _, ok := fenceOlder(a, x.q, cur); !ok || a.rec.current().n != cur.n {
				continue
			}
			known, failed := lookUp(a, x.q, x.cid, x.key, cur)
			if failed || known || w.clock-x.born > 2*w.window/3 { // a request has a bound of time as a whole, too
				break
			}
			id, mine := cur.home(x.q), a.rec.clone()
			r, ok, maybe := call(a, func() Published { return w.q.shard(w, id).publish(mine, x.q, x.cid, x.key, x.uid, x.delay) })
			if ok && r.moved {
				a.learn(r.rec)
				continue
			}
			if ok && r.status == "stored" {
				w.q.jobs[x.uid].acked = w.step
				w.q.ids = append(w.q.ids, jobID{cur.first + id.idx, r.seq, x.q, x.uid})
			}
			if !ok && maybe && x.key != 0 && w.rnd.IntN(3) > 0 {
				again = x
				for range w.rnd.IntN(w.window / 3) { // long enough for a layout to close
					a.pass()
				}
			}
			break
		}
		a.pass()
	}
}

// lookUp asks the former homes of a queue what they know of a publish.
func lookUp(a *Actor, q, cid, key int, cur Layout) (known, failed bool) {
	w := a.w
	if w.bug("caller-id-not-looked-up") {
		cid = 0
	}
	if w.bug("key-not-looked-up") {
		key = 0
	}
	if cid == 0 && key == 0 {
		return false, false
	}
	for _, l := range a.rec.remembered(w, cur.n) {
		id := l.home(q)
		if key == 0 && !a.mayHave(id, q) {
			continue
		}
		r, ok, _ := call(a, func() Published { return w.q.shard(w, id).stored(q, cid, key) })
		known, failed = known || r.status != "", failed || !ok
	}
	return known, failed
}

// mayHave: what a shard has none of once it is fenced, it never has again.
func (p *Proc) mayHave(id ID, q int) bool { return p.left[id] == nil || p.left[id][q] }

// lookAtOlder learns which queues the fenced shards of older layouts have jobs of.
func lookAtOlder(a *Actor) {
	w := a.w
	for _, l := range a.rec.older(a.rec.current().n) {
		for i := range l.shards {
			id := l.id(i)
			if _, known := a.fenced[id]; !known && !w.bug("left-before-fence") || w.rnd.IntN(3) > 0 {
				continue
			}
			left, ok, _ := call(a, func() map[int]bool {
				left := map[int]bool{}
				for _, j := range w.q.shard(w, id).jobs {
					left[j.q] = true
				}
				return left
			})
			if ok && !w.rollbacks {
				a.left[id] = left
			}
		}
	}
}

// consumer claims in the older layouts first, and in a newer one only after each older home answered,
// fenced, that it has no ready job of the queue.
func consumer(a *Actor) {
	w := a.w
	for {
		if w.rnd.IntN(10) == 0 || w.quiet {
			readRecord(a)
		}
		if w.rnd.IntN(3) == 0 {
			lookAtOlder(a)
		}
		q, cur := w.rnd.IntN(w.P), a.rec.current()
		layouts := append(a.rec.older(cur.n), cur)
		if w.rollbacks { // a look into closed shards finds what a failover brought back
			layouts = a.rec.clone().layouts
		}
		if w.rnd.IntN(3) == 0 { // push asks a shard by itself
			layouts = layouts[w.rnd.IntN(len(layouts)):]
		}
		if w.bug("claim-current-only") {
			layouts = layouts[len(layouts)-1:]
		}
		if w.bug("claim-newest-first") {
			slices.Reverse(layouts)
		}
		for _, l := range layouts {
			if !olderFirst(a, q, l) {
				break
			}
			if w.rnd.IntN(4) == 0 { // time passes between the look and the claim
				for range w.rnd.IntN(40) {
					a.pass()
				}
			}
			id, n := l.home(q), 1+w.rnd.IntN(2)
			if l.n != cur.n && !a.mayHave(id, q) {
				continue
			}
			jobs, ok, _ := call(a, func() []Job { return w.q.shard(w, id).claim(q, n) })
			for _, j := range jobs {
				consume(a, l.first+id.idx, id, j)
			}
			if !ok || len(jobs) > 0 {
				break
			}
		}
		a.pass()
	}
}

// olderFirst reports whether a layout may be claimed from.
func olderFirst(a *Actor, q int, l Layout) bool {
	w := a.w
	if w.bug("claim-newest-first") {
		return true
	}
	for _, o := range a.rec.older(l.n) {
		id := o.home(q)
		if !a.mayHave(id, q) {
			continue
		}
		if _, known := a.fenced[id]; !known && !w.bug("empty-before-fence") {
			mine := a.rec.clone()
			f, ok, _ := call(a, func() Fenced { return w.raise(id, mine) })
			if !ok || a.learn(f.rec) {
				return false
			}
			a.fenced[id] = f.mark
		}
		ready, ok, _ := call(a, func() int { return len(w.q.shard(w, id).ready[q]) })
		if !ok || ready > 0 && !w.bug("older-not-asked") {
			return false
		}
	}
	return true
}

func consume(a *Actor, number int, id ID, j Job) {
	w := a.w
	for range w.rnd.IntN(3) {
		a.pass()
	}
	switch x := w.rnd.IntN(6); {
	case x == 0 && !w.quiet:
		wait := w.rnd.IntN(8)
		call(a, func() bool { w.q.shard(w, id).nack(j.seq, j.attempts, wait); return true })
	case x == 1 && !w.quiet: // the worker dies
	default:
		ackID(a, jobID{number, j.seq, j.q, j.uid})
	}
}

// ackID goes to the shard that the id names. Where its process knows none, it reads the record.
func ackID(a *Actor, ref jobID) {
	w := a.w
	id, ok := a.rec.byNumber(ref.number)
	if !ok && !w.bug("stale-says-gone") {
		if !readRecord(a) {
			return
		}
		id, ok = a.rec.byNumber(ref.number)
	}
	if w.bug("ack-by-queue") {
		id, ok = a.rec.current().home(ref.q), true
	}
	if !ok {
		w.q.gone(w, ref.uid)
		return
	}
	found, ok, _ := call(a, func() bool { return w.q.shard(w, id).ack(ref.q, ref.seq, ref.uid) })
	if ok && found {
		w.q.jobs[ref.uid].endConfirmed = true
	}
}

// client acks by ids that it holds, also of jobs that ended long ago.
func client(a *Actor) {
	w := a.w
	for {
		for range w.rnd.IntN(20) {
			a.pass()
		}
		if w.rnd.IntN(6) == 0 {
			readRecord(a)
		}
		if len(w.q.ids) > 0 {
			ackID(a, w.q.ids[w.rnd.IntN(len(w.q.ids))])
		}
		a.pass()
	}
}

func promoter(a *Actor) {
	w := a.w
	for {
		if w.rnd.IntN(4) == 0 {
			readRecord(a)
		}
		cur := a.rec.current()
		open := append(a.rec.older(cur.n), cur)
		if w.rollbacks {
			open = a.rec.layouts
		}
		if w.bug("promote-current-only") {
			open = open[len(open)-1:]
		}
		l := open[w.rnd.IntN(len(open))]
		id, x := l.id(w.rnd.IntN(l.shards)), w.rnd.IntN(12)
		call(a, func() bool {
			s := w.q.shard(w, id)
			if s.promote(); x == 0 {
				s.respawn(w.quiet)
			}
			return true
		})
		a.pass()
	}
}

// tidier fences, and closes what is empty, in order.
func tidier(a *Actor) {
	w := a.w
	for {
		if !readRecord(a) {
			continue
		}
		if r, ok, _ := call(a, w.knownAnywhere); w.rollbacks && ok && len(r.layouts) > 0 {
			a.learn(r)
		}
		for _, l := range a.rec.older(a.rec.current().n) {
			empty := true
			for i := 0; i < l.shards && empty; i++ {
				id, mine := l.id(i), a.rec.clone()
				if !w.bug("close-unfenced") {
					f, ok, _ := call(a, func() Fenced { return w.raise(id, mine) })
					if empty = ok && !a.learn(f.rec); !empty {
						break
					}
				}
				holds, ok, _ := call(a, func() bool { return w.q.shard(w, id).holds() })
				empty = ok && !holds
			}
			if !empty {
				break
			}
			call(a, func() bool {
				w.rec = w.rec.join(Record{layouts: []Layout{{n: l.n, shards: l.shards, first: l.first, closed: true}}})
				return true
			})
			w.stats["layouts closed"]++
			break
		}
		a.pass()
	}
}
