package jobmodel

import "testing"

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
	s.judgePublish(s.shards[0], s.ms(), g, s.shards[0].store.Publish(s.shards[0].quota, []Publish{g})[0], false)
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
