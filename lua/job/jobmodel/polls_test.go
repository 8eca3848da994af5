package jobmodel

import (
	"fmt"
	"slices"
	"testing"
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

// scene is a world of one shard and queue in which the test says what happens when.
// bug is a mistake of the rules, or "".
type scene struct {
	*World
	p *process
	f *flight
}

func newScene(bug string) *scene {
	w := NewWorld(0, Setting{Bug: bug, Waiting: true}, func(int) (Store, *Shard) {
		m := NewShard(Start, Keeps, bug)
		return m, m
	})
	w.queues, w.places, w.shards = []string{"a"}, map[string][]int{"a": {0}}, w.shards[:1]
	w.shards[0].quota, w.foreign, w.quiet = Quota{100, 10, 10}, "", true
	s := &scene{World: w, p: w.newProcess()}
	w.processes = []*process{s.p}
	s.f = s.p.lanes[0].flights[0]
	return s
}

// poll is a new one that wants a job of the queue.
func (s *scene) poll() *poll {
	x := &poll{lane: s.p.lanes[0], queues: []string{"a"}, ttr: 1000, count: 1, patient: true}
	s.begin(x, x.plan(s.World))
	return x
}

func (s *scene) publish(count int) {
	g := Publish{Queue: "a", Tries: 3, Payloads: make([]string, count)}
	s.judgePublish(s.shards[0], s.ms(), 0, g, s.shards[0].store.Publish(s.shards[0].quota, []Publish{g})[0], false)
	s.ran(s.shards[0], "publish", nil)
}

func (s *scene) flush() { s.World.flush(s.f) }

func (s *scene) answer() {
	if s.f.reply != nil {
		s.World.answer(s.f)
	}
}

// subscribe lets what is under way end without anything else: subscriptions among it.
func (s *scene) subscribe() {
	for len(s.tasks) > 0 {
		s.runTask()
	}
}

// hear delivers the messages that arrived.
func (s *scene) hear() {
	for len(s.p.inbox) > 0 {
		m := s.p.inbox[0]
		s.p.inbox = s.p.inbox[1:]
		s.p.heard[m.at]++
		s.wake(s.p, m.at, m.count)
	}
}

// parked lets a poll wait, properly.
func (s *scene) parked() *poll {
	x := s.poll()
	s.flush()
	s.answer()
	s.subscribe()
	s.flush()
	s.answer()
	return x
}

// The rules of waiting, each with the moment that needs it. Without the rule a poll
// waits beside a ready job.
func TestEachRuleOfWaitingHasItsMoment(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		bugs []string // without the rule
		play func(*scene)
	}{
		"W2: published after the claim was sent, before the first subscription": {
			[]string{"a poll waits without asking again"},
			func(s *scene) {
				s.poll()
				s.flush() // it finds nothing
				s.publish(1)
				s.answer()
				s.subscribe()
			},
		},
		"W2: subscribed while the claim was under way, published before that": {
			[]string{"a subscription counts from when the answer comes"},
			func(s *scene) {
				s.poll()
				s.flush()
				s.publish(1) // nobody hears it
				s.p.subscribed[place{0, "a"}] = true
				s.answer()
			},
		},
		"W2: heard after the claim was sent": {
			[]string{"a poll waits though something was heard"},
			func(s *scene) {
				s.p.subscribed[place{0, "a"}] = true
				s.poll()
				s.flush()
				s.publish(1)
				s.hear() // nobody waits yet
				s.answer()
			},
		},
		"W3: the first job's message wakes one poll, those behind it send none": {
			[]string{"what is left is ignored", "nobody asks what is left"},
			func(s *scene) {
				s.parked()
				s.parked()
				s.publish(1)
				s.publish(2)
				s.hear()
			},
		},
		"W4: the woken poll's client is gone": {
			[]string{"a wake is not passed on"},
			func(s *scene) {
				x := s.parked()
				s.parked()
				s.publish(1)
				s.hear()
				x.gone = true
			},
		},
		"W5: published while the subscriptions were down": {
			[]string{"a reconnect wakes nobody"},
			func(s *scene) {
				s.parked()
				s.deafen(s.p)
				s.publish(1)
				s.subscribe()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := func(bug string) (err error) {
				defer func() {
					if v := recover(); v != nil {
						err = v.(error)
					}
				}()
				s := newScene(bug)
				row.play(s)
				s.settleDown()
				return nil
			}
			if err := broken(""); err != nil {
				t.Errorf("with the rule: %v", err)
			}
			for _, bug := range row.bugs {
				if err := broken(bug); err == nil {
					t.Errorf("%s: no poll waits beside a ready job", bug)
				}
			}
		})
	}
}
