package jobmodel

import (
	"fmt"
	"maps"
	"slices"
)

func (w *World) runProcess() { w.stepProcess(w.someProcess()) }

// stepProcess does one thing that a process has to do: hear a message, or go on
// with one of its flights. It says whether there was anything.
func (w *World) stepProcess(p *process) bool {
	var busy []*flight
	for _, l := range p.lanes {
		for _, f := range l.flights {
			if f.reply != nil || f.unknown != "" || len(f.asks) > 0 {
				busy = append(busy, f)
			}
		}
	}
	if len(p.inbox) > 0 && (len(busy) == 0 || w.rand.Intn(2) == 0) {
		m := p.inbox[0]
		p.inbox = p.inbox[1:]
		p.heard[m.at]++
		w.wake(p, m.at, m.count)
		return true
	}
	if len(busy) == 0 {
		return false
	}
	switch f := busy[w.rand.Intn(len(busy))]; {
	case f.reply != nil:
		w.answer(f)
	case f.unknown != "" && !(w.bug == "a lane claims before it reverts" && len(f.asks) > 0):
		if !w.once(2) { // else the store is still away
			w.revert(f)
		}
	default:
		w.flush(f)
	}
	return true
}

// flush sends the asks of a flight as one call.
func (w *World) flush(f *flight) {
	p, s := f.lane.process, w.shards[f.shard]
	asks := f.asks
	f.asks = nil
	var asking []*poll
	var claims []Claim
	for _, x := range asks {
		if x.gone {
			w.leave(x)
			continue
		}
		step := x.steps[x.next]
		for _, q := range step.queues {
			at := place{f.shard, q}
			x.heard[at] = p.heard[at]
			x.listens = x.listens && p.subscribed[at]
		}
		asking = append(asking, x)
		claims = append(claims, Claim{x.ttr, x.count - len(x.got), step.queues})
	}
	if len(asking) == 0 {
		return
	}
	if w.once(24) {
		w.Count["claim not run"]++
		f.asks = append(asking, f.asks...)
		return
	}
	// What is left matters where somebody of this process waits already: who
	// begins to wait later has asked later.
	reportLeft := map[string]bool{}
	for _, x := range p.waiting {
		for at := range x.heard {
			if at.shard == f.shard {
				reportLeft[at.queue] = w.bug != "nobody asks what is left"
			}
		}
	}
	f.lane.calls++
	token := fmt.Sprint(f.lane.calls)
	maxBytes := 1 << 20
	if w.rand.Intn(6) == 0 {
		maxBytes = 20 + w.rand.Intn(80)
	}
	r := s.store.Claim(f.lane.name, token, maxBytes, claims, reportLeft)
	f.call = f.lane.name + "/" + token
	w.judgeClaim(s, f.call, asking, r)
	w.judgeRest(s, maxBytes, claims, r)
	w.ran(s, "claim", func(t *truth) bool { return t.expired(r.Now) })
	if !w.once(24) {
		f.asking, f.reply = asking, &r
		return
	}
	w.Count["claim unknown"]++
	f.unknown, f.queues = token, slices.Sorted(maps.Keys(r.Left))
	for _, x := range asking {
		if len(x.got) > 0 { // what came before goes out at once
			w.finish(x)
		} else {
			f.asks = append(f.asks, x)
		}
	}
}

// revert takes a claim with an unknown outcome back.
func (w *World) revert(f *flight) {
	s := w.shards[f.shard]
	call := f.lane.name + "/" + f.unknown
	leased := maps.Clone(s.model.Lease)
	s.store.Revert(f.lane.name, f.unknown, f.queues)
	for ref := range leased {
		if _, still := s.model.Lease[ref]; still {
			continue
		}
		t := s.jobs[ref]
		if t.holder != call {
			w.bad("revert of %s took %v from %s", call, ref, t.holder)
		}
		t.claims--
		t.reordered, t.poll = true, nil
	}
	f.unknown = ""
	w.ran(s, "revert", nil)
}

// answer gives the polls of a call what it brought.
func (w *World) answer(f *flight) {
	r, asking := f.reply, f.asking
	f.reply, f.asking = nil, nil
	for i, x := range asking {
		for _, c := range r.Jobs[i] {
			x.got = append(x.got, got{f.shard, f.call, r.Now + x.ttr, c})
		}
		for _, q := range x.steps[x.next].queues {
			x.cut = x.cut || r.Left[q] > 0 && len(r.Jobs[i]) == 0
		}
		x.next++
		switch {
		case x.gone:
			w.leave(x)
		case len(x.got) >= x.count || x.next == len(x.steps):
			w.finish(x)
		default:
			w.ask(x)
		}
	}
	if w.bug == "what is left is ignored" {
		return
	}
	for _, q := range slices.Sorted(maps.Keys(r.Left)) {
		w.wake(f.lane.process, place{f.shard, q}, max(0, r.Left[q]))
	}
}

// finish answers a poll, or lets it wait.
func (w *World) finish(x *poll) {
	if w.bug != "queues that were not asked are forgotten" {
		w.passOn(x)
	}
	switch {
	case len(x.got) > 0:
		w.Count["delivered"]++
		for _, g := range x.got {
			w.consume(g)
		}
	case x.patient && x.cut && w.bug != "a poll waits behind a full answer":
		w.begin(x, x.plan(w))
	case x.patient:
		w.wait(x)
	}
}

// leave ends a poll whose client is gone, and gives its jobs back.
func (w *World) leave(x *poll) {
	w.passOn(x)
	if len(x.got) == 0 || w.bug == "jobs of a client that went away are not given back" {
		return
	}
	w.Count["given back"]++
	back, calls := map[int][]Settle{}, map[int][]string{}
	for _, g := range x.got {
		back[g.shard] = append(back[g.shard], Settle{g.Queue, g.Job.Seq, g.Attempt, "requeue", g.deadline, ""})
		calls[g.shard] = append(calls[g.shard], g.call)
	}
	for _, n := range slices.Sorted(maps.Keys(back)) {
		w.spawn(func() bool {
			if w.once(10) {
				return false // it did not run; again
			}
			w.settle(w.shards[n], back[n], calls[n])
			return !w.once(4) // else the answer was lost; again
		})
	}
}

// judgeClaim holds what a claim handed out against what is known of each job.
func (w *World) judgeClaim(s *shard, call string, asking []*poll, r ClaimReply) {
	now := w.ms()
	for i, jobs := range r.Jobs {
		for _, c := range jobs {
			ref := c.ref()
			t := s.jobs[ref]
			if t == nil {
				w.bad("claim: nobody published %v", ref)
			}
			t.claims++
			t.holder, t.poll, t.until = call, asking[i], r.Now+asking[i].ttr
			t.handed[call] = t.respawns
			switch {
			case t.acked || t.gone:
				w.bad("claim: %v is acked or gone", ref)
			case now < t.due:
				w.bad("claim: %v is %d ms before its time", ref, t.due-now)
			case t.expired(now):
				w.bad("claim: %v expired %d ms ago", ref, now-t.ends)
			case t.claims > t.tries:
				w.bad("claim: %v is handed out %d times, it has %d tries", ref, t.claims, t.tries)
			case c.Attempt != t.claims:
				w.bad("claim: %v says attempt %d, it is %d", ref, c.Attempt, t.claims)
			}
			if !t.delivered && !t.reordered {
				if t.ref.Seq < s.newest[ref.Queue] {
					w.bad("claim: %v comes after %d", ref, s.newest[ref.Queue])
				}
				s.newest[ref.Queue] = ref.Seq
			}
			t.delivered = true
			w.judgeLimit(s, c)
		}
	}
}

// judgeRest wants a claim that got less than it asked for to leave no job behind,
// unless the answer was full.
func (w *World) judgeRest(s *shard, maxBytes int, claims []Claim, r ClaimReply) {
	bytes := 0
	for i, jobs := range r.Jobs {
		for _, c := range jobs {
			if s.model.Paused[c.Queue] != "" {
				w.bad("claim: %s is paused and gave %v", c.Queue, c.ref())
			}
			bytes += len(c.Job.Record())
		}
		if len(jobs) == claims[i].Count || bytes >= maxBytes {
			continue
		}
		for _, name := range claims[i].Queues {
			q := s.model.queue(name)
			for _, seq := range q.Ready {
				if q.Jobs[seq] != nil && s.model.Paused[name] == "" && !w.full(s, name) {
					w.bad("claim: one for %d jobs got %d though %d of %s is ready", claims[i].Count, len(jobs), seq, name)
				}
			}
		}
	}
}
