package phpmodel

import "fmt"

// What processes of ours do with lanes and leases, and what must come of it.

// delivered checks what is handed out; to is nil where PHP has it.
func (w *World) delivered(p string, to *delivery) {
	n := numberOf(p)
	if want := w.data[n]; dataIn.FindString(p) != want {
		broken("I6: the data of %d is now %s", n, p)
	}
	if !w.q.flavor.onRelease && (to == nil || w.q.held[to.seq].digits > 0) {
		defer func() { w.counted[n]++ }()
	}
	if w.twin[n] {
		return
	}
	f, ok := attemptsOf(p)
	if got := f.or(w.q.flavor.first) - w.q.flavor.first; ok && got != w.counted[n] {
		broken("I4: payload %d is delivered with %d attempts, %d were counted", n, got, w.counted[n])
	}
	if at := w.due[n]; !w.skewed() && w.latest < at {
		broken("I5: payload %d is due at %d, delivered at %d", n, at, w.latest)
	}
	delete(w.due, n)
	for _, l := range w.lanes {
		for _, d := range l.hold {
			if d != to && d.n == n && !d.ended && !w.excused(d) && d.until > w.latest {
				broken("I3: payload %d is leased until %d, and handed out again at %d", n, d.until, w.latest)
			}
		}
	}
}

// skewed: a clock of PHP's differs from the store's.
func (w *World) skewed() bool {
	for _, worker := range w.workers {
		if worker.skew != 0 {
			return true
		}
	}
	return w.count["skewed worker died"] > 0
}

// excused: the lease may be broken by a clock of PHP's that is ahead, or by a twin.
func (w *World) excused(d *delivery) bool { return w.skewed() || w.twin[d.n] }

func (w *World) claim(l *lane) {
	if l.unknown != "" {
		if w.bug != "an unknown claim is not reverted" {
			w.revert(l)
		}
		for _, seq := range w.q.outs[l.name].seqs {
			if _, holds := w.q.holds(seq); holds && w.q.outs[l.name].token == l.unknown {
				broken("the unknown claim %s still holds %d", l.unknown, seq)
			}
		}
		l.unknown = ""
	}
	w.tokens++
	token := fmt.Sprint("t", w.tokens)
	ttr := []int64{1000, 2000, 3500, 10000}[w.Intn(4)]
	if w.Intn(4) == 0 {
		ttr -= (w.q.now() + ttr) % 1000 // it would end on a whole second
		ttr += 1000
	}
	fate := w.Intn(12)
	if fate == 0 {
		w.count["request lost"]++
		l.unknown = token
		return
	}
	var got claimed
	count := 1 + w.Intn(3)
	w.moves(true, func() { got = w.s.claim(l.name, token, ttr, count, w.steal) })
	w.afterMoves()
	for _, h := range got.jobs {
		d := &delivery{handed: h, n: numberOf(h.payload), until: h.deadline}
		if h.before < 0 && fate != 1 {
			if w.Intn(8) == 0 {
				w.count["process died before it counted"]++
				continue
			}
			if !w.counts(d) {
				continue
			}
		}
		if f, _ := attemptsOf(h.payload); d.before >= 0 && f.or(w.q.flavor.first) != d.before {
			broken("I4: payload %d says %d attempts, the claim %d", d.n, f.value, d.before)
		}
		w.delivered(h.payload, d)
		l.hold = append(l.hold, d)
		w.count["claimed"]++
		if fate == 1 {
			d.ended = true
			continue
		}
		if most := w.mostTries(h.payload); most > 0 && w.delivery(d) > most { // a crash used its tries up
			w.end(d, "unfit", 0)
		}
	}
	if fate == 1 {
		l.unknown = token
		w.count["answer lost"]++
	}
}

// counts does what a claimer does whose claim did not find the attempts of a payload. false: it is no job for it.
func (w *World) counts(d *delivery) bool {
	f, ok := attemptsOf(d.payload)
	late := d.before == -2
	d.before = f.or(w.q.flavor.first)
	count := settling{d.seq, "append", d.before}
	switch {
	case !ok:
		count = settling{d.seq, "unreadable", 0}
	case f.to > 0:
		count = settling{d.seq, "digits", int64(f.from) + 1}
	}
	for range 1 + w.Intn(2) { // it repeats where the answer was lost
		w.s.settle(count)
	}
	w.count[count.verb]++
	if ok && late {
		w.count["counted late"]++
		w.end(d, "release", 0)
	}
	return ok && !late
}

// delivery is the number of a delivery, 1 the first.
func (w *World) delivery(d *delivery) int64 { return d.before + 1 - w.q.flavor.first }

// afterMoves: leases that lapsed in a claim are over.
func (w *World) afterMoves() {
	for _, l := range w.lanes {
		for _, d := range l.hold {
			if _, there := w.q.leases[d.seq]; there || d.ended {
				continue
			}
			if d.until > w.latest {
				broken("I3: the lease of %d was taken at %d, it runs until %d", d.n, w.latest, d.until)
			}
			d.ended = true
		}
	}
}

func (w *World) revert(l *lane) {
	o := w.q.outs[l.name]
	for _, seq := range o.seqs { // what it will take back
		if r, holds := w.q.holds(seq); holds && o.token == l.unknown {
			if r.digits > 0 {
				w.uncount(numberOf(r.member))
			}
			w.count["reverted"]++
		}
	}
	w.s.revert(l.name, l.unknown)
}

// uncount: a delivery was taken back.
func (w *World) uncount(n int) {
	if !w.q.flavor.onRelease {
		w.counted[n]--
	}
}

// moves runs what may move lapsed reservations, which counts attempts where that is done late. ours:
// a claim does, which counts none of a lease whose attempts nobody has found.
func (w *World) moves(ours bool, run func()) {
	before := map[string]bool{}
	for m := range w.q.reserved {
		before[m] = true
	}
	for seq, r := range w.q.held {
		if _, holds := w.q.holds(seq); holds && r.digits == 0 && ours {
			delete(before, r.member)
		}
	}
	run()
	for m := range before {
		if _, there := w.q.reserved[m]; !there && w.q.flavor.onRelease {
			w.counted[numberOf(m)]++
		}
	}
}

// settle is a worker of ours that ends one of its deliveries, perhaps late, perhaps twice.
func (w *World) settle(l *lane) {
	var open []*delivery
	for _, d := range l.hold {
		if !d.ended {
			open = append(open, d)
		}
	}
	if len(open) == 0 {
		return
	}
	d := open[w.Intn(len(open))]
	if len(open) > 1 && w.Intn(6) == 0 {
		w.requeue(open)
		return
	}
	verb := []string{"ack", "ack", "ack", "nack", "nack", "release", "requeue", "touch", "bury"}[w.Intn(9)]
	ms := int64(0)
	if (verb == "nack" || verb == "release") && w.Intn(2) == 0 || verb == "touch" {
		ms = int64(500 + w.Intn(5000))
		if w.Intn(4) == 0 {
			ms += 1000 - (w.q.now()+ms)%1000
		}
	}
	w.end(d, verb, ms)
	if w.Intn(6) == 0 && verb != "touch" { // the answer was lost, and the worker repeats
		if s := w.s.settle(settling{d.seq, verb, ms})[0]; s != gone {
			broken("I8: %s of delivery %d changes something twice: %d", verb, d.seq, s)
		}
	}
}

// requeue gives several back in one call, as a worker does that stops; they keep their order.
func (w *World) requeue(open []*delivery) {
	var jobs []settling
	for _, d := range open {
		jobs = append(jobs, settling{d.seq, "requeue", 0})
	}
	states := w.s.settle(jobs...)
	at := 0
	for i, d := range open {
		d.ended = true
		if states[i] != readyAgain {
			continue
		}
		w.uncount(d.n)
		if at >= len(w.q.ready) || numberOf(w.q.ready[at]) != d.n {
			broken("requeued payload %d is not at place %d", d.n, at)
		}
		at++
	}
}

func (w *World) end(d *delivery, verb string, ms int64) {
	if last := w.mostTries(d.payload); verb == "nack" && last > 0 && w.delivery(d) >= last {
		verb = "exhaust"
	}
	s := w.s.settle(settling{d.seq, verb, ms})[0]
	if s == gone && d.until > w.latest && !w.excused(d) {
		broken("I3: the lease of payload %d runs until %d and is gone at %d", d.n, d.until, w.latest)
	}
	if d.taken && s != gone {
		broken("I3: payload %d was reserved by PHP, and %s changes it", d.n, verb)
	}
	switch s {
	case leased:
		d.until = w.q.leases[d.seq]
		return
	case acked:
		w.ended[d.n]++
	case readyAgain, delayedAgain:
		if verb == "requeue" {
			w.uncount(d.n)
		} else if w.q.flavor.onRelease {
			w.counted[d.n]++
		}
		if s == delayedAgain {
			w.due[d.n] = w.q.now() + ms
		}
	case deadNow:
		w.count["dead"]++
	}
	d.ended = true
}
