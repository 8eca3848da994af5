package check

import (
	"fmt"
	"time"
)

// Violation is one broken promise.
type Violation struct {
	Check string // "C1" to "C15", "J1" to "J8", "S1" to "S5"
	Text  string
}

func (v Violation) String() string { return v.Check + ": " + v.Text }

// Run makes every check. A run that none objects to is nil.
func Run(h *History) []Violation {
	r := newRun(h)
	if h.Policy.Replicated && r.stepsBack() {
		h.Policy.Forgets = true
	}
	r.law()
	r.outer()
	r.identity()
	r.deliveries()
	if !h.Policy.Forgets {
		r.missing()
		r.order()
		r.holders()
		r.batches()
		r.metrics()
	}
	r.stale()
	r.capacity()
	r.liveness()
	r.leaks()
	r.void()
	r.namespaces()
	r.pauses()
	r.jobs()
	r.schedules()
	return r.found
}

// run is a History with what several checks look up.
type run struct {
	*History
	found []Violation

	sent    map[uint64]*Sent
	acked   []*Sent
	unknown int
	kept    map[uint64]bool // the sink has it
	dead    map[uint64]bool
	taken   int // different entries that the sink has and said so
	clock   []offset
}

func newRun(h *History) *run {
	r := &run{
		History: h, sent: make(map[uint64]*Sent, len(h.Sent)),
		kept: map[uint64]bool{}, dead: map[uint64]bool{}, clock: offsetsOf(h.Faults),
	}
	for i := range h.Sent {
		s := &h.Sent[i]
		r.sent[s.UID] = s
		switch s.Outcome {
		case Acked:
			r.acked = append(r.acked, s)
		case Unknown:
			r.unknown++
		}
	}
	taken := map[uint64]bool{}
	for i := range h.Posts {
		p := &h.Posts[i]
		for _, l := range p.Lines {
			if p.Kept {
				r.kept[l.Data.UID] = true
			}
			if p.taken() {
				taken[l.Data.UID] = true
			}
		}
	}
	r.taken = len(taken)
	for _, uid := range h.Final.Dead {
		r.dead[uid] = true
	}
	return r
}

func (r *run) fail(check, format string, args ...any) {
	r.found = append(r.found, Violation{check, fmt.Sprintf(format, args...)})
}

// A tally reports many of a kind as one: how many, and the first.
type tally struct {
	n     int
	first string
}

func (t *tally) add(format string, args ...any) {
	if t.n++; t.n == 1 {
		t.first = fmt.Sprintf(format, args...)
	}
}

func (r *run) failAll(check string, t tally, what string) {
	if t.n > 0 {
		r.fail(check, "%d %s; the first: %s", t.n, what, t.first)
	}
}

// thawTime is how long after its thaw a process may still send what it was about
// to send when it froze: nobody can call that back.
const thawTime = time.Second

// thawing says that a worker had just been thawed at that moment.
func (r *run) thawing(worker string, at time.Time) bool {
	for _, f := range r.Faults {
		if f.Kind == KindStop && (f.Target == worker || f.Target == Machine) && !at.Before(f.To) && at.Sub(f.To) < thawTime {
			return true
		}
	}
	return false
}
