package push

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// A write is jobs of a queue, leased together, that go into one Write, or into several
// where the sink rejects them together.
type write struct {
	target *target
	queue  *queue
	ns     *job.Namespace
	shard  int
	jobs   []job.Job
	end    time.Time // the lease needs the time after it
}

func (w *write) run() {
	t := w.target
	defer func() {
		if p := recover(); p != nil { // a bug of ours; the leases lapse
			t.guard.Panicked("push panicked", p)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		w.queue.running--
		t.running--
		t.slots.Put(1)
		t.readmit(w.queue)
		t.pump()
		t.ended.Ring()
	}()
	if t.p.life.Claiming.Err() != nil {
		w.giveBack(w.jobs, requeued)
		return
	}
	if w.jobs = w.withoutBound(w.jobs); len(w.jobs) > 0 {
		w.write(w.jobs, t.p.cfg.SinkTimeout/2)
	}
}

// withoutBound buries the jobs that PHP's own code has to run, unless the rule takes them: acked by
// a sink they would hold their locks, and their batches and chains would stand still.
func (w *write) withoutBound(jobs []job.Job) []job.Job {
	bound := func(j job.Job) bool { return j.Bound }
	if w.queue.rule.AcceptAll || !slices.ContainsFunc(jobs, bound) {
		return jobs
	}
	var list []*settlement
	var others []job.Job
	for i := range jobs {
		if jobs[i].Bound {
			list = append(list, w.settlement(&jobs[i], job.Bury, 0))
		} else {
			others = append(others, jobs[i])
		}
	}
	w.enqueue(list)
	return others
}

// write writes jobs, if the lease leaves that time for it.
func (w *write) write(jobs []job.Job, need time.Duration) {
	t := w.target
	first := len(jobs) == len(w.jobs)
	if time.Until(w.end) < need || !t.guard.Begin() {
		if first {
			w.giveBack(jobs, requeued)
			return
		}
		// They were in a Write that the sink rejected, so this delivery counts.
		t.mu.Lock()
		w.queue.alone = time.Now().Add(aloneFor)
		t.mu.Unlock()
		w.settle(jobs, nil, func(int) (guard.Disposition, error) { return guard.Retryable, nil })
		return
	}
	batch, said := w.batch(jobs), &answer{most: job.MaxResult}
	if len(jobs) == 1 {
		batch.Jobs[0].Answered = said.answered
	}
	batches := []*sink.Batch{batch}
	began := time.Now()
	_, o, err := t.guard.Write(guard.Write{
		Partition: w.queue.name, End: w.end,
		// A delivery that began before its job expired may end after that.
		Pending: guard.Pending{Batches: batches, Entries: len(jobs), Stale: w.end.Add(time.Hour)},
	})
	t.mu.Lock()
	if o.Reason != guard.ReasonStopped {
		t.learn(w.queue, began, &o)
		w.queue.wrote(time.Now(), o.All == guard.Retryable, o.Unsent, o.After)
	}
	t.mu.Unlock()
	if o.All == guard.Rejected && len(jobs) > 1 {
		half := len(jobs) / 2
		w.write(jobs[:half], t.p.cfg.SinkTimeout/4)
		w.write(jobs[half:], t.p.cfg.SinkTimeout/4)
		return
	}
	if o.Unsent && first {
		w.giveBack(jobs, unsent)
		return
	}
	if w.ns.Noted() {
		w.trace(jobs, said.code(), time.Since(began), func(i int) guard.Disposition {
			d, _ := o.Of(0, i, err)
			return d
		})
	}
	w.settle(jobs, said, func(i int) (guard.Disposition, error) { return o.Of(0, i, err) })
}

// trace notes a Write of jobs.
func (w *write) trace(jobs []job.Job, status int, took time.Duration,
	by func(i int) guard.Disposition) {
	of, ok := w.target.p.store.(job.Traces)
	if !ok { // its kind has none
		return
	}
	outcomes := map[guard.Disposition]string{guard.Accepted: "accepted", guard.Rejected: "rejected"}
	for i := range jobs {
		of.Note(w.ns, w.queue.name, jobs[i].Ref, job.TraceEvent{
			Event:   "written",
			Attempt: jobs[i].Attempt,
			Sink:    w.target.sink,
			Outcome: cmp.Or(outcomes[by(i)], "retried"),
			Status:  status,
			MS:      took.Milliseconds(),
		})
	}
}

// learn tells the limit of a queue how the sink answered a Write; t.mu is held.
func (t *target) learn(q *queue, began time.Time, o *guard.Outcome) {
	before := q.limit.Get()
	switch {
	case o.Overloaded():
		q.limit.Overloaded(began)
	case o.All != guard.Retryable:
		q.limit.Answered(began)
	}
	t.metrics.limit.Add(float64(q.limit.Get() - before))
}

// batch makes a sink's batch of jobs.
func (w *write) batch(jobs []job.Job) *sink.Batch {
	now := time.Now()
	b := &sink.Batch{Namespace: w.ns.Name, Partition: w.queue.name, FirstSeq: w.seq(&jobs[0])}
	for i := range jobs {
		j := &jobs[i]
		b.Attempt = max(b.Attempt, j.Attempt)
		b.Entries = append(b.Entries, sink.Entry{
			Seq:      w.seq(j),
			Occurred: j.Published,
			ID:       []byte(j.ID),
			Payload:  j.Payload,
		})
		more := sink.Job{Attempt: j.Attempt, Tries: j.Tries, Attributes: attributesOf(j.Attributes)}
		if j.Expires != 0 {
			more.Expires = now.Add(time.Duration(j.Expires-j.Now) * time.Millisecond)
		}
		b.Jobs = append(b.Jobs, more)
	}
	return b
}

// seq is a number that no other job of the queue has, the same for good. Sequences are a shard's own, so
// on all shards but the queue's very first the shard's number follows it.
func (w *write) seq(j *job.Job) int64 {
	if w.shard == w.ns.Shards(w.queue.name)[0] {
		return j.Seq
	}
	return j.Seq*1024 + int64(w.shard)
}

// attributesOf returns attributes fit for a line. Something other than Spillway may have
// written them.
func attributesOf(raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' || !sink.ValidJSON(raw) {
		return nil
	}
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	var line bytes.Buffer
	if json.Compact(&line, raw) != nil {
		return nil
	}
	return line.Bytes()
}

// giveBack requeues jobs that the target has not seen.
func (w *write) giveBack(jobs []job.Job, outcome string) {
	list := make([]*settlement, len(jobs))
	for i := range jobs {
		list[i] = w.requeue(&jobs[i], outcome)
	}
	w.enqueue(list)
}

// requeue gives a job back: its claim does not count.
func (w *write) requeue(j *job.Job, outcome string) *settlement {
	s := w.settlement(j, job.Requeue, 0)
	s.settle.Deadline, s.requeued = j.At, outcome
	return s
}

// settle tells the store what became of jobs. said is what the target did, where it took them.
func (w *write) settle(jobs []job.Job, said *answer,
	outcome func(i int) (guard.Disposition, error)) {
	t := w.target
	list := make([]*settlement, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		switch d, err := outcome(i); d {
		case guard.Accepted:
			if after := said.deferred(w.queue.rule.DeferFor); after > 0 {
				list[i] = w.settlement(j, job.Defer, after)
				break
			}
			list[i] = &settlement{ack: &job.Ack{Namespace: w.ns, Queue: w.queue.name,
				Ref: j.Ref, Result: said.result(), By: pusher}}
		case guard.Rejected:
			t.guard.DeadLettered(w.queue.name, zap.String("job", j.ID), err)
			list[i] = w.settlement(j, job.Bury, 0)
			list[i].settle.Error = failureOf(err)
		default:
			if t.guard.Stopping() { // which would end a job at its last try
				list[i] = w.requeue(j, requeued)
				break
			}
			list[i] = w.settlement(j, job.Nack, w.retryIn(j, err))
			list[i].settle.Error = failureOf(err)
		}
	}
	w.enqueue(list)
}

// failureOf is an error with the beginning of what the target answered.
func failureOf(err error) string {
	switch detail := sink.Detail(err); {
	case err == nil:
		return ""
	case detail != "":
		return err.Error() + ": " + detail
	}
	return err.Error()
}

// retryIn is how long a job waits for its next delivery.
func (w *write) retryIn(j *job.Job, err error) time.Duration {
	r := w.queue.rule
	if after, throttled := sink.ThrottledFor(err); throttled {
		return min(after, maxThrottle) + time.Duration(rand.Float64()*float64(r.BackoffBase))
	}
	return guard.Backoff(r.BackoffBase, r.BackoffMax, j.Attempt, rand.Float64())
}

// maxThrottle bounds what a sink may ask for.
const maxThrottle = 24 * time.Hour

// pusher is who claims and settles, in traces.
const pusher = "push"

// settlement ends the lease of one job.
func (w *write) settlement(j *job.Job, verb job.Verb, after time.Duration) *settlement {
	return &settlement{settle: &job.Settle{
		Namespace: w.ns,
		Queue:     w.queue.name,
		Ref:       j.Ref,
		Attempt:   j.Attempt,
		Verb:      verb,
		After:     after,
		By:        pusher,
	}}
}

func (w *write) enqueue(list []*settlement) {
	t := w.target
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.shard(w.shard)
	s.settlements = append(s.settlements, list...)
	t.unsettled += len(list)
	t.settle(s)
}

// A settlement is the request to the store that ends one delivery: ack or settle.
type settlement struct {
	ack      *job.Ack
	settle   *job.Settle
	requeued string // the outcome of a requeue
	unknown  bool   // it may have run before
}

func (x *settlement) add(b *job.Batch) {
	if x.ack != nil {
		x.ack.Acked, x.ack.Err = false, nil
		b.Acks = append(b.Acks, x.ack)
	} else {
		x.settle.State, x.settle.Err = job.Gone, nil
		b.Settles = append(b.Settles, x.settle)
	}
}

// result is the outcome by what the store answered. After an attempt with an unknown
// outcome a job that is gone most likely is because of that.
func (x *settlement) result() (outcome string, err error) {
	if x.ack != nil {
		if x.ack.Acked || x.unknown {
			return acked, x.ack.Err
		}
		return gone, x.ack.Err
	}
	switch s := x.settle; {
	case s.State == job.Dead, s.State == job.Gone && x.unknown && s.Verb == job.Bury:
		return dead, s.Err
	case s.State == job.Expired:
		return expired, s.Err
	case s.State == job.Ready, s.State == job.Delayed, s.State == job.Gone && x.unknown:
		if s.Verb == job.Requeue {
			return x.requeued, s.Err
		}
		return retried, s.Err
	case s.State == job.Leased, s.State == job.Gone && s.Verb == job.Defer: // the target may have settled it already
		return deferred, s.Err
	default:
		return gone, s.Err
	}
}

// settled notes what a call made of a settlement; t.mu is held. The error is that of a
// store that cannot be used: then it is tried again, until Stop runs out of patience.
// A late ack still counts, and the others name their attempt, a requeue also its deadline, so
// no late one does harm.
func (t *target) settled(s *shard, x *settlement) (failure error) {
	outcome, err := x.result()
	if errors.Is(err, partition.ErrUnavailable) || errors.Is(err, partition.ErrUnknown) {
		x.unknown = x.unknown || errors.Is(err, partition.ErrUnknown)
		s.settlements = append(s.settlements, x)
		return err
	}
	t.unsettled--
	if err != nil {
		outcome = lapsed
		t.rejections.Add("store rejects the settlement of a job, its lease lapses", err,
			zap.Int("shard", s.number))
	}
	t.metrics.jobs.WithLabelValues(outcome).Inc()
	return nil
}
