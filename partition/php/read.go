package php

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
)

// Bounds of reads, and of acts on many.
const (
	maxDeadPage   = 100
	deadPageBytes = 1 << 20
	respawnStep   = 100  // dead letters a call
	purgeStep     = 1000 // payloads a call
)

// read runs calls that only read, once a read slot is free.
func (s *Store) read(ctx context.Context, calls ...*backend.Call) error {
	return s.reads.Do(ctx, func() error {
		s.backend.Run(ctx, s.backend.Background, calls)
		for _, c := range calls {
			if c.Err != nil {
				return explained(c.Err)
			}
		}
		return nil
	})
}

// peekCall reads the head of a queue.
func (n *namespace) peekCall(queue string) *backend.Call {
	return backend.NewCall(luaphp.Peek, n.breaker, []string{n.keys(queue).ready})
}

// Peek returns the payload that would be claimed next, or job.ErrNoJob. It has no id yet.
func (s *Store) Peek(ctx context.Context, ns *job.Namespace, queue string) (job.Job, error) {
	n, err := s.of(ns, queue)
	if err != nil {
		return job.Job{}, err
	}
	c := n.peekCall(queue)
	switch err := s.read(ctx, c); {
	case err != nil:
		return job.Job{}, err
	case c.Rest.Int() == 0 && !c.Rest.Broken:
		return job.Job{}, job.ErrNoJob
	}
	j := n.delivery(queue, 0, -1, c.Rest.Bulk())
	if c.Rest.Broken {
		return job.Job{}, c.Misread()
	}
	j.Now = c.Now
	return j, nil
}

// getCall reads a delivery.
func (n *namespace) getCall(queue string, seq int64) *backend.Call {
	k := n.keys(queue)
	return backend.NewCall(luaphp.Get, n.breaker, []string{k.reserved, k.leases, k.held,
		k.dead, k.letters}, seq)
}

// Get returns a delivery and the state it is in: Leased or Dead; or job.ErrNoJob.
func (s *Store) Get(ctx context.Context, ns *job.Namespace, queue string,
	ref job.Ref) (job.Job, job.State, error) {
	n, err := s.of(ns, queue)
	if err != nil {
		return job.Job{}, job.Gone, err
	}
	c := n.getCall(queue, ref.Seq)
	switch err := s.read(ctx, c); {
	case err != nil:
		return job.Job{}, job.Gone, err
	case c.Rest.Int() == 0 && !c.Rest.Broken:
		return job.Job{}, job.Gone, job.ErrNoJob
	}
	state := job.Leased
	if string(c.Rest.Bulk()) == "dead" {
		state = job.Dead
	}
	at, reason := c.Rest.Int(), c.Rest.Bulk()
	j := n.delivery(queue, ref.Seq, -1, c.Rest.Bulk())
	if c.Rest.Broken {
		return job.Job{}, job.Gone, c.Misread()
	}
	j.Now = c.Now
	n.died(&j, at, reason)
	return j, state, nil
}

// reasons are why a payload died, as the letters say it.
var reasons = map[string]job.Reason{"nacked": job.Nacked, "buried": job.Buried,
	"unfit": job.Unfit, "unreadable": job.Unreadable}

// died says in a job what the letter says of its end: the reason and, behind a space, the error.
func (n *namespace) died(j *job.Job, at int64, text []byte) {
	reason, why, _ := strings.Cut(string(text), " ")
	j.At, j.Reason = at, reasons[reason]
	if why != "" {
		attempt := readDeliveries(j.Payload).attempt(n.Flavor)
		if !n.Flavor.onRelease() {
			attempt-- // it was counted when it was handed out
		}
		j.Errors = []job.Failure{{Attempt: int(min(max(1, attempt), job.MaxAttempt)), AtMS: at, Error: why}}
	}
}

// look counts the payloads of queues.
func (n *namespace) look(queue string) *backend.Call {
	k := n.keys(queue)
	return backend.NewCall(luaphp.Look, n.breaker, []string{k.ready, k.delayed,
		k.reserved, k.leases, k.dead})
}

// Counts are the jobs of a queue.
func (s *Store) Counts(ctx context.Context, ns *job.Namespace, queue string) (job.Counts, error) {
	all, err := s.CountAll(ctx, ns, []string{queue})
	if err != nil {
		return job.Counts{}, err
	}
	return all[0], nil
}

// CountAll is Counts of several queues, in their order.
func (s *Store) CountAll(ctx context.Context, ns *job.Namespace,
	queues []string) ([]job.Counts, error) {
	calls := make([]*backend.Call, 0, 2*len(queues))
	for _, queue := range queues {
		n, err := s.of(ns, queue)
		if err != nil {
			return nil, err
		}
		calls = append(calls, n.look(queue), n.peekCall(queue))
	}
	if err := s.read(ctx, calls...); err != nil {
		return nil, err
	}
	all := make([]job.Counts, len(queues))
	for i := range queues {
		r, head := &calls[2*i].Rest, &calls[2*i+1].Rest
		ready, delayed, reserved, leased, dead := r.Int(), r.Int(), r.Int(), r.Int(), r.Int()
		if r.Broken {
			return nil, calls[2*i].Misread()
		}
		all[i] = job.Counts{Ready: ready, Delayed: delayed, Leased: leased, Dead: dead,
			Reserved: max(0, reserved-leased),
			Pending:  delayed + leased}
		if head.Int() == 1 {
			all[i].OldestReady = Read(head.Bulk()).created
		}
	}
	return all, nil
}

// Queues returns the queues of a namespace, in the order of their names: see queues.
func (s *Store) Queues(ctx context.Context, ns *job.Namespace) ([]string, error) {
	n, err := s.behind(ns)
	if err != nil {
		return nil, err
	}
	return s.queues(ctx, n)
}

// Ledger sums up the queues of a namespace, the first 1,000 by name. What PHP pushed is not counted
// anywhere, so Published is what Spillway published, and there is no law between it and the rest;
// Audit has one. The sum is at most some seconds old.
func (s *Store) Ledger(ctx context.Context, ns *job.Namespace) (job.Ledger, error) {
	n, err := s.behind(ns)
	if err != nil {
		return job.Ledger{}, err
	}
	sum, err := s.summed(ctx, n, ledgerEvery)
	if err != nil {
		return job.Ledger{}, err
	}
	a := sum.outcomes
	return job.Ledger{Published: a["published"], Acked: a["acked"], Deleted: a["deleted"] + a["purged"], Died: a["died"], Respawned: a["respawned"],
		Ready: sum.jobs["ready"], Delayed: sum.jobs["delayed"], Leased: sum.jobs["leased"], Dead: sum.jobs["dead"]}, nil
}

// Audit is how many deliveries are not accounted for, in all queues that Ledger sums up:
// claimed = acked + nacked + requeued + buried + unfit + lapsed + leased.
func (s *Store) Audit(ctx context.Context, ns *job.Namespace) (residual int64, err error) {
	n, err := s.behind(ns)
	if err != nil {
		return 0, err
	}
	sum, err := s.summed(ctx, n, 0)
	if err != nil {
		return 0, err
	}
	return sum.residual, nil
}

// Forecast counts the delayed payloads that come due in each of the next steps; of all queues, the
// first 100 by name, where queue is "".
func (s *Store) Forecast(ctx context.Context, ns *job.Namespace, queue string,
	step time.Duration, steps int) (counts []int64, err error) {
	if queue == "" {
		queues, err := s.Queues(ctx, ns)
		counts = make([]int64, steps)
		for _, queue := range queues[:min(len(queues), sumPage)] {
			of, wrong := s.Forecast(ctx, ns, queue, step, steps)
			if wrong != nil {
				return nil, wrong
			}
			for i := range of {
				counts[i] += of[i]
			}
		}
		return counts, err
	}
	n, err := s.of(ns, queue)
	if err != nil {
		return nil, err
	}
	err = s.reads.Do(ctx, func() error {
		now, err := s.backend.KnownTime(ctx)
		if err != nil {
			return err
		}
		pipe := s.backend.Background.Pipeline()
		cmds := make([]*redis.IntCmd, steps)
		from := "-inf"
		for i := range cmds {
			end := strconv.FormatFloat(float64(now+int64(i+1)*step.Milliseconds())/1000, 'f', 3, 64)
			cmds[i] = pipe.ZCount(ctx, n.keys(queue).delayed, from, "("+end)
			from = end
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return explained(backend.Classify(err))
		}
		for _, cmd := range cmds {
			counts = append(counts, cmd.Val())
		}
		return nil
	})
	return counts, err
}

// Dead returns a page of dead letters, the oldest first, and how many the queue has.
func (s *Store) Dead(ctx context.Context, ns *job.Namespace, queue string, offset,
	limit int) (dead []job.Job, total int64, err error) {
	n, err := s.of(ns, queue)
	if err != nil {
		return nil, 0, err
	}
	k := n.keys(queue)
	c := backend.NewCall(luaphp.DeadPage, n.breaker, []string{k.dead, k.letters},
		offset, min(limit, maxDeadPage), deadPageBytes)
	if err := s.read(ctx, c); err != nil {
		return nil, 0, err
	}
	x := claim{of: n, sent: c}
	total = c.Rest.Int()
	for more := c.More - 1; more >= 4; more -= 4 {
		seq, at := x.number(), x.number()
		reason := c.Rest.Bulk()
		j := n.delivery(queue, seq, -1, c.Rest.Bulk())
		j.Now = c.Now
		n.died(&j, at, reason)
		dead = append(dead, j)
	}
	if c.Rest.Broken {
		return nil, 0, c.Misread()
	}
	return dead, total, nil
}

// ActOnDead makes the oldest dead letters ready again, as if they had never been delivered, or deletes
// them, and returns how many. What PHP could not read stays dead. There is no ttl. To select or to
// count is job.ErrOtherKind: the errors of PHP's jobs are in its own table.
func (s *Store) ActOnDead(ctx context.Context, a *job.DeadAct) (done int, err error) {
	if a.Selects() || a.Verb == job.CountDead {
		return 0, job.ErrOtherKind
	}
	return s.letters(ctx, a.Namespace, a.Queue, string(a.Verb), a.Limit)
}

func (s *Store) letters(ctx context.Context, ns *job.Namespace, queue, do string,
	limit int) (done int, err error) {
	n, err := s.of(ns, queue)
	if err != nil {
		return 0, err
	}
	k := n.keys(queue)
	for skip := int64(0); done < limit; {
		c := backend.NewCall(luaphp.Respawn, n.breaker, []string{k.ready, k.notify,
			k.account, k.dead, k.letters},
			do, skip, min(limit-done, respawnStep), n.Flavor.first(), flag(n.Flavor.notifies()))
		s.backend.RunDurably(ctx, s.backend.Background, []*backend.Call{c})
		if c.Err != nil {
			return done, explained(c.Err)
		}
		count, kept, left := c.Rest.Int(), c.Rest.Int(), c.Rest.Int()
		if c.Rest.Broken {
			return done, c.Misread()
		}
		done += int(count)
		if skip += kept; count+kept == 0 || left <= skip {
			return done, nil
		}
	}
	return done, nil
}

// Purge deletes the payloads of a queue: the ready ones, or all but what PHP's workers hold.
func (s *Store) Purge(ctx context.Context, ns *job.Namespace, queue string,
	all bool) (deleted int64, err error) {
	n, err := s.of(ns, queue)
	if err != nil {
		return 0, err
	}
	what := "ready"
	if all {
		what = "all"
	}
	for {
		c := backend.NewCall(luaphp.Purge, n.breaker, n.keys(queue).nine(), what,
			purgeStep, flag(n.Flavor.notifies()))
		s.backend.RunDurably(ctx, s.backend.Background, []*backend.Call{c})
		if c.Err != nil {
			return deleted, explained(c.Err)
		}
		looked, removed := c.Rest.Int(), c.Rest.Int()
		if c.Rest.Broken {
			return deleted, c.Misread()
		}
		if deleted += removed; looked < purgeStep {
			return deleted, nil
		}
	}
}

// numbers are the totals of an account.
func numbers(fields map[string]string) map[string]int64 {
	totals := map[string]int64{}
	for name, text := range fields {
		if value, err := strconv.ParseInt(text, 10, 64); err == nil && name != "seq" &&
			name != "keys" {
			totals[name] = value
		}
	}
	return totals
}
