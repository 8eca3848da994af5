package layoutmodel

import (
	"fmt"
	"math/rand/v2"
)

// A kind of walks.
type kind struct{ queues, rollbacks, pools bool }

// walk takes one walk; fault is the first promise that it found broken.
func walk(seed uint64, bug string, of kind, trace func(string)) (w *World, fault string) {
	defer func() {
		if r := recover(); r != nil {
			fault = fmt.Sprint("panic: ", r)
		}
	}()
	w = &World{rnd: rand.New(rand.NewPCG(seed, 7)), bugName: bug, trace: trace, shards: map[ID]*Shard{},
		sendAt: map[int]int{}, ackAt: map[int]int{}, accepts: map[int]int{}, class: map[int]string{}, partOf: map[int]int{},
		shown: map[int]bool{}, maxSend: map[int]int{}, maxSeq: map[int]int{}, seqOf: map[[2]int]int{}, stats: map[string]int{},
		arrival: map[int][2]int{}, pausedSince: map[int]int{}, unsure: map[int]int{}, resumed: map[int]bool{}}
	r, steps := w.rnd, 900
	if of.queues {
		w.q = &queues{map[ID]*QShard{}, map[int]*jobGhost{}, map[int]int{}, map[[2]int]int{}, map[int]int{}, nil}
	}
	w.P, w.capacity, w.batch = 1+r.IntN(4), 3+r.IntN(10), 1+r.IntN(4)
	w.maxAge = 40 + r.IntN(60)
	if r.IntN(3) == 0 {
		w.maxAge = 1 << 20
	}
	w.rollbacks, w.clock = of.rollbacks, 100
	w.skews = []int{3, 3, 3, 40}[r.IntN(4)]
	w.window = []int{36, 36, 36, 120}[r.IntN(4)]
	if r.IntN(4) == 0 {
		steps *= 3
	}
	w.faultRate = []float64{0, 0.05, 0.15, 0.3}[r.IntN(4)]
	w.rec = Record{layouts: []Layout{{n: 1, shards: 1 + r.IntN(3)}}}
	if of.pools {
		w.pools = &pools{made: map[int]int{1: 0}, newest: 1, top: map[int]int{}}
	}
	if of.queues {
		w.window = []int{36, 120, 360}[r.IntN(3)] // the longest ones outlive layouts
		w.spawnQueues()
	} else {
		w.spawnBuffers()
	}
	defer func() {
		for _, a := range w.actors {
			a.crash()
		}
	}()
	for i := 0; i < steps && w.fault == ""; i++ {
		w.tick()
		if of.rollbacks && i%17 == 0 {
			w.remember()
		}
		w.checkShards()
	}
	// Heal: no more faults; everything has to run empty, and every older layout to close.
	w.quiet = true
	for _, a := range w.actors {
		a.frozen, a.has = 0, [2]bool{true, true}
	}
	if of.pools {
		w.pools.away = [2]int{}
	}
	for i := 0; i < 300 && w.fault == ""; i++ { // late messages
		w.tick()
	}
	if w.rollbacks && w.q == nil { // a failover may have changed pauses, so somebody has to resume in the end
		w.spawn(operator)
	}
	for i := 0; i < 60000 && w.fault == "" && !w.idle(); i++ {
		w.tick()
	}
	if w.fault == "" && !w.idle() {
		d := ""
		for id, s := range w.shards {
			for p, q := range s.parts {
				d += fmt.Sprintf("; %v [%d: %+v] paused %v now %d", id, p, *q, s.paused, s.now())
			}
		}
		w.fail("never ran empty: %+v%s", w.record(), d)
	}
	if w.fault == "" {
		w.check()
	}
	return w, w.fault
}

func (w *World) spawnBuffers() {
	r := w.rnd
	for range 1 + r.IntN(3) {
		w.spawn(receiver, lane(0), lane(1))
	}
	if r.IntN(2) == 0 && w.pools == nil {
		w.spawn(oldProgram)
	}
	for range 2 + r.IntN(5) {
		w.spawn(drainer)
	}
	if r.IntN(2) == 0 {
		w.spawn(trimmer)
	}
	if r.IntN(2) == 0 {
		w.spawn(operator)
	}
	w.spawn(closer)
	if r.IntN(2) == 0 {
		w.spawn(closer)
	}
	if w.pools == nil {
		w.spawn(resharder)
	} else {
		w.spawn(mover)
		w.spawn(mover)
	}
	if r.IntN(2) == 0 {
		w.spawn(forgetter)
		w.spawn(accountant)
	}
}

func (w *World) spawnQueues() {
	for range 1 + w.rnd.IntN(3) {
		w.spawn(publisher)
	}
	for range 1 + w.rnd.IntN(4) {
		w.spawn(consumer)
	}
	w.spawn(client)
	w.spawn(promoter)
	for range 1 + w.rnd.IntN(2) {
		w.spawn(tidier)
	}
	w.spawn(resharder)
}

func (w *World) idle() bool {
	if w.q != nil {
		for _, s := range w.q.shards {
			if len(s.jobs) > 0 {
				return false
			}
		}
	}
	for _, s := range w.shards {
		if len(s.parts) > 0 {
			return false
		}
	}
	rec := w.record()
	return w.rollbacks || len(rec.older(rec.current().n)) == 0
}

func (w *World) checkShards() {
	for id, s := range w.shards {
		for p, q := range s.parts {
			if len(q.ents) != q.tail-q.head {
				w.fail("I1 broken in %v of %d: %d entries, %d..%d", id, p, len(q.ents), q.head, q.tail)
			}
			if len(q.ents) > w.capacity {
				w.fail("over capacity")
			}
		}
	}
}

func (w *World) check() {
	if w.q != nil {
		w.q.check(w)
		return
	}
	sum, rec := Ledger{}, w.record()
	for id, s := range w.shards {
		if s.L.accepted != s.L.settled() {
			w.fail("shard %v: accepted %d settled %d", id, s.L.accepted, s.L.settled())
		}
		if w.bug("sum-of-current") && id.layout != rec.current().n {
			continue
		}
		if at := rec.find(id.layout); at < 0 || rec.layouts[at].sums == nil {
			sum = sum.add(s.L)
		}
	}
	for _, l := range rec.layouts {
		if l.sums != nil {
			sum = sum.add(*l.sums)
		}
	}
	if w.rollbacks {
		return
	}
	count := map[string]int{}
	for u := range w.accepts {
		c := w.class[u]
		if c == "" {
			w.fail("entry %d vanished: accepted and never settled", u)
		}
		count[c]++
	}
	for u := range w.ackAt {
		if w.accepts[u] == 0 {
			w.fail("entry %d acknowledged and never accepted", u)
		}
	}
	if sum.accepted != len(w.accepts) || sum.delivered != count["delivered"] || sum.evicted-sum.reclaimed != count["evicted"] ||
		sum.expired != count["expired"] || sum.dead != count["dead"] {
		w.fail("ledger %+v, entries %v of %d", sum, count, len(w.accepts))
	}
	w.arrivalOrder()
	w.stats["accepted"] += sum.accepted
	w.stats["delivered"] += sum.delivered
	w.stats["evicted"] += sum.evicted - sum.reclaimed
	w.stats["expired"] += sum.expired
	w.stats["reclaimed"] += sum.reclaimed
}
