package layoutmodel

import (
	"reflect"
	"slices"
)

// Pools: a layout lies in one of two. Each pool of an open layout has a copy of the record, and so has
// the pool that a process's file names. The copy in the pool of the newest layout changes first; the
// others are written by whoever knows more. Programs from before layouts have no part in these walks.
type pools struct {
	copies [2]Record
	before [2][]Record // that they replaced
	away   [2]int      // until this step
	lost   [2]bool
	faults int // copies that were lost or set back

	// ghosts
	made   map[int]int // pools by the numbers of layouts
	newest int
	moved  bool        // a layout was made in pool 1
	top    map[int]int // by name, the newest layout that took an entry
}

// away is the panic of a call to a pool that its process cannot reach. Nothing was done.
type away struct{}

func (w *World) reach(pool int) {
	if p := w.asks; w.pools != nil && p != nil && (w.pools.away[pool] > w.step || !p.has[pool]) {
		panic(away{})
	}
}

// exec runs a message; ok is false where its pool cannot be reached.
func (w *World) exec(m *Msg) (v any, ok bool) {
	w.asks = m.a.Proc
	defer func() {
		w.asks = nil
		if r := recover(); r == any(away{}) {
			ok = false
		} else if r != nil {
			panic(r)
		}
	}()
	return m.exec(), true
}

// record is what all pools know together.
func (w *World) record() Record {
	if w.pools == nil {
		return w.rec
	}
	return w.rec.join(w.pools.copies[0]).join(w.pools.copies[1])
}

// store is the script record: it writes the layouts of r beside those that the copy has.
func (w *World) store(pool, read int, r Record) bool {
	w.reach(pool)
	k := w.pools
	old := k.copies[pool]
	if old.version != read {
		return false
	}
	cur := r.current()
	if _, made := k.made[cur.n]; !made {
		if before := r.layouts[len(r.layouts)-2].n; k.faults == 0 && before != k.newest {
			w.fail("two current layouts: %d was made beside %d", cur.n, k.newest)
		}
		w.stats["reshards"]++
		if cur.pool != k.made[k.newest] {
			w.stats["moves"]++
		}
		k.made[cur.n], k.newest, k.moved = cur.pool, cur.n, k.moved || cur.pool == 1
	}
	next := r.clone()
	next.version = max(r.version, read+1)
	for _, l := range old.layouts {
		if r.find(l.n) < 0 {
			next = next.join(Record{layouts: []Layout{l}})
		}
	}
	k.before[pool] = append(k.before[pool], old)
	k.copies[pool], k.lost[pool] = next, false
	return true
}

// takes checks that a layout may take entries of a name.
func (k *pools) takes(w *World, id ID, name int) {
	if pool, made := k.made[id.layout]; !made || pool != id.pool || !w.rollbacks && id.layout < k.top[name] {
		w.fail("two current layouts: %v takes entries, and layout %d did before", id, k.top[name])
	}
	k.top[name] = max(k.top[name], id.layout)
}

// choose is what the file of a process says: also the pool that layout 1 is not in, once a layout is
// there. A process may lack the other pool.
func (p *Proc) choose() {
	w := p.w
	p.file, p.has, p.resolved = 0, [2]bool{true, true}, false
	if w.pools.moved {
		p.file = w.rnd.IntN(2)
	}
	if !w.quiet && w.rnd.IntN(4) == 0 {
		p.has[1-p.file] = false
	}
}

// readCopy reads the copy in a pool.
func readCopy(a *Actor, pool int) (r Record, ok bool) {
	r, ok, _ = ask(a, func() Record { a.w.reach(pool); return a.w.pools.copies[pool].clone() })
	return r, ok
}

// resolve is how a process begins: with the copy in the pool of its file. Without one the namespace is
// new, unless the other pool has a copy.
func resolve(a *Actor) {
	k, other, lost := a.w.pools, 1-a.file, a.w.pools.lost[a.file]
	r, ok := readCopy(a, a.file)
	if ok && len(r.layouts) == 0 {
		elsewhere, answered := readCopy(a, other)
		if len(elsewhere.layouts) > 0 {
			a.file = other // its operator does what the error says
			return
		}
		ok = answered || !lost && !k.lost[a.file] && (a.has[other] || a.file == 0) // never two faults at once
		r = Record{layouts: []Layout{{n: 1, shards: a.w.rec.layouts[0].shards, pool: a.file}}}
	}
	if ok {
		a.rec, a.resolved = r, true
		a.take(Record{})
		a.layout = a.rec.current()
		refresh(a)
	}
}

// ready: the process has the pools of all open layouts. Otherwise it makes no call.
func (p *Proc) ready() bool {
	return p.w.pools == nil || p.w.bug("acts-without-pool") ||
		!slices.ContainsFunc(p.rec.layouts, func(l Layout) bool { return !l.closed && !p.has[l.pool] })
}

// take takes up what a record knows.
func (p *Proc) take(r Record) {
	p.rec = p.rec.join(r)
	if p.w.bug("acts-without-pool") {
		had := Record{layouts: slices.DeleteFunc(p.rec.clone().layouts, func(l Layout) bool { return !p.has[l.pool] })}
		if len(had.layouts) > 0 && !had.current().closed {
			p.rec.layouts = had.layouts
		}
	}
}

// refresh joins what the pools record and what the process knows, on all sides.
func refresh(a *Actor) bool {
	w := a.w
	copies, asked := [2]*Record{}, [2]bool{}
	for again := true; again; {
		again = false
		newest := a.rec.current().pool
		if !a.has[newest] {
			a.pass()
			return false
		}
		for _, l := range slices.Backward(a.rec.clone().layouts) {
			if asked[l.pool] || !a.has[l.pool] || l.closed && l.pool != a.file {
				continue
			}
			asked[l.pool], again = true, true
			if r, ok := readCopy(a, l.pool); ok {
				copies[l.pool] = &r
				a.take(r)
			}
			break
		}
	}
	at := a.rec.current().pool
	if copies[at] == nil {
		return false
	}
	if a.rec.current().n == 1 || w.bug("copies-not-repaired") {
		return true
	}
	if a.rec.newer(*copies[at]) {
		if _, ok := change(a, at, copies[at].version, a.rec.clone()); !ok {
			return false
		}
	}
	if c := copies[1-at]; c != nil && a.rec.newer(*c) {
		known := a.rec.clone()
		ask(a, func() bool { return w.store(1-at, c.version, known) })
	}
	return true
}

// refresher begins, and then does what each process does once a second.
func refresher(a *Actor) {
	for !a.resolved {
		resolve(a)
	}
	for {
		for range a.w.rnd.IntN(12) {
			a.pass()
		}
		refresh(a)
	}
}

// newer reports whether a copy that is o is to be replaced by r.
func (r Record) newer(o Record) bool { return !reflect.DeepEqual(o.join(r), o.clone()) }

// change stores a record in a pool in the place of that of a version.
func change(a *Actor, pool, read int, r Record) (wrote, ok bool) {
	r.version = max(r.version, read, a.w.step) + 1
	wrote, ok, _ = ask(a, func() bool { return a.w.store(pool, read, r) })
	if wrote {
		a.take(r)
	}
	return wrote, ok
}

// amend changes the record that the process decided by, where no other was first.
func amend(a *Actor, read Record, f func(*Record)) bool {
	next, pool := read.clone(), read.current().pool
	f(&next)
	switch {
	case a.w.bug("compared-in-pool-of-file"):
		pool = a.file
	case a.w.bug("move-in-new-pool-alone"):
		pool = next.current().pool
	}
	wrote, ok := change(a, pool, read.version, next)
	if ok && !wrote {
		refresh(a)
	}
	return wrote
}

// mover reshards as long as it may.
func mover(a *Actor) {
	for !a.w.quiet {
		for range a.w.rnd.IntN(12) {
			a.pass()
		}
		if refresh(a) && a.ready() {
			reshard(a, 1+a.w.rnd.IntN(4))
		}
	}
}

// reshard appends a layout of n shards, in any pool.
func reshard(a *Actor, n int) {
	w := a.w
	read, cur, to := a.rec.clone(), a.rec.current(), w.rnd.IntN(2)
	if len(read.older(cur.n)) > 0 || !a.has[to] {
		return
	}
	if to != cur.pool {
		found, ok := readCopy(a, to)
		if !ok || len(a.rec.layouts) < len(a.rec.join(found).layouts) {
			a.take(found) // after a failover that lost the newer ones
			return
		}
		if !w.bug("new-pool-without-record") {
			if _, ok, _ := ask(a, func() bool { return w.store(to, found.version, read) }); !ok {
				return
			}
		}
	}
	amend(a, read, func(r *Record) {
		r.layouts = append(r.layouts, Layout{n: max(cur.n+1, w.step+10), shards: n, pool: to})
	})
	refresh(a)
}

// disturb takes a pool away for a while, or has it lose its copy, or the newest writes to it: never
// while the other one lacks its copy or is away.
func (w *World) disturb() {
	k, pool := w.pools, w.rnd.IntN(2)
	if k.lost[1-pool] || k.away[1-pool] > w.step {
		return
	}
	switch x := w.rnd.IntN(8); {
	case x <= 3 && k.newest > 1:
		k.copies[pool] = Record{}
		if n := len(k.before[pool]); x > 0 && n > 0 {
			k.copies[pool] = k.before[pool][max(0, n-1-w.rnd.IntN(3))].clone()
		}
		k.lost[pool] = len(k.copies[pool].layouts) == 0
		k.faults++
		w.stats["copies lost or set back"]++
	default:
		k.away[pool] = w.step + w.rnd.IntN(200)
		w.stats["pools away"]++
	}
}
