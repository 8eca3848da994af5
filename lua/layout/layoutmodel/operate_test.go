package layoutmodel

import "slices"

// closer ends layouts that are empty.
func closer(a *Actor) {
	w := a.w
	for {
		if !readRecord(a) {
			continue
		}
		if w.rollbacks { // the janitor's SCAN meets a shard that no layout explains
			r, ok, _ := call(a, w.knownAnywhere)
			if ok && len(r.layouts) > 0 {
				a.learn(r)
			}
		}
		read, cur := a.rec.clone(), a.rec.current()
		for _, l := range a.rec.older(cur.n) {
			floor, all := 0, true
			for i := range l.shards {
				id := l.id(i)
				mine := a.rec.clone()
				f, fenced, _ := call(a, func() Fenced { return w.raise(id, mine) })
				if all = fenced && !a.learn(f.rec); !all {
					break
				}
				type res struct {
					ok     bool
					mark   int
					paused []int
				}
				r, ok, _ := call(a, func() res {
					b, m, p := w.shard(id).close()
					return res{b, m, p}
				})
				if !ok || !r.ok {
					if all = w.bug("close-some") && ok && i > 0; !all {
						break
					}
				}
				if all = copyTo(a, cur, id, r.paused); !all {
					break
				}
				floor = max(floor, r.mark)
			}
			if w.bug("close-without-floor") {
				floor = 0
			}
			if all && w.pools != nil {
				if amend(a, read, func(r *Record) {
					r.layouts[r.find(l.n)].closed, r.floor = true, max(r.floor, floor)
				}) {
					w.stats["layouts closed"]++
				}
			} else if all {
				call(a, func() bool {
					w.rec = w.rec.join(Record{layouts: []Layout{{n: l.n, shards: l.shards, closed: true}}, floor: floor})
					if w.bug("closed-deleted") { // the ledgers of closed shards are deleted, not kept
						for i := range l.shards {
							id := l.id(i)
							o := w.shards[id]
							w.shards[id] = newShard(w, id)
							w.shards[id].L = o.L
						}
					}
					return true
				})
				w.stats["layouts closed"]++
			}
			break // in order
		}
		a.pass()
	}
}

// copyTo copies the pauses of a closed shard to the homes of the names.
func copyTo(a *Actor, cur Layout, src ID, names []int) bool {
	w := a.w
	for j := range cur.shards {
		to := cur.id(j)
		if some := homedAt(cur, to, names); len(some) > 0 && !w.bug("pauses-not-copied") {
			if _, ok, _ := call(a, func() bool { w.fences(to).copyPauses(w, src, some); return true }); !ok {
				return false
			}
		}
	}
	return true
}

func (w *World) knownAnywhere() (found Record) {
	for id, s := range w.shards {
		if w.pools == nil || w.pools.away[id.pool] <= w.step {
			found = found.join(s.known)
		}
	}
	if w.q != nil {
		for _, s := range w.q.shards {
			found = found.join(s.known)
		}
	}
	return found
}

// trimmer keeps the bound of a partition that lies in two layouts.
func trimmer(a *Actor) {
	w := a.w
	for {
		readRecord(a)
		cur := a.rec.current()
		p := w.rnd.IntN(w.P)
		above := 0
		layouts := append(a.rec.older(cur.n), cur)
		for i := len(layouts) - 1; i >= 0; i-- {
			id := layouts[i].home(p)
			if i < len(layouts)-1 && above > 0 {
				call(a, func() bool { w.shard(id).trim(p, max(0, w.capacity-above)); return true })
			}
			d, ok, _ := call(a, func() int { return w.shard(id).depth(p) })
			if !ok {
				break
			}
			above += d
		}
		a.pass()
	}
}

// pausedBefore are the layouts before n that may keep pauses: the open ones, and after failovers also
// those that were closed, because what came back there may be paused.
func (a *Actor) pausedBefore(n int) (list []Layout) {
	if !a.w.rollbacks {
		return a.rec.older(n)
	}
	for _, l := range a.rec.layouts {
		if l.n < n {
			list = append(list, l)
		}
	}
	return list
}

// operator pauses and resumes, at each open home, the oldest first. It fences the older ones
// before, so that nobody with an older record changes them alone. Where one is closed, its
// pauses are copied first: so no late copy brings back what is resumed here.
func operator(a *Actor) {
	w := a.w
	for {
		for range w.rnd.IntN(12) {
			a.pass()
		}
		if w.rnd.IntN(2) == 0 && !readRecord(a) {
			continue
		}
		p, pause := w.rnd.IntN(w.P), w.rnd.IntN(2) == 0 && !w.quiet
		if pause {
			delete(w.resumed, p)
		} else {
			delete(w.pausedSince, p)
		}
		cur, ok := a.rec.current(), true
		for _, l := range a.pausedBefore(cur.n) {
			mine := a.rec.clone()
			f, answered, _ := call(a, func() Fenced { return w.raise(l.home(p), mine) })
			if w.bug("pause-unfenced") {
				continue
			}
			if ok = answered && !a.learn(f.rec); !ok {
				break
			}
		}
		for _, l := range append(a.pausedBefore(cur.n), cur) {
			if !ok {
				break
			}
			id := l.home(p)
			mine := a.rec.clone()
			type res struct {
				moved, closed bool
				paused        []int
			}
			before := w.unsure[p]
			w.unsure[p] = w.clock + w.window/3 // it may run as late as messages do
			r, answered, maybe := call(a, func() res {
				f := w.fences(id)
				w.tr("operator %v p%d pause %v: closed %v fence %d, knows %d", id, p, pause, f.closed, f.fence, mine.current().n)
				switch {
				case f.closed:
					return res{closed: true, paused: f.pauses(w)}
				case f.fence > mine.current().n:
					return res{moved: true}
				case pause:
					f.paused[p] = true
				default:
					delete(f.paused, p)
				}
				return res{}
			})
			if answered || !maybe {
				w.unsure[p] = before
			}
			ok = answered && !r.moved && (!r.closed || l.n != cur.n)
			if ok && r.closed && !w.bug("resume-uncopied") {
				ok = copyTo(a, cur, id, r.paused)
			}
		}
		if ok && w.clock > w.unsure[p] {
			if pause {
				w.pausedSince[p] = w.step
			} else {
				w.resumed[p] = true
			}
		}
		a.pass()
	}
}

// resharder appends layouts: at most one older one is open, of queues three.
func resharder(a *Actor) {
	w := a.w
	for range 3 + w.rnd.IntN(6) {
		for range w.rnd.IntN(30) {
			a.pass()
		}
		if w.quiet {
			return
		}
		n := 1 + w.rnd.IntN(4)
		call(a, func() bool {
			cur := w.rec.current()
			if open := len(w.rec.older(cur.n)); open > 2 || open > 0 && w.q == nil {
				return false
			}
			next := cur.n + 1
			if w.rollbacks {
				next = max(next, w.step+10) // from the clock: a number never comes twice
			}
			w.rec.layouts = append(w.rec.clone().layouts, Layout{n: next, shards: n, first: w.rec.firstNumber(w, n)})
			w.stats["reshards"]++
			return true
		})
	}
}

// forgetter adds the ledgers of closed layouts to the record. It reads a shard at a time, and only
// then changes the record, where it is still the one that it read.
func forgetter(a *Actor) {
	w := a.w
	for {
		for range w.rnd.IntN(20) {
			a.pass()
		}
		if !readRecord(a) {
			continue
		}
		read := a.rec.clone()
		for _, l := range read.layouts[:len(read.layouts)-1] {
			if l.sums != nil || !l.closed && !w.bug("forget-open") {
				continue
			}
			sums, all := Ledger{}, true
			for i := range l.shards {
				id := l.id(i)
				ledger, ok, _ := call(a, func() Ledger { return w.shard(id).L })
				all = all && ok
				sums = sums.add(ledger)
			}
			if !all || sums.accepted != sums.settled() && !w.bug("forget-open") {
				continue
			}
			if w.pools != nil {
				if amend(a, read, func(r *Record) { r.layouts[r.find(l.n)].sums = &sums }) {
					w.stats["layouts forgotten"]++
				}
				break
			}
			call(a, func() bool {
				at := w.rec.find(l.n)
				if at < 0 || w.rec.layouts[at].sums != nil && !w.bug("forget-adds") {
					return false
				}
				if had := w.rec.layouts[at].sums; had != nil {
					sums = sums.add(*had)
				}
				w.rec = w.rec.clone()
				w.rec.layouts[at].sums = &sums
				if w.bug("forget-deletes") {
					for i := range l.shards {
						w.shards[l.id(i)] = newShard(w, l.id(i))
					}
				}
				w.stats["layouts forgotten"]++
				return true
			})
		}
		a.pass()
	}
}

func (r Record) find(n int) int {
	return slices.IndexFunc(r.layouts, func(l Layout) bool { return l.n == n })
}

func (l Ledger) add(o Ledger) Ledger {
	return Ledger{l.accepted + o.accepted, l.delivered + o.delivered, l.evicted + o.evicted,
		l.reclaimed + o.reclaimed, l.expired + o.expired, l.dead + o.dead}
}

// accountant reads the account, by whatever record it knows: a shard at a time, while all goes on.
// What it reads never steps back.
func accountant(a *Actor) {
	w := a.w
	last := Ledger{}
	for {
		for range w.rnd.IntN(20) {
			a.pass()
		}
		if w.rnd.IntN(3) > 0 {
			readRecord(a)
		}
		sum, all := Ledger{}, true
		for _, l := range a.rec.clone().layouts {
			if l.sums != nil {
				sum = sum.add(*l.sums)
			}
			if l.sums != nil && !w.bug("sums-and-ledgers") {
				continue
			}
			if w.bug("sums-of-now") { // not of the record that says which ledgers are read
				if at := w.rec.find(l.n); at >= 0 && w.rec.layouts[at].sums != nil {
					sum = sum.add(*w.rec.layouts[at].sums)
				}
			}
			for i := range l.shards {
				ledger, ok, _ := call(a, func() Ledger { return w.shard(l.id(i)).L })
				all = all && ok
				sum = sum.add(ledger)
			}
		}
		if !all || w.rollbacks {
			continue
		}
		if sum.accepted < last.accepted || sum.delivered < last.delivered || sum.expired < last.expired {
			w.fail("the account steps back: %+v after %+v", sum, last)
		}
		if sum.accepted > len(w.accepts) {
			w.fail("the account has %d accepted entries of %d", sum.accepted, len(w.accepts))
		}
		last = sum
		a.pass()
	}
}
