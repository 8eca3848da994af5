package jobmodel

import (
	"fmt"
	"maps"
	"slices"
)

// lane makes one call of claim after the other.
type lane struct {
	name    string
	calls   int
	unknown string   // token of a claim whose outcome nobody knows
	queues  []string // that it named
}

// got is a job as a client has it, with the call of claim that handed it out and the
// deadline of its lease.
type got struct {
	call     string
	deadline int64
	Claimed
}

func (w *World) newLane() *lane {
	w.names++
	return &lane{name: fmt.Sprint(w.names)}
}

// claim makes a lane's next call for some clients. One whose outcome nobody knows is taken back first.
func (w *World) claim() {
	l := w.lanes[w.rand.Intn(len(w.lanes))]
	if l.unknown != "" {
		if w.rand.Intn(3) == 0 { // else the store is still away
			w.revert(l)
		}
		return
	}
	var claims []Claim
	reportLeft := map[string]bool{}
	for range 1 + w.rand.Intn(3) {
		queues := slices.Clone(w.queues)
		w.rand.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
		queues = queues[:1+w.rand.Intn(len(queues))]
		claims = append(claims, Claim{int64(1 + w.rand.Intn(3000)), 1 + w.rand.Intn(3), queues})
		for _, q := range queues {
			reportLeft[q] = w.rand.Intn(2) == 0
		}
	}
	maxBytes := 1 << 20
	if w.rand.Intn(6) == 0 {
		maxBytes = 20 + w.rand.Intn(80)
	}
	l.calls++
	token := fmt.Sprint(l.calls)
	if w.once(12) {
		w.Count["claim unknown"]++
		l.unknown, l.queues = token, slices.Sorted(maps.Keys(reportLeft))
		if w.rand.Intn(2) == 0 {
			return // it did not run
		}
	}
	call := l.name + "/" + token
	r := w.store.Claim(l.name, token, maxBytes, claims, reportLeft)
	w.judgeClaim(call, claims, r)
	w.judgeRest(maxBytes, claims, r)
	w.ran("claim", func(t *truth) bool { return t.expired(r.Now) })
	if l.unknown != "" {
		return
	}
	for q, report := range reportLeft {
		if report && r.Left[q] <= 0 {
			w.asleep[q] = true
		}
	}
	for i, jobs := range r.Jobs {
		var mine []got
		for _, c := range jobs {
			mine = append(mine, got{call, r.Now + claims[i].TTR, c})
		}
		if len(mine) > 0 && w.once(10) {
			w.giveBack(mine)
			continue
		}
		for _, g := range mine {
			w.consume(g)
		}
	}
}

// giveBack gives the jobs of a client back that went away before it had them.
func (w *World) giveBack(jobs []got) {
	var back []Settle
	var calls []string
	for _, g := range jobs {
		back = append(back, Settle{g.Queue, g.Job.Seq, g.Attempt, "requeue", g.deadline, ""})
		calls = append(calls, g.call)
	}
	w.Count["given back"]++
	w.spawn(func() bool {
		w.settle(back, calls)
		return !w.once(4) // else the answer was lost; again
	})
}

// revert takes a claim with an unknown outcome back.
func (w *World) revert(l *lane) {
	call := l.name + "/" + l.unknown
	leased := maps.Clone(w.model.Lease)
	w.store.Revert(l.name, l.unknown, l.queues)
	for ref := range leased {
		if _, still := w.model.Lease[ref]; still {
			continue
		}
		t := w.jobs[ref]
		if t.holder != call {
			w.bad("revert of %s took %v from %s", call, ref, t.holder)
		}
		t.claims--
		t.reordered = true
	}
	l.unknown = ""
	w.ran("revert", nil)
}

// judgeClaim holds what a claim handed out against what is known of each job.
func (w *World) judgeClaim(call string, claims []Claim, r ClaimReply) {
	now := w.ms()
	for i, jobs := range r.Jobs {
		for _, c := range jobs {
			ref := c.ref()
			t := w.jobs[ref]
			if t == nil {
				w.bad("claim: nobody published %v", ref)
			}
			t.claims++
			t.holder, t.until = call, r.Now+claims[i].TTR
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
				if t.ref.Seq < w.newest[ref.Queue] {
					w.bad("claim: %v comes after %d", ref, w.newest[ref.Queue])
				}
				w.newest[ref.Queue] = ref.Seq
			}
			t.delivered = true
			w.judgeLimit(c)
		}
	}
}

// judgeRest wants a claim that got less than it asked for to leave no job behind,
// unless the answer was full.
func (w *World) judgeRest(maxBytes int, claims []Claim, r ClaimReply) {
	bytes := 0
	for i, jobs := range r.Jobs {
		for _, c := range jobs {
			if w.model.Paused[c.Queue] != "" {
				w.bad("claim: %s is paused and gave %v", c.Queue, c.ref())
			}
			bytes += len(c.Job.Record())
		}
		if len(jobs) == claims[i].Count || bytes >= maxBytes {
			continue
		}
		for _, name := range claims[i].Queues {
			if seq := w.claimable(name); seq > 0 {
				w.bad("claim: one for %d jobs got %d though %d of %s is ready", claims[i].Count, len(jobs), seq, name)
			}
		}
	}
}

// claimable is a ready job of a queue that a claim could get now, 0 without one.
func (w *World) claimable(queue string) int64 {
	if w.model.Paused[queue] != "" || w.full(queue) {
		return 0
	}
	q := w.model.queue(queue)
	for _, seq := range q.Ready {
		if q.Jobs[seq] != nil {
			return seq
		}
	}
	return 0
}
