package layoutmodel

// ---- drain: looks at one shard, asks the older homes, claims several, writes, settles ----

func drainer(a *Actor) {
	w := a.w
	for {
		if w.rnd.IntN(12) == 0 || w.quiet {
			readRecord(a)
		}
		var open []Layout
		for _, l := range a.rec.layouts {
			if !l.closed || w.rollbacks {
				open = append(open, l)
			}
		}
		l := open[w.rnd.IntN(len(open))]
		id := l.id(w.rnd.IntN(l.shards))
		due, ok, _ := call(a, func() []int { return w.shard(id).dueNow() })
		if !ok || len(due) == 0 {
			a.pass()
			continue
		}
		w.rnd.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
		names, waiting, ok := askOlder(a, l, due[:min(len(due), 3)])
		if len(waiting) > 0 && ok {
			w.stats["held back"]++
			call(a, func() bool { w.shard(id).putOff(waiting); return true })
		}
		if !ok || len(names) == 0 {
			a.pass()
			continue
		}
		w.token++
		token, claimedAt := w.token, 0
		leases, ok, maybe := call(a, func() []Claimed { claimedAt = w.step; return w.shard(id).claim(names, token) })
		if !ok {
			if maybe {
				call(a, func() bool {
					for _, p := range names {
						w.shard(id).release(p, token, 0)
					}
					return true
				})
			}
			continue
		}
		for _, c := range leases {
			work(a, id, c, token, claimedAt)
		}
		if len(leases) == 0 {
			a.pass()
		}
	}
}

// askOlder keeps the names of which no older home has anything left.
func askOlder(a *Actor, l Layout, names []int) (free, waiting []int, ok bool) {
	w := a.w
	older := a.rec.older(l.n)
	if w.bug("claim-unasked") {
		older = nil
	}
	free = names
	for _, o := range older {
		byHome := map[ID][]int{}
		for _, p := range free {
			byHome[o.home(p)] = append(byHome[o.home(p)], p)
		}
		free = nil
		for i := range o.shards {
			id := o.id(i)
			some := byHome[id]
			if len(some) == 0 {
				continue
			}
			mine := a.rec.clone()
			type res struct {
				g []bool
				f Fenced
			}
			r, ok, _ := call(a, func() res { g, f := w.shard(id).gone(mine, some); return res{g, f} })
			if !ok || a.learn(r.f.rec) {
				return nil, nil, false
			}
			for i, p := range some {
				if r.g[i] {
					free = append(free, p)
				} else {
					waiting = append(waiting, p)
				}
			}
		}
	}
	return free, waiting, true
}

func work(a *Actor, id ID, c Claimed, token, claimedAt int) {
	w := a.w
	for range w.rnd.IntN(3) {
		a.pass() // the sink is slow
	}
	if w.clock >= c.until-1 {
		return // too late to write
	}
	w.show(c.p, c.from, c.ents, claimedAt)
	home := id
	if w.bug("settle-at-new-home") {
		home = a.rec.current().home(c.p)
	}
	done, class := len(c.ents), "delivered"
	switch w.rnd.IntN(8) {
	case 0:
		if !w.quiet { // the sink failed
			call(a, func() bool { w.shard(home).release(c.p, token, w.rnd.IntN(6)); return true })
			return
		}
	case 1:
		class = "dead"
	case 2:
		done = (done + 1) / 2
	}
	for lo := 0; lo < len(c.ents); lo += done {
		hi := min(lo+done, len(c.ents))
		ended := true
		for range 4 {
			r, ok, _ := call(a, func() string {
				return w.shard(home).commit(c.p, token, c.from+lo, c.from+hi, class, c.ents[lo:hi])
			})
			if ok {
				ended = r == "gone" || r == "refused"
				break
			}
		}
		if ended {
			return
		}
	}
}
