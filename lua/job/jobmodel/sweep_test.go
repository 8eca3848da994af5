package jobmodel

import (
	"maps"
	"slices"
)

// sweep lets the expirer look at every job of a shard; it finds what a foreign
// change took out of its state. At the end nothing may be left out.
func (w *World) sweep(s *shard, end bool) {
	now := w.ms()
	held := map[Ref]bool{} // an expirer leaves those alone
	for ref := range s.model.Lease {
		held[ref] = true
	}
	for _, name := range w.queues {
		q := s.model.queue(name)
		for seq := range q.Dead {
			held[Ref{name, seq}] = true
		}
		seqs := slices.Sorted(maps.Keys(q.Jobs))
		if len(seqs) == 0 {
			continue
		}
		swept := s.store.Expire(name)
		for _, seq := range seqs {
			t := s.jobs[Ref{name, seq}]
			state := s.model.State(t.ref)
			if state == Lost {
				w.bad("expire: %v is still in no state", t.ref)
			}
			if t.unlisted && state == Ready {
				// Its delay, and a first claim, were known only where it was taken from.
				t.unlisted, t.reordered, t.due = false, true, 0
				t.claims = int(s.model.Attempts[t.ref])
				t.tries = max(t.tries, t.claims+1) // a lapse would have ended it
				s.found++
			}
		}
		w.Count["found"] += swept.Found
		w.ran(s, "expire", func(t *truth) bool { return t.expired(now) && !held[t.ref] })
	}
	if end {
		for ref, t := range s.jobs {
			if t.unlisted && !t.gone {
				w.bad("expire: %v was not found", ref)
			}
		}
	}
}

// get asks for a job and holds the answer against what is known of it.
func (w *World) get(s *shard, t *truth) {
	c, state := s.store.Get(t.ref)
	if c == nil {
		if !t.gone && !t.vanished && w.exists(s, t) {
			w.bad("get: there is %v", t.ref)
		}
		return
	}
	if t.gone || !w.exists(s, t) || c.Attempt != t.claims && state != Dead && !t.unlisted {
		w.bad("get: %v is of attempt %d, said %d", t.ref, t.claims, c.Attempt)
	}
	if c.Reason != t.died {
		w.bad("get: %v died as %d, said %d", t.ref, t.died, c.Reason)
	}
	if c.Job.Ends != t.ends || c.Job.CallerID != t.callerID {
		w.bad("get: %v is %+v", t.ref, c.Job)
	}
}
