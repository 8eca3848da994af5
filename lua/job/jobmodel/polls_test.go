package jobmodel

import (
	"fmt"
	"slices"
)

// A place is a queue of a shard: what a channel is for.
type place struct {
	shard int
	queue string
}

// process is one server, with its subscriptions, lanes and long polls.
type process struct {
	n          int
	alive      bool
	subscribed map[place]bool
	deaf       bool // the connection of its subscriptions is down
	inbox      []heard
	heard      map[place]int // how often something was heard
	waiting    []*poll
	lanes      []*lane
}

type heard struct {
	at    place
	count int
}

// lane makes one call of claim at a time to each shard.
type lane struct {
	name    string
	process *process
	calls   int
	flights []*flight // by shard
}

// flight is the calls of one lane to one shard.
type flight struct {
	lane    *lane
	shard   int
	asks    []*poll // for the next flush
	asking  []*poll
	reply   *ClaimReply
	call    string   // that reply answers, as truth.holder says it
	unknown string   // token of a claim whose outcome nobody knows
	queues  []string // that it named
}

// poll is one request for jobs, from its arrival to its answer.
type poll struct {
	lane    *lane
	queues  []string // the most wanted first
	ttr     int64
	count   int
	patient bool // it waits
	gone    bool // its client is

	steps   []step // one shard after the other
	next    int
	got     []got
	heard   map[place]int // of the process, when the claim was sent
	listens bool          // all its places were subscribed when their claims were sent
	woken   bool
	cut     bool // it got nothing, for the answer was full before its turn
}

type step struct {
	shard  int
	queues []string
}

// got is a job as a client has it, with the call of claim that handed it out and the
// deadline of its lease.
type got struct {
	shard    int
	call     string
	deadline int64
	Claimed
}

func (w *World) newProcess() *process {
	w.names++
	p := &process{n: w.names, alive: true, subscribed: map[place]bool{}, heard: map[place]int{}}
	for i := range 1 + w.rand.Intn(2) {
		l := &lane{name: fmt.Sprintf("%d-%d", p.n, i), process: p}
		for n := range w.shards {
			l.flights = append(l.flights, &flight{lane: l, shard: n})
		}
		p.lanes = append(p.lanes, l)
	}
	return p
}

func (w *World) someProcess() *process { return w.processes[w.rand.Intn(len(w.processes))] }

func (w *World) spawnPoll() {
	p := w.someProcess()
	queues := slices.Clone(w.queues)
	w.rand.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
	x := &poll{
		lane: p.lanes[w.rand.Intn(len(p.lanes))], queues: queues[:1+w.rand.Intn(len(queues))],
		ttr: int64(1 + w.rand.Intn(3000)), count: 1 + w.rand.Intn(3), patient: w.rand.Intn(4) > 0,
	}
	if w.waiting {
		x.count, x.patient = 1, true
	}
	w.begin(x, x.plan(w))
}

// plan is the shards that may have jobs for a poll, with its queues in each.
func (x *poll) plan(w *World) []step {
	var steps []step
	for _, q := range x.queues {
		for _, n := range w.places[q] {
			i := slices.IndexFunc(steps, func(s step) bool { return s.shard == n })
			if i < 0 {
				i = len(steps)
				steps = append(steps, step{shard: n})
			}
			steps[i].queues = append(steps[i].queues, q)
		}
	}
	return steps
}

// begin lets a poll ask everywhere.
func (w *World) begin(x *poll, steps []step) {
	x.steps, x.next, x.got, x.heard, x.listens, x.cut = steps, 0, nil, map[place]int{}, true, false
	w.ask(x)
}

func (w *World) ask(x *poll) {
	f := x.lane.flights[x.steps[x.next].shard]
	f.asks = append(f.asks, x)
}

// places are all that a poll wants.
func (x *poll) places() []place {
	var all []place
	for at := range x.heard {
		all = append(all, at)
	}
	return all
}

// wake wakes up to count of the polls that wait for a place.
func (w *World) wake(p *process, at place, count int) {
	for _, x := range slices.Clone(p.waiting) {
		if _, wants := x.heard[at]; !wants || count == 0 {
			continue
		}
		p.waiting = slices.DeleteFunc(p.waiting, func(y *poll) bool { return y == x })
		count--
		x.woken = true
		w.trace("process %d wakes %p for %v", p.n, x, at)
		if !w.oneShard {
			w.begin(x, x.plan(w))
			continue
		}
		// What it knows of the other shards still holds: nothing was heard since.
		steps := x.plan(w)
		i := slices.IndexFunc(steps, func(s step) bool { return s.shard == at.shard })
		x.steps, x.next, x.got, x.cut = steps[i:i+1], 0, nil, false
		w.ask(x)
	}
}

// passOn wakes another poll in place of one that was woken and does not ask
// (all its queues) after all.
func (w *World) passOn(x *poll) {
	if !x.woken || w.bug == "a wake is not passed on" {
		return
	}
	for _, s := range x.steps[x.next:] {
		for _, q := range s.queues {
			w.wake(x.lane.process, place{s.shard, q}, 1)
		}
	}
}

// wait parks a poll that found nothing, or lets it ask again.
func (w *World) wait(x *poll) {
	p := x.lane.process
	listens := x.listens
	if w.bug == "a subscription counts from when the answer comes" {
		listens = true
		for at := range x.heard {
			listens = listens && p.subscribed[at]
		}
	}
	if !listens {
		subscribe := func() bool {
			for at := range x.heard {
				p.subscribed[at] = true
			}
			if p.alive && w.bug != "a poll waits without asking again" {
				w.begin(x, x.plan(w))
			}
			return true
		}
		if w.bug == "a poll waits without asking again" {
			subscribe()
		} else {
			w.spawn(subscribe)
			return
		}
	}
	for at, n := range x.heard {
		if p.heard[at] != n && w.bug != "a poll waits though something was heard" {
			w.begin(x, x.plan(w))
			return
		}
	}
	w.trace("process %d: %p waits for %v", p.n, x, x.queues)
	x.woken = false
	p.waiting = append(p.waiting, x)
	w.Count["waiting"]++
}

// clientGoes lets the client of some poll go away. A process notices it at once
// while the poll waits, or when it next looks at the poll.
func (w *World) clientGoes() {
	p := w.someProcess()
	all := slices.Clone(p.waiting)
	for _, l := range p.lanes {
		for _, f := range l.flights {
			all = append(append(all, f.asks...), f.asking...)
		}
	}
	if len(all) == 0 {
		return
	}
	x := all[w.rand.Intn(len(all))]
	x.gone = true
	w.trace("the client of %p is gone", x)
	w.Count["client gone"]++
	if w.rand.Intn(2) == 0 {
		p.waiting = slices.DeleteFunc(p.waiting, func(y *poll) bool { return y == x })
	}
}

// pollEnds lets the time of a waiting poll end.
func (w *World) pollEnds() {
	if p := w.someProcess(); len(p.waiting) > 0 {
		i := w.rand.Intn(len(p.waiting))
		w.trace("the time of %p is over", p.waiting[i])
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
}
