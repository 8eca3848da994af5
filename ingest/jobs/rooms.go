package jobs

import (
	"github.com/spillway-io/spillway/partition/job"
)

// roomKey names a queue of a shard.
type roomKey struct {
	namespace string
	shard     int
	queue     string
}

// room is where polls wait for one queue of one shard. There is one while a poll wants the
// queue. The engine's lock guards it.
type room struct {
	key        roomKey
	ns         *job.Namespace // that Want was called with
	wants      int            // polls that want the queue
	subscribed bool           // its wakes are heard
	heard      uint64         // how often something was heard, or may have been missed
	first      *seat          // the polls that wait, oldest first
	last       *seat
}

// seat is a poll's place in a room.
type seat struct {
	poll       *poll
	room       *room
	next, prev *seat
	waits      bool // it is in the room's list
	// What was known of the room when the poll's last claim was sent.
	subscribed bool
	heard      uint64
}

func (s *seat) sit() {
	r := s.room
	s.waits, s.prev = true, r.last
	if r.last == nil {
		r.first = s
	} else {
		r.last.next = s
	}
	r.last = s
}

func (s *seat) stand() {
	if !s.waits {
		return
	}
	r := s.room
	if s.prev == nil {
		r.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		r.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.waits, s.next, s.prev = false, nil, nil
}

// join gives a poll a seat in the room of each queue it wants, and returns the rooms that
// are new. The caller calls Want for these, without the lock.
func (e *Engine) join(p *poll) (fresh []*room) {
	n := 0
	for _, s := range p.steps {
		n += len(s.queues)
	}
	p.seats = make([]seat, 0, n)
	for _, s := range p.steps {
		for _, queue := range s.queues {
			key := roomKey{p.ns.Name, s.shard, queue}
			r := e.rooms[key]
			if r == nil {
				r = &room{key: key, ns: p.ns}
				e.rooms[key] = r
				fresh = append(fresh, r)
			}
			r.wants++
			p.seats = append(p.seats, seat{poll: p, room: r})
		}
	}
	return fresh
}

// part takes a poll out of its rooms, and returns those that no poll wants any more. The
// caller calls Unwant for these, without the lock.
func (e *Engine) part(p *poll) (empty []*room) {
	for i := range p.seats {
		s := &p.seats[i]
		s.stand()
		if s.room.wants--; s.room.wants == 0 {
			delete(e.rooms, s.room.key)
			empty = append(empty, s.room)
		}
	}
	p.seats = nil
	return empty
}

func (e *Engine) want(rooms []*room) {
	for _, r := range rooms {
		e.wakes.Want(r.ns, r.key.shard, r.key.queue)
	}
}

func (e *Engine) unwant(rooms []*room) {
	for _, r := range rooms {
		e.wakes.Unwant(r.ns, r.key.shard, r.key.queue)
	}
}

// wake lets the n oldest polls of a room claim.
func (e *Engine) wake(r *room, n int) {
	for ; n > 0 && r.first != nil; n-- {
		p := r.first.poll
		p.woken = true
		e.metrics.woken.Inc()
		e.ask(p)
	}
}

// hear is told what happens to the subscriptions.
func (e *Engine) hear(event job.WakeEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if event.Kind == job.WakeLost {
		// Each poll that waits asks again when its rooms are subscribed again, or before, after
		// a pause.
		for _, r := range e.rooms {
			r.subscribed = false
			r.heard++
		}
		for p := range e.polls {
			if p.state == waiting {
				p.unconfirmed = true
				e.setTimer(p)
			}
		}
		return
	}
	r := e.rooms[roomKey{event.Namespace, event.Shard, event.Queue}]
	switch {
	case r == nil:
	case event.Kind == job.WakeHeard:
		r.heard++
		e.wake(r, max(1, event.Count))
	case event.Kind == job.WakeSubscribed && !r.subscribed:
		r.subscribed = true
		r.heard++
		for s := r.first; s != nil; {
			next := s.next
			if s.poll.unconfirmed && s.poll.subscribed() {
				e.ask(s.poll)
			}
			s = next
		}
	}
}
