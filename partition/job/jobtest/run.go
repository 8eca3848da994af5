package jobtest

import (
	"context"
	"slices"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// Revert gives back what claims of the lane took whose answers were lost.
func (s *Store) Revert(_ context.Context, l *job.Lane) error {
	s.With(func() { s.revert(l) })
	return nil
}

func (s *Store) revert(l *job.Lane) {
	for _, j := range slices.Backward(s.lost[l]) {
		if j.State == job.Leased {
			s.uncount(j)
			s.push(j, true, true)
		}
	}
	delete(s.lost, l)
}

func (s *Store) uncount(j *Job) {
	j.Attempt--
	j.Claims = j.Claims[:len(j.Claims)-1]
	j.Deferred = false
}

// Lose makes the answer to a claim an error. Its jobs are leased until the lane's next claim,
// or Revert. It is for Answer.
func (s *Store) Lose(l *job.Lane, c *job.Claim, err error) {
	for i := range c.Jobs {
		j := s.at(key{c.Namespace.Name, c.Shard, c.Jobs[i].Queue}).all[c.Jobs[i].Seq]
		s.lost[l] = append(s.lost[l], j)
	}
	c.Jobs, c.Left, c.Held, c.Err = nil, nil, nil, err
}

// Fail is the answer to every request of a batch.
func Fail(b *job.Batch, err error) {
	for _, a := range b.Acks {
		a.Acked, a.Deleted, a.Err = false, false, err
	}
	for _, x := range b.Settles {
		x.State, x.Err = job.Gone, err
	}
	for _, p := range b.Publishes {
		p.Err = err
	}
	for _, c := range b.Claims {
		c.Jobs, c.Left, c.Held, c.Err = nil, nil, nil, err
	}
}

// Run runs a batch: acks, settlements, publishes, claims. With an ended context none of it.
func (s *Store) Run(ctx context.Context, l *job.Lane, b *job.Batch) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	var err error
	if ctx.Err() != nil {
		err = partition.ErrUnavailable
	} else if s.Fail != nil {
		err = s.Fail(b)
	}
	if err != nil {
		Fail(b, err)
		return
	}
	if len(b.Claims) > 0 {
		s.revert(l)
	}
	for _, a := range b.Acks {
		s.ack(a)
	}
	var heads []*Job
	for _, x := range b.Settles {
		heads = append(heads, s.settle(x)...)
	}
	for _, j := range slices.Backward(heads) { // those of a batch keep their order
		s.push(j, true, true)
	}
	for _, p := range b.Publishes {
		s.publish(p)
	}
	for _, c := range b.Claims {
		s.claim(c)
	}
	for _, c := range b.Claims { // of several that share a queue each sees what all left
		s.left(c)
	}
	if s.Answer != nil {
		s.Answer(l, b)
	}
}

func (s *Store) ack(a *job.Ack) {
	a.Acked, a.Deleted, a.Err = false, false, nil
	j := s.expire(key{a.Namespace.Name, a.Ref.Shard, a.Queue}).all[a.Ref.Seq]
	if j == nil {
		return
	}
	l := s.ledgers[a.Namespace.Name]
	if a.Acked = j.Attempt != 0; a.Acked { // of a buried job it is -1
		s.leave(j, &l.Acked)
		j.Acked, j.Result = true, string(a.Result)
		return
	}
	a.Deleted = true
	s.leave(j, &l.Deleted)
}

// settle returns the job that goes to the head of its queue.
func (s *Store) settle(x *job.Settle) (head []*Job) {
	x.Err, x.State = nil, job.Gone
	j := s.at(key{x.Namespace.Name, x.Ref.Shard, x.Queue}).all[x.Ref.Seq]
	if j == nil || j.State != job.Leased || x.Attempt != 0 && x.Attempt != j.Attempt ||
		x.Deadline != 0 && x.Deadline != j.At {
		return nil
	}
	if x.Error != "" {
		j.Errors = append([]job.Failure{{Attempt: j.Attempt, AtMS: s.now(), Error: x.Error}}, j.Errors...)
		j.Errors = j.Errors[:min(3, len(j.Errors))]
	}
	switch x.Verb {
	case job.Nack:
		s.back(j, x.After, job.Nacked)
	case job.Bury:
		s.bury(j, job.Buried)
	case job.Touch, job.Defer:
		j.Deferred = j.Deferred || x.Verb == job.Defer
		s.wait(j, job.Leased, x.After)
	case job.Requeue:
		s.uncount(j)
		j.State, head = job.Ready, append(head, j)
	}
	x.State = j.State
	return head
}

func (s *Store) publish(p *job.Publish) {
	if len(p.Messages) == 0 && p.Key+p.UniqueKey+p.CallerID != "" { // it remembers no keys
		p.Err = job.ErrNoRepeat
		return
	}
	if have := s.stored(p.Namespace.Name); have+len(p.Messages) > int(p.Namespace.Policy.MaxJobs) {
		p.Err = job.ErrTooManyJobs
		return
	}
	p.Err, p.Count = nil, len(p.Messages)
	p.First = s.sequences(p.Count)
	for i, m := range p.Messages {
		seq := p.First + int64(i)
		j := &Job{Job: job.Job{
			Queue: p.Queue, Ref: job.Ref{Shard: p.Shard, Seq: seq,
				CallerID: p.CallerID}, Tries: p.Tries, Published: seq / 1000,
			Payload: slices.Clone(m.Payload), Attributes: slices.Clone(m.Attributes),
		}}
		s.store(p.Namespace, j)
		if p.TTL > 0 {
			j.Expires = s.now() + p.TTL.Milliseconds()
		}
		if p.Delay > 0 {
			s.wait(j, job.Delayed, p.Delay)
		} else {
			s.push(j, false, true)
		}
	}
}

func (s *Store) stored(namespace string) (n int) {
	for k, q := range s.queues {
		if k.namespace == namespace {
			n += len(q.all)
		}
	}
	return n
}

func (s *Store) claim(c *job.Claim) {
	c.Jobs, c.Left, c.Held, c.More, c.Err = nil, nil, nil, false, nil
	if len(c.Queues) < 1 || len(c.Queues) > job.MaxQueues || c.Count < 1 || c.Count > job.MaxCount {
		c.Err = job.ErrBadArgument
		return
	}
	for _, name := range c.Queues {
		q := s.expire(key{c.Namespace.Name, c.Shard, name})
		for len(q.ready) > 0 && len(c.Jobs) < c.Count && !time.Now().Before(q.passes) {
			q.passes = time.Now().Add(s.Pause)
			j := q.ready[0]
			q.ready = q.ready[1:]
			j.Attempt++
			j.Claims = append(j.Claims, time.Now())
			s.wait(j, job.Leased, c.TTR)
			c.Jobs = append(c.Jobs, s.shown(j))
		}
	}
}

func (s *Store) left(c *job.Claim) {
	if !c.ReportLeft || c.Err != nil {
		return
	}
	for _, name := range c.Queues {
		q := s.at(key{c.Namespace.Name, c.Shard, name})
		left, held := len(q.ready), int64(0)
		if wait := time.Until(q.passes); wait > 0 && left > 0 {
			left, held = -1, int64((wait+time.Millisecond-1)/time.Millisecond)
		}
		c.Left, c.Held = append(c.Left, left), append(c.Held, held)
	}
}

// shown is a job as an answer has it.
func (s *Store) shown(j *Job) job.Job {
	one := j.Job
	one.Now = s.now()
	return one
}
