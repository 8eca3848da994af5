package check

import (
	"slices"
	"time"
)

// identity is J3: a job comes out as it went in, in its queue, under one id.
func (j *jobRun) identity() {
	var harmed, strangers, strayed, twice tally
	ids := map[uint64]string{}
	for _, d := range j.Deliveries {
		p, known := j.published[d.Data.UID]
		switch {
		case !d.Data.Intact:
			harmed.add("%s of %s", d.ID, d.Queue)
			continue
		case !known:
			strangers.add("uid %d in %s", d.Data.UID, d.Queue)
			continue
		case p.Outcome == Rejected:
			strangers.add("uid %d in %s, rejected: %s", d.Data.UID, d.Queue, p.Reason)
			continue
		case d.Queue != p.Queue || d.Data.Partition != p.Queue:
			strayed.add("uid %d of %s came out of %s", d.Data.UID, p.Queue, d.Queue)
		}
		if was, met := ids[d.Data.UID]; met && was != d.ID {
			twice.add("uid %d is %s and %s", d.Data.UID, was, d.ID)
		}
		ids[d.Data.UID] = d.ID
	}
	j.failAll("J3", harmed, "payloads are not what was published")
	j.failAll("J3", strangers, "jobs were never published, or their publish was rejected")
	j.failAll("J3", strayed, "jobs changed their queue")
	j.failAll("J3", twice, "jobs were stored twice")
}

// rounding is what a claim's time may be off by: it is in whole milliseconds.
const rounding = 2 * time.Millisecond

// afterAck is J4: nothing is handed out after a confirmed ack.
func (j *jobRun) afterAck() {
	var late tally
	for _, d := range j.Deliveries {
		claimed, _ := j.when(d.Claimed, d.Asked, d.Got)
		if at, acked := j.acked[d.Data.UID]; acked && claimed.After(at.Add(rounding)) {
			late.add("uid %d, attempt %d, was claimed %v after its ack was confirmed", d.Data.UID, d.Attempt, claimed.Sub(at).Round(time.Millisecond))
		}
	}
	j.failAll("J4", late, "jobs were handed out after a confirmed ack")
}

// deliveries is J5: at most tries times, not before the delay, not past the ttl. A
// requeue takes its claim back, so its attempt comes again.
func (j *jobRun) deliveries() {
	requeued := map[uint64]int{}
	for _, s := range j.Settled {
		if s.Do == "requeue" && s.State != "gone" {
			requeued[s.UID]++
		}
	}
	var often, counted, early, late tally
	for uid, all := range j.met {
		p := j.published[uid]
		if p == nil || p.Queue == j.Operated { // a respawned one has a try more, and a ttl of its own
			continue
		}
		if n := len(all) - requeued[uid]; n > p.Tries {
			often.add("uid %d was handed out %d times, it has %d tries", uid, n, p.Tries)
		}
		attempts := map[int]int{}
		for _, d := range all {
			if attempts[d.Attempt]++; attempts[d.Attempt] > 1+requeued[uid] || d.Attempt < 1 || d.Attempt > p.Tries || d.Tries != p.Tries {
				counted.add("uid %d: attempt %d of %d, told %d times", uid, d.Attempt, d.Tries, attempts[d.Attempt])
			}
			behind, _ := j.offsets(p.Start, p.End)
			_, claimed := j.when(d.Claimed, d.Asked, d.Got)
			// It stays ready when the clock steps back.
			if due, read := p.Start.Add(behind+p.Delay), j.highest(p.Start, claimed); read.Before(due.Add(-rounding)) {
				early.add("uid %d, published from %v to %v with a delay of %v, claimed from %v to %v as of %v", uid, p.Start, p.End, p.Delay,
					d.Asked, d.Got, d.Claimed)
			}
			// A server says when the ttl is over, by its idea of the store's clock.
			_, ahead := j.offsets(p.Start.Add(-unaware), p.End)
			if ends := p.End.Add(ahead + p.TTL); p.TTL > 0 && p.Outcome == Acked && d.Claimed.After(ends.Add(rounding)) {
				late.add("uid %d, %v after its ttl was over", uid, d.Claimed.Sub(ends))
			}
		}
	}
	j.failAll("J5", often, "jobs were handed out more than their tries")
	j.failAll("J5", counted, "deliveries have a wrong attempt")
	j.failAll("J5", early, "jobs were handed out before their delay was over")
	j.failAll("J5", late, "jobs were handed out after their ttl")
}

// missing is J6: a job that was acknowledged was acked by a worker, or died, or its
// ttl was over.
func (j *jobRun) missing() {
	var silent tally
	dead := map[uint64]bool{}
	for _, uid := range j.Dead {
		dead[uid] = true
	}
	for _, p := range j.Published {
		if p.Outcome == Acked && p.TTL == 0 && !j.ackSent[p.UID] && !dead[p.UID] && j.Left == 0 {
			silent.add("uid %d of %s, handed out %d times", p.UID, p.Queue, len(j.met[p.UID]))
		}
	}
	if int64(silent.n) > j.final("deleted") { // operators delete some
		j.failAll("J6", silent, "acknowledged jobs vanished silently")
	}
}

// asleep is how long a job may be ready beside a poll while nothing is broken.
const asleep = 2 * time.Second

// waiting is J7: nothing is left in the end, and while nothing is broken no poll
// waits beside a job that is ready.
func (j *jobRun) waiting() {
	if j.Left != 0 {
		j.fail("J7", "%d jobs are ready, delayed or leased long after the last fault", j.Left)
	}
	type head struct {
		shard int
		queue string
	}
	type since struct {
		seq  string
		from time.Time
	}
	heads := map[head]since{}
	samples := slices.Clone(j.Samples)
	slices.SortStableFunc(samples, func(a, b JobSample) int { return a.At.Compare(b.At) })
	var stuck tally
	for _, s := range samples {
		for _, q := range s.Queues {
			at := head{s.Shard, q.Queue}
			was := heads[at]
			limit := j.Limits[q.Queue]
			if q.References == q.Tombstones || q.Head != was.seq || limit > 0 && q.Leases >= limit {
				heads[at] = since{q.Head, s.At}
				continue
			}
			from := s.At.Add(-asleep)
			if was.from.Before(from) && j.calm(from, s.At) && j.polled(q.Queue, from, s.At) {
				stuck.add("%s in shard %d: %s was ready for %v", q.Queue, s.Shard, q.Head, s.At.Sub(was.from).Round(time.Millisecond))
				heads[at] = since{q.Head, s.At}
			}
		}
	}
	j.failAll("J7", stuck, "times a poll waited beside a ready job")
}

// rising is J3 for ids: one that was published after another has the higher sequence in its
// shard, whatever the store's clock does. An id begins with its sequence, 12 digits, and its
// shard, 2 digits.
func (j *jobRun) rising() {
	ids := map[uint64]string{}
	for _, d := range j.Deliveries {
		if len(d.ID) >= 14 {
			ids[d.Data.UID] = d.ID
		}
	}
	var byStart []*Published
	for uid := range ids {
		if p := j.published[uid]; p != nil && p.Outcome == Acked {
			byStart = append(byStart, p)
		}
	}
	slices.SortFunc(byStart, func(a, b *Published) int { return a.Start.Compare(b.Start) })
	byEnd := slices.Clone(byStart)
	slices.SortFunc(byEnd, func(a, b *Published) int { return a.End.Compare(b.End) })
	highest := map[string]string{} // of what was published before, by shard
	var back tally
	for _, p := range byStart {
		for ; byEnd[0].End.Before(p.Start); byEnd = byEnd[1:] {
			id := ids[byEnd[0].UID]
			highest[id[12:14]] = max(highest[id[12:14]], id[:12])
		}
		if id := ids[p.UID]; id[:12] < highest[id[12:14]] {
			back.add("uid %d is %s, after a job of sequence %s", p.UID, id, highest[id[12:14]])
		}
	}
	j.failAll("J3", back, "jobs have a lower sequence than jobs published before them")
}

// overdue is J7 for delayed jobs and leases: while nothing is broken somebody looks at them
// when they are due.
func (j *jobRun) overdue() {
	var late tally
	for _, s := range j.Samples {
		if s.Overdue > asleep && j.calm(s.At.Add(-asleep), s.At) {
			late.add("shard %d: %v", s.Shard, s.Overdue)
		}
	}
	j.failAll("J7", late, "samples have a delayed job or a lease long after its time")
}

// limits is J9: the limit of a queue holds over all workers, those that died among them.
func (j *jobRun) limits() {
	var over tally
	for _, s := range j.Samples {
		for _, q := range s.Queues {
			if limit := j.Limits[q.Queue]; limit > 0 && q.Leases > limit {
				over.add("%s: %d leases, the limit is %d", q.Queue, q.Leases, limit)
			}
		}
	}
	j.failAll("J9", over, "samples have more leases than a limit allows")
}

// pauses is J10: a pause of a queue holds from its answer on.
func (j *jobRun) pauses() {
	var claimed tally
	for _, d := range j.Deliveries {
		for _, p := range j.Paused {
			if d.Queue == p.Partition && d.Asked.After(p.From) && d.Got.Before(p.To) {
				claimed.add("uid %d of %s, %v after the pause", d.Data.UID, d.Queue, d.Asked.Sub(p.From))
			}
		}
	}
	j.failAll("J10", claimed, "jobs of a paused queue were handed out")
}

// calm says that nothing was broken from shortly before a span to its end.
func (j *jobRun) calm(from, to time.Time) bool {
	for _, f := range j.Faults {
		if f.From.Before(to) && f.To.After(from.Add(-asleep)) {
			return false
		}
	}
	return true
}

// polled says that a poll waited for a queue over a whole span.
func (j *jobRun) polled(queue string, from, to time.Time) bool {
	return slices.ContainsFunc(j.Polls, func(p Poll) bool {
		return p.Start.Before(from) && p.End.After(to) && slices.Contains(p.Queues, queue)
	})
}

// void is J8: a run in which too little happened proves nothing.
func (j *jobRun) void() {
	redelivered := 0
	for _, all := range j.met {
		redelivered += len(all) - 1
	}
	for _, floor := range []struct {
		what      string
		got, want int
	}{
		{"acknowledged jobs", j.stored, j.Jobs.Floor.Published},
		{"confirmed acks", len(j.acked), j.Jobs.Floor.Acked},
		{"repeated deliveries", redelivered, j.Jobs.Floor.Redelivered},
		{"samples of queues", len(j.Jobs.Samples), j.Jobs.Floor.Samples},
	} {
		if floor.got < floor.want {
			j.fail("J8", "void: %d %s, at least %d are needed", floor.got, floor.what, floor.want)
		}
	}
}
