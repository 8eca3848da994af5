package phpmodel

// phpWorker is a worker of PHP's; it may die between any two of its commands.
type phpWorker struct {
	skew     int64 // s that its clock is ahead
	payload  string
	reserved string
	step     string // "", migrated, moved, popped, running, releasing
	removed  bool   // releasing: its reservation was still there
	until    int64  // of its reservation, ms
}

// php is one command of a worker.
func (w *World) php(p *phpWorker) {
	if p.step != "" && w.Intn(12) == 0 {
		w.dies(p)
		return
	}
	clock := w.q.now()/1000 + p.skew
	switch p.step {
	case "":
		w.s.phpMigrate("delayed", clock)
		p.step = "migrated"
	case "migrated":
		if w.steal {
			w.moves(false, func() { w.s.phpMigrate("reserved", clock) })
		}
		p.step = "moved"
		if w.q.flavor.atomic || w.Intn(3) == 0 {
			w.phpPops(p, clock)
		}
	case "moved":
		w.phpPops(p, clock)
	case "popped":
		w.reserve(p, clock)
	case "running":
		n := numberOf(p.payload)
		p.step, p.until = "", 0
		switch w.Intn(6) {
		case 0, 1, 2:
			if w.removes(p) {
				w.ended[n]++
			}
			w.count["PHP done"]++
		case 3, 4:
			p.step, p.removed = "releasing", w.removes(p)
			if p.removed {
				w.inPHP[n]++
			}
			if w.q.flavor.atomic {
				w.release(p, clock)
			}
		default: // the job forgets to delete itself
			w.count["PHP forgot"]++
		}
	case "releasing":
		w.release(p, clock)
	}
}

func (w *World) phpPops(p *phpWorker, clock int64) {
	p.step = ""
	payload, ok := w.s.phpPop()
	if !ok {
		return
	}
	n := numberOf(payload)
	if !readable(payload) {
		w.lost[n]++
		w.count["PHP lost what it cannot read"]++
		return
	}
	w.delivered(payload, nil)
	p.payload, p.reserved = payload, payload
	if !w.q.flavor.onRelease {
		p.reserved = counted(payload, w.q.flavor.first)
	}
	w.inPHP[n]++
	p.step = "popped"
	if w.q.flavor.atomic {
		w.reserve(p, clock)
	}
}

func (w *World) reserve(p *phpWorker, clock int64) {
	n := numberOf(p.payload)
	w.inPHP[n]--
	p.until = (clock + int64(2+w.Intn(6))) * 1000
	w.loses(p)
	for _, l := range w.lanes {
		for _, d := range l.hold {
			if r, there := w.q.held[d.seq]; there && r.member == p.reserved {
				d.taken = true
			}
		}
	}
	if !w.s.phpAdd("reserved", p.reserved, p.until/1000) {
		w.lost[n]++
		w.twin[n] = true
		w.count["PHP collapsed twins"]++
	}
	p.step = "running"
}

// loses: of two workers with equal payloads, the other has no reservation any more.
func (w *World) loses(p *phpWorker) {
	for _, other := range w.workers {
		if other != p && other.reserved == p.reserved {
			other.until = 0
		}
	}
}

// removes is the ZREM of a worker.
func (w *World) removes(p *phpWorker) bool {
	w.loses(p)
	return w.s.phpRemove(p.reserved)
}

func (w *World) release(p *phpWorker, clock int64) {
	n := numberOf(p.payload)
	p.until = 0
	back := p.reserved
	if w.q.flavor.onRelease {
		back = counted(p.payload, w.q.flavor.first)
		w.counted[n]++
	}
	at := clock + int64(w.Intn(4))
	added := w.s.phpAdd("delayed", back, at)
	if p.removed {
		w.inPHP[n]--
	}
	switch {
	case p.removed && !added:
		w.lost[n]++
	case !p.removed && added:
		w.doubled[n]++ // its reservation was gone, and it adds the payload all the same
		w.twin[n] = true
		w.count["PHP doubled"]++
	}
	w.due[n] = at * 1000
	p.step = ""
}

func (w *World) dies(p *phpWorker) {
	if p.step == "popped" || p.step == "releasing" && p.removed {
		n := numberOf(p.payload)
		w.inPHP[n]--
		w.lost[n]++
		w.count["PHP lost when it died"]++
	}
	*p = phpWorker{skew: p.skew}
}
