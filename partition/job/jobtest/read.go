package jobtest

import (
	"context"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/partition/job"
)

// of are the jobs of a queue in all its shards that are in a state, oldest first; Gone: in any.
func (s *Store) of(ns *job.Namespace, queue string, state job.State) (list []*Job) {
	for _, shard := range ns.Shards(queue) {
		for _, j := range inOrder(s.expire(key{ns.Name, shard, queue})) {
			if state == job.Gone || j.State == state {
				list = append(list, j)
			}
		}
	}
	return list
}

// Jobs are those of a queue, oldest first.
func (s *Store) Jobs(ns *job.Namespace, queue string) []*Job {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.of(ns, queue, job.Gone)
}

// Peek is the job that would be claimed next.
func (s *Store) Peek(_ context.Context, ns *job.Namespace, queue string) (job.Job, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Down != nil {
		return job.Job{}, s.Down
	}
	for _, shard := range ns.Shards(queue) {
		if q := s.expire(key{ns.Name, shard, queue}); len(q.ready) > 0 {
			return s.shown(q.ready[0]), nil
		}
	}
	return job.Job{}, job.ErrNoJob
}

// Get is a job and its state.
func (s *Store) Get(_ context.Context, ns *job.Namespace, queue string, ref job.Ref) (job.Job,
	job.State, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Down != nil {
		return job.Job{}, job.Gone, s.Down
	}
	j := s.expire(key{ns.Name, ref.Shard, queue}).all[ref.Seq]
	if j == nil {
		return job.Job{}, job.Gone, job.ErrNoJob
	}
	return s.shown(j), j.State, nil
}

// OnEnds sets nothing: it has no follow-ups.
func (s *Store) OnEnds(context.Context, *job.Namespace, []job.Job) error { return nil }

// Await is Get without payload and attributes. It tells nobody.
func (s *Store) Await(ctx context.Context, ns *job.Namespace, queue string, ref job.Ref) (job.Job, job.State, error) {
	j, state, err := s.Get(ctx, ns, queue, ref)
	j.Payload, j.Attributes = nil, nil
	return j, state, err
}

// Counts are the jobs of a queue.
func (s *Store) Counts(_ context.Context, ns *job.Namespace, queue string) (c job.Counts, err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Down != nil {
		return c, s.Down
	}
	for _, j := range s.of(ns, queue, job.Gone) {
		switch j.State {
		case job.Ready:
			if c.Ready++; c.Ready == 1 {
				c.OldestReady = j.Published
			}
		case job.Delayed:
			c.Delayed++
		case job.Leased:
			c.Leased++
		case job.Dead:
			c.Dead++
		}
	}
	c.Pending = c.Delayed + c.Leased
	return c, nil
}

// Queues are those that have jobs which are not dead, in order.
func (s *Store) Queues(_ context.Context, ns *job.Namespace) (names []string, err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Down != nil {
		return nil, s.Down
	}
	for k, q := range s.queues {
		if k.namespace != ns.Name {
			continue
		}
		for _, j := range q.all {
			if j.State != job.Dead {
				names = append(names, k.queue)
				break
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Ledger is the account of a namespace.
func (s *Store) Ledger(_ context.Context, ns *job.Namespace) (job.Ledger, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	l := *s.ledgers[ns.Name]
	for k, q := range s.queues {
		if k.namespace != ns.Name {
			continue
		}
		for _, j := range q.all {
			switch j.State {
			case job.Ready:
				l.Ready++
			case job.Delayed:
				l.Delayed++
			case job.Leased:
				l.Leased++
			case job.Dead:
				l.Dead++
			}
		}
	}
	return l, nil
}

// Audit is what the account and the jobs differ by.
func (s *Store) Audit(ctx context.Context, ns *job.Namespace) (int64, error) {
	l, err := s.Ledger(ctx, ns)
	return l.Published - l.Acked - l.Expired - l.Deleted - l.Lost - l.Dead - l.Ready - l.Delayed - l.Leased, err
}

// Dead are dead letters.
func (s *Store) Dead(_ context.Context, ns *job.Namespace, queue string, offset,
	limit int) (page []job.Job, total int64, err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Down != nil {
		return nil, 0, s.Down
	}
	all := s.of(ns, queue, job.Dead)
	for _, j := range all[min(offset, len(all)):min(offset+limit, len(all))] {
		page = append(page, s.shown(j))
	}
	return page, int64(len(all)), nil
}

// ActOnDead acts on the oldest dead letters, or on those that are named.
func (s *Store) ActOnDead(_ context.Context, a *job.DeadAct) (done int, err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Down != nil {
		return 0, s.Down
	}
	a.Did = make([]bool, len(a.Named))
	for _, j := range s.of(a.Namespace, a.Queue, job.Dead) {
		at := slices.Index(a.Named, j.Ref)
		switch {
		case a.Named != nil && at < 0, a.Named == nil && done == a.Limit:
			continue
		case a.Reason != job.UnknownReason && j.Reason != a.Reason, s.now()-j.At < a.Age.Milliseconds():
			continue
		case a.Error != "" && (len(j.Errors) == 0 || !strings.Contains(j.Errors[0].Error, a.Error)):
			continue
		}
		done++
		if at >= 0 {
			a.Did[at] = true
		}
		switch a.Verb {
		case job.RespawnDead:
			j.Attempt = j.Tries
			j.Tries++
			j.Reason = job.UnknownReason
			if a.TTL > 0 {
				j.Expires = s.now() + a.TTL.Milliseconds()
			}
			s.ledgers[a.Namespace.Name].Respawned++
			s.push(j, false, true)
		case job.DeleteDead:
			s.leave(j, &s.ledgers[a.Namespace.Name].Deleted)
		}
	}
	return done, nil
}

// Purge deletes the ready jobs of a queue, or all.
func (s *Store) Purge(_ context.Context, ns *job.Namespace, queue string, all bool) (int64, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Down != nil {
		return 0, s.Down
	}
	state := job.Ready
	if all {
		state = job.Gone
	}
	jobs := s.of(ns, queue, state)
	for _, j := range jobs {
		s.leave(j, &s.ledgers[ns.Name].Deleted)
	}
	return int64(len(jobs)), nil
}
