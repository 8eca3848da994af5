package jobtest

import (
	"context"
	"slices"
	"time"

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

// Respawn makes dead letters ready, for one more try.
func (s *Store) Respawn(_ context.Context, ns *job.Namespace, queue string, limit int,
	ttl time.Duration) (int, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Down != nil {
		return 0, s.Down
	}
	dead := s.of(ns, queue, job.Dead)
	dead = dead[:min(limit, len(dead))]
	for _, j := range dead {
		j.Attempt = j.Tries
		j.Tries++
		j.Reason = job.UnknownReason
		if ttl > 0 {
			j.Expires = s.now() + ttl.Milliseconds()
		}
		s.ledgers[ns.Name].Respawned++
		s.push(j, false, true)
	}
	return len(dead), nil
}

// DeleteDead deletes dead letters.
func (s *Store) DeleteDead(_ context.Context, ns *job.Namespace, queue string, limit int) (int, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Down != nil {
		return 0, s.Down
	}
	dead := s.of(ns, queue, job.Dead)
	dead = dead[:min(limit, len(dead))]
	for _, j := range dead {
		s.leave(j, &s.ledgers[ns.Name].Deleted)
	}
	return len(dead), nil
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
