package jobmodel

import (
	"fmt"
	"slices"
	"strings"
)

// spawnPublish lets a producer publish one or two groups. When the
// answer is lost it publishes those with a key again.
func (w *World) spawnPublish() {
	groups := []Publish{w.drawPublish()}
	if w.rand.Intn(2) == 0 {
		groups = append(groups, w.drawPublish())
	}
	tries := 0
	w.spawn(func() bool {
		tries++
		if w.once(20) {
			w.Count["publish not run"]++
			return tries > 3
		}
		at, before := w.ms(), w.maxSeq
		replies := w.store.Publish(w.quota, groups)
		lost := w.once(12)
		var keyed []Publish
		for i, g := range groups {
			w.judgePublish(at, before, g, replies[i], lost)
			if g.Key != "" {
				keyed = append(keyed, g)
			}
		}
		w.ran("publish", func(t *truth) bool { return t.callerID != "" && t.expired(at) })
		if !lost {
			return true
		}
		w.Count["publish unknown"]++
		groups = keyed
		return len(keyed) == 0 || tries > 6
	})
}

func (w *World) drawPublish() Publish {
	g := Publish{Queue: w.pick(w.queues), Tries: 1 + w.rand.Intn(3)}
	if w.rand.Intn(10) == 0 {
		g.Tries = 12
	}
	if w.rand.Intn(3) == 0 {
		g.Delay = int64(1 + w.rand.Intn(4000))
	}
	if w.rand.Intn(2) == 0 {
		ttl := 1 + w.rand.Intn(8000)
		if w.shortLives && w.rand.Intn(2) == 0 {
			ttl = 1 + w.rand.Intn(500)
		}
		g.Ends = w.ms() + g.Delay + int64(ttl)
	}
	count := 1 + w.rand.Intn(3)
	switch w.rand.Intn(6) {
	case 0:
		w.names++
		g.Key = fmt.Sprint("k", w.names)
	case 1, 2:
		g.CallerID, count = fmt.Sprint("id-", w.rand.Intn(3)), 1
	}
	if w.rand.Intn(4) == 0 {
		g.Attributes = fmt.Sprintf(`{"n":"%d @"}`, w.rand.Intn(100))
	}
	if count == 1 && w.rand.Intn(4) == 0 {
		g.Unique, g.Window = fmt.Sprint("u", w.rand.Intn(3)), int64(1000+w.rand.Intn(30_000))
	}
	for range count {
		g.Payloads = append(g.Payloads, []string{"p ", "@x ", "#2,{}", ""}[w.rand.Intn(4)]+fmt.Sprint(w.rand.Intn(1000)))
	}
	return g
}

// judgePublish judges the answer to a group. Jobs behind the sequence before are of the same call.
func (w *World) judgePublish(at, before int64, g Publish, r Stored, lost bool) {
	key, unique := g.Queue+"/"+g.Key, g.Queue+"/"+g.Unique
	double := w.uniques[unique]
	if double.Until <= at {
		double = Unique{}
	}
	switch r.Status {
	case StoredNow:
		if r.First <= w.maxSeq {
			w.bad("publish: sequence %d after %d", r.First, w.maxSeq)
		}
		for i := range g.Payloads {
			w.maxSeq = r.First + int64(i)
			t := &truth{ref: Ref{g.Queue, w.maxSeq}, ends: g.Ends, tries: g.Tries, given: g.Tries, callerID: g.CallerID, reordered: g.Delay > 0, handed: map[string]int{}}
			if g.Delay > 0 {
				t.due = at + g.Delay
			}
			w.jobs[t.ref] = t
		}
		if before, stored := w.keys[key]; g.Key != "" && stored {
			w.bad("publish: %s is stored twice, as %d and %d", key, before, r.First)
		}
		if g.Key != "" {
			w.keys[key] = r.First
		}
		if g.Unique != "" && double.First > 0 {
			w.bad("publish: %d is stored, and %s is that of %d until %d", r.First, unique, double.First, double.Until)
		}
		if g.Unique != "" {
			w.uniques[unique] = Unique{r.First, at + g.Window}
		}
		if lost {
			w.unknown += int64(len(g.Payloads))
		} else {
			w.known += int64(len(g.Payloads))
		}
	case StoredBefore:
		if w.keys[key] != r.First || r.Count != len(g.Payloads) {
			w.bad("publish: %s is said to be %d jobs from %d, it is %d", key, r.Count, r.First, w.keys[key])
		}
	case Exists:
		t := w.jobs[Ref{g.Queue, r.First}]
		if g.Unique != "" && r.First == double.First {
			w.Count["not unique"]++
		} else if t == nil || t.gone || t.callerID != g.CallerID || !w.exists(t) && r.First <= before {
			w.bad("publish: %s is said to live as %d", g.CallerID, r.First)
		}
	}
}

// exists says whether there is a job for the verbs: its ttl is not over, or its lease is not, or it is dead.
func (w *World) exists(t *truth) bool {
	return !t.expired(w.ms()) || w.model.State(t.ref) == Dead || w.model.Lease[t.ref] > float64(w.ms())
}

// consume is what a worker does with a job: mostly it acks it, some time.
func (w *World) consume(g got) {
	plan, busy, acks := w.rand.Intn(12), w.rand.Intn(3), 0
	settle := func(verb string, ms int64) {
		w.settle([]Settle{{g.Queue, g.Job.Seq, g.Attempt, verb, ms, w.said(verb)}}, []string{g.call})
	}
	w.spawn(func() bool {
		if busy > 0 && !w.quiet {
			busy--
			return false
		}
		lost := w.once(10) // the answer, or the request
		switch {
		case plan < 6:
			if lost && w.rand.Intn(2) == 0 {
				return false
			}
			w.ack([]AckGroup{{g.Queue, []AckRef{{g.Job.Seq, g.Job.CallerID}}}})
			acks++
			return !lost && (plan > 0 || acks > 1) // some ack twice
		case plan < 8:
			settle("nack", int64(w.rand.Intn(2)*w.rand.Intn(2000)))
			return !lost
		case plan == 8:
			settle("bury", 0)
			return !lost
		case plan == 9:
			settle("touch", int64(1+w.rand.Intn(3000)))
			plan = w.rand.Intn(9)
			return false
		case plan == 10: // it gives the job back, at least once
			settle("requeue", g.deadline)
			return !lost
		}
		return true // the worker died
	})
}

// said is why a worker gives a job back or up, or how far it got with it, where it says so.
func (w *World) said(verb string) string {
	w.names++
	switch {
	case verb == "touch" && w.names%2 == 0:
		return fmt.Sprint(w.names%101, " row ", w.names)
	case verb != "nack" && verb != "bury" || w.rand.Intn(2) == 0:
		return ""
	}
	return fmt.Sprint("no ", w.names)
}

// failed says whether errors are those that the workers gave last, the newest first.
func (t *truth) failed(errors string) bool {
	var texts []string
	for line := range strings.SplitSeq(errors, "\n") {
		if parts := strings.SplitN(line, " ", 3); len(parts) == 3 {
			texts = append(texts, parts[2])
		}
	}
	return t.vanished || slices.Equal(texts, t.errors)
}

func (w *World) ack(groups []AckGroup) {
	now, over := w.ms(), map[*truth]bool{}
	for _, t := range w.jobs {
		_, leased := w.model.Lease[t.ref]
		over[t] = !leased && !w.exists(t)
	}
	replies, keeper := w.store.Ack(groups), "" // the last queue that keeps one of them
	for _, g := range groups {
		for _, x := range g.Jobs {
			t, reply := w.jobs[Ref{g.Queue, x.Seq}], replies[0]
			replies = replies[1:]
			if reply == Acked && w.model.GetKept(Ref{g.Queue, x.Seq}).Until > 0 {
				keeper = g.Queue
			}
			if t == nil || reply == NoJob || t.vanished {
				continue
			}
			if t.gone || t.acked || over[t] {
				w.bad("ack: %v was gone", t.ref)
			}
			if (reply == Acked) != (t.claims > 0) && !t.unlisted {
				w.bad("ack: %v, claimed %d times, is answered %d", t.ref, t.claims, reply)
			}
			t.acked = true
		}
	}
	if keeper != "" {
		w.checkShare(keeper)
	}
	w.ran("ack", func(t *truth) bool { return t.acked || t.expired(now) })
}

// settle runs the script and judges what it did. calls are the calls of claim that handed
// the jobs to the caller; nil: somebody else settles them.
func (w *World) settle(jobs []Settle, calls []string) {
	now, over := w.ms(), map[*truth]bool{}
	for _, t := range w.jobs {
		over[t] = !t.vanished && !w.exists(t)
	}
	states := w.store.Settle(jobs)
	for i, x := range jobs {
		state, t := states[i], w.jobs[Ref{x.Queue, x.Seq}]
		if state == Gone || t == nil {
			continue
		}
		switch {
		case x.Said == "":
		case x.Verb == "touch":
			t.progress = fmt.Sprint(t.claims, " ", x.Said)
		default:
			t.errors = slices.Concat([]string{x.Said}, t.errors)
			t.errors = t.errors[:min(3, len(t.errors))]
		}
		if over[t] {
			w.bad("settle: %s of %v, which had expired", x.Verb, t.ref)
		}
		if x.Attempt != 0 && x.Attempt != t.claims {
			w.bad("settle: %s of attempt %d took effect on attempt %d of %v", x.Verb, x.Attempt, t.claims, t.ref)
		}
		if calls != nil && t.handed[calls[i]] != t.respawns {
			w.bad("settle: %s of a holder from before a respawn took %v from %s", x.Verb, t.ref, t.holder)
		}
		switch {
		case x.Verb == "requeue":
			// Only a claim with the same deadline, to the ms, cannot be told apart.
			if calls != nil && t.holder != calls[i] && t.until != x.MS {
				w.bad("settle: a requeue of what %s handed out took %v from %s", calls[i], t.ref, t.holder)
			}
			t.claims-- // the next holder has this attempt
			t.progress, t.reordered = "", true
		case x.Verb == "touch":
			t.until = now + x.MS
		case x.Verb == "bury":
			t.buried = true
		case x.Verb == "nack" && state == Delayed:
			t.due = max(t.due, now+x.MS)
		}
		if state == Dead && t.claims < t.tries && x.Verb != "bury" {
			w.bad("settle: %v is dead after %d claims, it has %d tries", t.ref, t.claims, t.tries)
		}
		if state == Dead {
			t.died = map[string]Reason{"nack": Nacked, "bury": Buried}[x.Verb]
		}
	}
	w.ran("settle", func(t *truth) bool { return t.expired(now) || t.used() })
	for i, x := range jobs {
		if t := w.jobs[Ref{x.Queue, x.Seq}]; states[i] != Gone && t != nil && (x.Verb == "touch" || x.Verb == "requeue") {
			w.get(t)
		}
	}
}
