package layoutmodel

import (
	"fmt"
	"math/rand/v2"
)

// A World is a namespace, its processes, and a network that loses, delays and refuses.
type World struct {
	rnd                        *rand.Rand
	bugName                    string
	clock, step                int
	P, capacity, batch, maxAge int
	window                     int // ticks that the result of an idempotent call is kept
	skews                      int
	rollbacks                  bool
	rec                        Record
	shards                     map[ID]*Shard
	msgs                       []*Msg
	actors                     []*Actor
	fault                      string
	faultRate                  float64
	quiet                      bool // no more faults, no more new entries
	stats                      map[string]int
	trace                      func(string)
	q                          *queues // nil: the namespace is of buffers
	pools                      *pools  // nil: there is one pool
	asks                       *Proc   // whose message is running

	// ghosts
	uid, key, token int
	sendAt, ackAt   map[int]int
	accepts         map[int]int
	class           map[int]string
	partOf          map[int]int
	shown           map[int]bool
	shownAt         []int // uids in the order they were shown first
	arrival         map[int][2]int
	procs           int
	maxSend         map[int]int
	maxSeq          map[int]int
	seqOf           map[[2]int]int
	pausedSince     map[int]int  // confirmed pause, not yet resumed: step
	resumed         map[int]bool // confirmed resume, no pause begun since
	unsure          map[int]int  // until then an earlier pause or resume may still run
	acks, unknown   int
	retry           []*Part1

	hist    []func()
	recHist []Record
}

type Msg struct {
	exec func() any
	a    *Actor
	sent int
}

func (w *World) bug(name string) bool { return w.bugName == name }
func (w *World) fail(f string, a ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(f, a...)
	}
}

func (w *World) tr(f string, a ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%d %d "+f, append([]any{w.step, w.clock}, a...)...))
	}
}

func (w *World) accept(u, p int) {
	w.accepts[u]++
	w.partOf[u] = p
	if w.accepts[u] > 1 && !w.rollbacks {
		w.fail("entry accepted %d times", w.accepts[u])
	}
}

func (w *World) settle(u int, class string) {
	if w.rollbacks {
		return
	}
	if c := w.class[u]; c != "" {
		w.fail("entry settled twice: %s, %s", c, class)
	}
	w.class[u] = class
	if class == "delivered" && !w.shown[u] {
		w.fail("delivered but never shown")
	}
}

func (w *World) reclaim(u int) {
	if w.rollbacks {
		return
	}
	if w.class[u] != "evicted" {
		w.fail("reclaimed what was %q", w.class[u])
	}
	w.class[u] = ""
}

// show is a sink's view of a batch.
func (w *World) show(p, from int, ents []Entry, claimed int) {
	w.tr("show %d from %d %v", p, from, ents)
	for i, e := range ents {
		seq := from + i
		if w.partOf[e.uid] != p {
			w.fail("entry of another partition")
		}
		if since, ok := w.pausedSince[p]; ok && since < w.sendAt[e.uid] && !w.rollbacks && claimed > since {
			w.fail("shown although its partition was paused before it was sent")
		}
		if w.shown[e.uid] || w.rollbacks {
			w.shown[e.uid] = true
			continue
		}
		w.shown[e.uid] = true
		w.shownAt = append(w.shownAt, e.uid)
		if a, ok := w.ackAt[e.uid]; ok && w.maxSend[p] > a {
			w.fail("order: an entry acknowledged at %d comes after one sent at %d", a, w.maxSend[p])
		}
		w.maxSend[p] = max(w.maxSend[p], w.sendAt[e.uid])
		if seq <= w.maxSeq[p] {
			w.fail("sequence goes back: %d after %d", seq, w.maxSeq[p])
		}
		w.maxSeq[p] = seq
		if u, ok := w.seqOf[[2]int{p, seq}]; ok && u != e.uid {
			w.fail("sequence used twice")
		}
		w.seqOf[[2]int{p, seq}] = e.uid
	}
}

// arrivalOrder: of one partition, what arrived at one process first is shown first, where
// both were acknowledged.
func (w *World) arrivalOrder() {
	last := map[[2]int][2]int{} // process, partition → arrival, uid
	for _, u := range w.shownAt {
		if _, acked := w.ackAt[u]; !acked {
			continue
		}
		at := w.arrival[u]
		k := [2]int{at[0], w.partOf[u]}
		if before := last[k]; before[0] > at[1] {
			w.fail("entry %d arrived before %d at the same process and is shown after it", u, before[1])
		}
		last[k] = [2]int{at[1], u}
	}
}

func (w *World) skew() int { return w.rnd.IntN(2*w.skews+1) - w.skews }

func (w *World) shard(id ID) *Shard {
	if w.asks != nil && w.bug("shard-in-pool-of-file") {
		id.pool = w.asks.file
	}
	w.reach(id.pool)
	s := w.shards[id]
	if s == nil {
		s = newShard(w, id)
		w.shards[id] = s
	}
	return s
}

// ---- actors: straight programs that give up control at each call. Those of one process
// share a Proc and crash together. ----

type Proc struct {
	w        *World
	number   int
	rec      Record
	fenced   map[ID]int          // marks
	left     map[ID]map[int]bool // queues that fenced shards have jobs of
	members  []*Actor
	layout   Layout // of the lanes
	lanes    [2][]*Part1
	flushing [2]bool
	arrivals int
	changing bool
	file     int     // the pool that its file names
	has      [2]bool // pools
	resolved bool    // it found the record
}

type Actor struct {
	*Proc
	prog    func(a *Actor)
	resume  chan answer
	yield   chan struct{}
	waiting *Msg
	done    bool
	frozen  int
	started bool
}

type answer struct {
	v    any
	ok   bool // answered
	sent bool // may have run
	die  bool
}

type death struct{}

func (w *World) spawn(progs ...func(a *Actor)) *Proc {
	p := &Proc{w: w}
	if w.pools != nil {
		for i, f := range progs {
			progs[i] = func(a *Actor) {
				for !a.resolved {
					a.pass()
				}
				f(a)
			}
		}
		progs = append(progs, refresher)
	}
	for _, f := range progs {
		a := &Actor{Proc: p, prog: f}
		p.members = append(p.members, a)
		w.actors = append(w.actors, a)
	}
	p.start()
	return p
}

func (p *Proc) start() {
	w := p.w
	w.procs++
	p.number, p.arrivals, p.changing = w.procs, 0, false
	p.rec = w.rec.clone()   // a new process reads the record before anything else
	if w.rnd.IntN(4) == 0 { // or an old copy of it
		p.rec.layouts = p.rec.layouts[:1+w.rnd.IntN(len(p.rec.layouts))]
		for i := range p.rec.layouts {
			p.rec.layouts[i].closed, p.rec.layouts[i].sums = false, nil
		}
		p.rec.floor = 0
		w.stats["stale starts"]++
	}
	p.fenced, p.left, p.layout = map[ID]int{}, map[ID]map[int]bool{}, p.rec.current()
	p.lanes, p.flushing = [2][]*Part1{}, [2]bool{}
	if w.pools != nil {
		p.choose()
	}
	for _, a := range p.members {
		a.start()
	}
}

func (a *Actor) start() {
	a.resume, a.yield = make(chan answer), make(chan struct{})
	a.done, a.waiting, a.started = false, nil, false
	resume, yield := a.resume, a.yield
	go func() {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(death); !ok {
					panic(r)
				}
			}
			close(yield)
		}()
		if x := <-resume; x.die {
			return
		}
		a.prog(a)
		a.done = true
	}()
}

func (a *Actor) run(x answer) {
	a.started = true
	a.resume <- x
	<-a.yield
}

func (a *Actor) crash() {
	if a.done {
		return
	}
	a.resume <- answer{die: true}
	<-a.yield
	a.waiting = nil
}

func (a *Actor) wait() answer {
	a.yield <- struct{}{}
	x := <-a.resume
	if x.die {
		panic(death{})
	}
	return x
}

// pass gives up control without a message.
func (a *Actor) pass() { a.waiting = nil; a.wait() }

func call[T any](a *Actor, f func() T) (v T, ok, maybe bool) {
	if !a.ready() {
		a.pass()
		return v, false, false
	}
	return ask(a, f)
}

func ask[T any](a *Actor, f func() T) (v T, ok, maybe bool) {
	m := &Msg{exec: func() any { return f() }, a: a, sent: a.w.clock}
	a.waiting = m
	a.w.msgs = append(a.w.msgs, m)
	x := a.wait()
	if x.ok {
		return x.v.(T), true, true
	}
	return v, false, x.sent
}

func (w *World) drop(m *Msg) {
	for i, o := range w.msgs {
		if o == m {
			w.msgs[i] = w.msgs[len(w.msgs)-1]
			w.msgs = w.msgs[:len(w.msgs)-1]
			return
		}
	}
}

// tick is one step of the schedule.
func (w *World) tick() {
	w.step++
	r := w.rnd
	if r.IntN(6) == 0 {
		w.clock++
	}
	if len(w.msgs) > 0 && r.IntN(3) == 0 { // messages nobody waits for run late, or never
		m := w.msgs[r.IntN(len(w.msgs))]
		if m.a.waiting != m {
			w.drop(m)
			if w.clock-m.sent < w.window/3 {
				w.exec(m)
				w.stats["late messages"]++
			}
			return
		}
	}
	a := w.actors[r.IntN(len(w.actors))]
	if a.frozen > w.step {
		return
	}
	if !w.quiet {
		switch x := r.Float64(); {
		case x < w.faultRate/8:
			for _, b := range a.members {
				b.crash()
			}
			w.stats["crashes"]++
			a.Proc.start()
			if r.IntN(3) == 0 {
				for _, b := range a.members {
					b.frozen = w.step + r.IntN(200)
				}
			}
			return
		case x < w.faultRate/4:
			for _, b := range a.members {
				b.frozen = w.step + r.IntN(400)
			}
			w.stats["stalls"]++
			return
		case w.rollbacks && x < w.faultRate/3:
			w.rollback()
			return
		case w.pools != nil && x > w.faultRate/3 && x < w.faultRate*0.4:
			w.disturb()
			return
		}
	}
	if a.done {
		return
	}
	m := a.waiting
	if m == nil {
		a.run(answer{})
		return
	}
	if w.clock-m.sent >= w.window/3 { // the network gives up: with the last repeat, at 2/3, before results are forgotten
		w.drop(m)
		a.waiting = nil
		a.run(answer{sent: true})
		return
	}
	x := r.Float64()
	switch {
	case w.quiet || x > w.faultRate:
		w.drop(m)
		a.waiting = nil
		v, ok := w.exec(m)
		a.run(answer{v: v, ok: ok})
	case x < w.faultRate*0.3: // the answer is lost
		w.drop(m)
		w.exec(m)
		a.waiting = nil
		w.stats["lost answers"]++
		a.run(answer{sent: true})
	case x < w.faultRate*0.6: // given up; the message is still under way
		a.waiting = nil
		a.run(answer{sent: true})
	default: // refused
		w.drop(m)
		a.waiting = nil
		a.run(answer{})
	}
}

// rollback: a failover loses the newest writes of one shard, or of the record.
func (w *World) rollback() {
	if w.pools == nil && w.rnd.IntN(3) == 0 && len(w.recHist) > 0 {
		w.rec = w.recHist[w.rnd.IntN(len(w.recHist))].clone()
		w.stats["record rollbacks"]++
	} else if len(w.hist) > 0 {
		w.hist[w.rnd.IntN(len(w.hist))]()
		w.stats["rollbacks"]++
	}
}

// remember keeps what a failover may go back to.
func (w *World) remember() {
	w.recHist = append(w.recHist, w.rec.clone())
	if len(w.recHist) > 6 {
		w.recHist = w.recHist[1:]
	}
	rec := w.record()
	l := rec.layouts[w.rnd.IntN(len(rec.layouts))]
	id := l.id(w.rnd.IntN(l.shards))
	if w.q != nil {
		c := w.q.shard(w, id).copy()
		w.hist = append(w.hist, func() { w.q.shards[id] = c.copy() })
	} else {
		c := w.shard(id).copy()
		w.hist = append(w.hist, func() { w.shards[id] = c.copy() })
	}
	if len(w.hist) > 12 {
		w.hist = w.hist[1:]
	}
}

func (f fenceState) copy() fenceState {
	f.copied, f.paused = cloneMap(f.copied), cloneMap(f.paused)
	return f
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func (s *Shard) copy() *Shard {
	c := *s
	c.fenceState = s.fenceState.copy()
	c.parts = map[int]*Part{}
	for k, v := range s.parts {
		p := *v
		p.ents = append([]Entry(nil), v.ents...)
		c.parts[k] = &p
	}
	c.dd = cloneMap(s.dd)
	return &c
}
