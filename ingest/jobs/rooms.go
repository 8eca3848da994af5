package jobs

import (
	"strings"

	"github.com/spillway-io/spillway/partition/job"
)

// What a claim that waits holds in bytes, about, beside its connection: itself, its answer's
// head and its goroutine; a place in a room; and a room that it is the first to want, with its
// subscription, beside the name twice. A test measures them.
const (
	pollCost = 2 << 10
	seatCost = 128
	roomCost = 768
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
	heard      uint32         // how often something was heard, or may have been missed
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
	heard      uint32
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

// cost is what a poll would hold while it waits. A room is paid by the poll that makes it: one
// that outlives it has cost its namespace as much before.
func (e *Engine) cost(p *poll) int {
	bytes := pollCost
	for i := range p.steps {
		for _, queue := range p.queues(i) {
			bytes += seatCost
			if p.Wait > 0 && e.rooms[roomKey{p.ns.Name, p.steps[i].shard, queue}] == nil {
				bytes += roomCost + 2*len(queue)
			}
		}
	}
	return bytes
}

// join gives a poll a seat in the room of each queue it wants, and returns the rooms that
// are new. The caller calls Want for these, without the lock. All polls share the names of
// rooms: those that came with a request are dropped.
func (e *Engine) join(p *poll) (fresh []*room) {
	n := 0
	for i := range p.steps {
		n += len(p.queues(i))
	}
	p.seats = make([]seat, 0, n)
	for i := range p.steps {
		queues := p.queues(i)
		for at, queue := range queues {
			key := roomKey{p.ns.Name, p.steps[i].shard, queue}
			r := e.rooms[key]
			if r == nil {
				key.queue = strings.Clone(queue)
				r = &room{key: key, ns: p.ns}
				e.rooms[key] = r
				fresh = append(fresh, r)
			}
			queues[at] = r.key.queue
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
