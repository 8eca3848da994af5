package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// Bounds of reads.
const (
	maxCountedMembers = 20_000 // delayed or leased jobs of a shard that Counts looks at
	maxDeadPage       = 100
	deadPageBytes     = 1 << 20
)

// MaxQueueNames is how many names Queues returns at most.
const MaxQueueNames = 100_000

// read runs calls that only read, once a read slot is free.
func (s *core) read(ctx context.Context, calls ...*backend.Call) error {
	return s.reads.Do(ctx, func() error {
		s.backend.Run(ctx, s.backend.Background, calls)
		for _, c := range calls {
			if c.Err != nil {
				return c.Err
			}
		}
		return nil
	})
}

// inspector has the reads of a Store, and what an operator does with its queues.
type inspector struct{ *core }

// Peek returns the ready job of a queue that a claim would get next, or ErrNoJob. It changes
// nothing. Where the queue is spread over shards, it is the one published first.
func (s *inspector) Peek(ctx context.Context, ns *Namespace, queue string) (Job, error) {
	if !partition.ValidQueue(queue) {
		return Job{}, ErrBadArgument
	}
	shards := ns.Shards(queue)
	calls := make([]*backend.Call, len(shards))
	for i, number := range shards {
		sh := ns.shardAt(number)
		calls[i] = backend.NewCall(luajob.Peek, sh.Breaker,
			[]string{sh.ready(queue), sh.jobs(queue), sh.attempts}, queue)
	}
	if err := s.read(ctx, calls...); err != nil {
		return Job{}, err
	}
	var best Job
	for i, c := range calls {
		if c.Rest.Int() == 0 && !c.Rest.Broken {
			continue
		}
		seq := c.Rest.Bulk()
		attempts := c.Rest.Int()
		record := c.Rest.Bulk()
		j := Job{Queue: queue, Attempt: int(attempts), Now: c.Now}
		j.Shard = shards[i]
		j.Seq, _ = number(seq)
		if c.Rest.Broken || !parseRecord(record, &j) {
			return Job{}, c.Misread()
		}
		if best.Seq == 0 || j.Seq < best.Seq {
			best = j
		}
	}
	if best.Seq == 0 {
		return Job{}, ErrNoJob
	}
	return ns.complete(best), nil
}

// complete sets what follows from the reference of a job.
func (n *Namespace) complete(j Job) Job {
	list := []Job{j}
	list[0].Published = j.Seq / 1000
	n.setIDs(list)
	return list[0]
}

// Get returns a job and the state it is in: Ready, Delayed, Prepared, Leased or Dead, or Acked where
// it is kept; or ErrNoJob.
func (s *inspector) Get(ctx context.Context, ns *Namespace, queue string, ref Ref) (Job, State, error) {
	j, state, err := s.get(ctx, ns, queue, ref, false)
	list := []Job{j}
	if err == nil {
		err = s.OnEnds(ctx, ns, list)
	}
	return list[0], state, err
}

// OnEnds sets OnEnd of jobs, which few readers want to know.
func (s *inspector) OnEnds(ctx context.Context, ns *Namespace, jobs []Job) error {
	pipe := s.backend.Background.Pipeline()
	watched := make([]*redis.StringCmd, len(jobs))
	for i, j := range jobs {
		watched[i] = pipe.HGet(ctx, ns.shardAt(j.Shard).onEnd, traceMember(j.Seq, j.Queue))
	}
	return s.reads.Do(ctx, func() error {
		_, _ = pipe.Exec(ctx) // each command has its own error
		for i, w := range watched {
			if err := w.Err(); err != nil && !errors.Is(err, redis.Nil) {
				return backend.Classify(err)
			}
			for line := range strings.Lines(w.Val()) {
				if line[0] == 'q' {
					jobs[i].OnEnd = strings.TrimSpace(line[1:])
				}
			}
		}
		return nil
	})
}

// Await is Get without payload and attributes, which cost the most. Where the job has not ended, its
// end is a WakeEnded for everybody who wants EndsQueue of its shard: until then nothing has to be asked.
// It is best effort, as wakes are: a full store notes nothing.
func (s *inspector) Await(ctx context.Context, ns *Namespace, queue string, ref Ref) (Job, State, error) {
	return s.get(ctx, ns, queue, ref, true)
}

func (s *inspector) get(ctx context.Context, ns *Namespace, queue string, ref Ref, await bool) (j Job, state State, err error) {
	sh, err := s.findJob(ctx, ns, queue, ref)
	if err != nil {
		return Job{}, Gone, err
	}
	keys := []string{
		sh.lease,
		sh.delay,
		sh.attempts,
		sh.jobs(queue),
		sh.dead(queue),
		sh.ids(queue),
	}
	argv := []any{queue, ref.Seq, 1}
	if await {
		keys = append(keys, sh.Ledger, sh.onEnd)
		argv[2] = 0
		argv = append(argv, fmt.Sprint(s.wake, " ", sh.channel, EndsQueue))
	}
	calls := []*backend.Call{backend.NewCall(luajob.Get, sh.Breaker, keys, argv...)}
	if ns.keepAcked(queue).KeepAcked > 0 { // a job that is acked meanwhile is in the second
		calls = append(calls, backend.NewCall(luajob.Get, sh.Breaker,
			[]string{
				sh.lease,
				sh.delay,
				sh.attempts,
				sh.acked(queue),
				sh.until(queue),
				sh.acked(queue),
			}, argv[:3]...))
	}
	if err := s.read(ctx, calls...); err != nil {
		return Job{}, Gone, err
	}
	for i, c := range calls {
		if j, state, err = ns.readJob(c, queue, ref, i > 0); !errors.Is(err, ErrNoJob) {
			break
		}
	}
	return j, state, err
}

// readJob reads the answer of get; kept: it is about acked jobs, which are kept as dead ones are.
func (n *Namespace) readJob(c *backend.Call, queue string, ref Ref, kept bool) (j Job, state State, err error) {
	if c.Rest.Int() == 0 && !c.Rest.Broken {
		return Job{}, Gone, ErrNoJob
	}
	name := c.Rest.Bulk()
	at := c.Rest.Int()
	reason := c.Rest.Int()
	attempts := c.Rest.Int()
	record := c.Rest.Bulk()
	j = Job{
		Queue:   queue,
		Ref:     ref,
		Attempt: int(attempts),
		At:      at,
		Now:     c.Now,
	}
	said := c.Rest.Bulk()
	progress := c.Rest.Bulk()
	state = StateOf(string(name))
	if c.Rest.Broken || state == Gone || !parseRecord(record, &j) {
		return Job{}, Gone, c.Misread()
	}
	switch {
	case kept:
		state = Acked
		j.acked(said)
	case state == Dead:
		j.died(reason, said)
	case state == Leased:
		j.Deferred = reason == 1
	}
	j.Progress = j.progress(progress)
	if j.CallerID != ref.CallerID || kept && at <= c.Now {
		return Job{}, Gone, ErrNoJob
	}
	if !kept && state != Dead {
		j.Errors = failures(said)
	}
	return n.complete(j), state, nil
}

// died sets what the store knows of a death. The attempts of a dead job are forgotten, but where its
// tries are used up they are its tries, and an error of the ms of its death says of which attempt it is.
func (j *Job) died(reason int64, errors []byte) {
	if reason > 0 && reason <= int64(Undecided) {
		j.Reason = Reason(reason)
	}
	j.Errors = failures(errors)
	switch {
	case j.Reason == Nacked || j.Reason == Lapsed:
		j.Attempt = j.Tries
	case len(j.Errors) > 0 && j.Errors[0].AtMS == j.At:
		j.Attempt = j.Errors[0].Attempt
	default:
		j.Attempt = -1
	}
}

// Counts counts the jobs of a queue.
func (s *inspector) Counts(ctx context.Context, ns *Namespace, queue string) (total Counts, err error) {
	list, err := s.CountAll(ctx, ns, []string{queue})
	if err != nil {
		return Counts{}, err
	}
	return list[0], nil
}

// CountAll counts the jobs of queues, at most 64.
func (s *inspector) CountAll(ctx context.Context, ns *Namespace, queues []string) ([]Counts, error) {
	if len(queues) == 0 || len(queues) > maxCallQueues {
		return nil, ErrBadArgument
	}
	var calls []*backend.Call
	var of [][]int // the queues of each call
	for _, sh := range ns.all() {
		var here []int
		keys, argv := []string{sh.lease, sh.delay, sh.tombstones}, []any{maxCountedMembers}
		for i, queue := range queues {
			if !partition.ValidQueue(queue) {
				return nil, ErrBadArgument
			}
			if slices.Contains(ns.Shards(queue), sh.Number) {
				keys, argv = append(keys, sh.ready(queue), sh.jobs(queue),
					sh.dead(queue)), append(argv, queue)
				here = append(here, i)
			}
		}
		if len(here) > 0 {
			calls, of = append(calls, backend.NewCall(luajob.Counts, sh.Breaker, keys,
				argv...)), append(of, here)
		}
	}
	if err := s.read(ctx, calls...); err != nil {
		return nil, err
	}
	list := make([]Counts, len(queues))
	for k, c := range calls {
		for _, i := range of[k] {
			ready := c.Rest.Int()
			delayed := c.Rest.Int()
			leased := c.Rest.Int()
			dead := c.Rest.Int()
			oldest := c.Rest.Bulk()
			if c.Rest.Broken {
				return nil, c.Misread()
			}
			list[i].add(ready, delayed, leased, dead, oldest)
		}
	}
	return list, nil
}

// add adds what a shard has. delayed is -1 where leased is the sum of both.
func (t *Counts) add(ready, delayed, leased, dead int64, oldest []byte) {
	t.Ready += ready
	t.Dead += dead
	t.Pending += max(0, delayed) + leased
	if delayed < 0 || t.Delayed < 0 {
		t.Delayed, t.Leased = -1, -1
	} else {
		t.Delayed += delayed
		t.Leased += leased
	}
	if seq, _ := number(oldest); seq > 0 && (t.OldestReady == 0 || seq/1000 < t.OldestReady) {
		t.OldestReady = seq / 1000
	}
}

// Kept counts the acked jobs that queues keep, also those whose time is over until they are dropped; nil where a queue
// has no rule that keeps any.
func (s *inspector) Kept(ctx context.Context, ns *Namespace, queues []string) (jobs []*int64, err error) {
	jobs = make([]*int64, len(queues))
	pipe := s.backend.Background.Pipeline()
	var counts []*redis.IntCmd
	var of []*int64 // each of counts is of
	for i, queue := range queues {
		if ns.keepAcked(queue).KeepAcked == 0 {
			continue
		}
		jobs[i] = new(int64)
		for _, number := range ns.Shards(queue) {
			counts, of = append(counts, pipe.ZCard(ctx, ns.shardAt(number).until(queue))), append(of, jobs[i])
		}
	}
	if len(counts) == 0 {
		return jobs, nil
	}
	err = s.reads.Do(ctx, func() error {
		if _, err := pipe.Exec(ctx); !backend.IsWrongType(err) { // a key of another type keeps none
			return backend.Classify(err)
		}
		return nil
	})
	for i, c := range counts {
		*of[i] += c.Val()
	}
	return jobs, err
}

// KeptQueues lists the queues that keep acked jobs, which need not have others: of each shard the 1,000 that are the first
// to drop one.
func (s *inspector) KeptQueues(ctx context.Context, ns *Namespace) (names []string, err error) {
	if !slices.ContainsFunc(ns.Policy.Rules, func(r Rule) bool { return r.KeepAcked > 0 }) {
		return nil, nil
	}
	err = s.reads.Do(ctx, func() error {
		for _, sh := range ns.all() {
			list, err := s.keptQueues(ctx, sh, "+inf")
			if err != nil {
				return err
			}
			names = append(names, list...)
		}
		return nil
	})
	return names, err
}

// Queues lists the queues that have jobs, in the order of their names, MaxQueueNames at most: those of
// the first shards.
func (s *inspector) Queues(ctx context.Context, ns *Namespace) ([]string, error) {
	var names []string
	err := s.reads.Do(ctx, func() (err error) {
		for _, sh := range ns.all() {
			if names, err = s.appendQueues(ctx, names, sh); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	names = slices.Compact(names) // of several shards, or moved to the next page meanwhile
	return names[:min(len(names), MaxQueueNames)], nil
}

// appendQueues appends the queues of a shard that have jobs, until there are 100,000 names
// about. A command reads 1,000: 100,000 at once are 23 ms in which Redis serves nobody else.
func (s *core) appendQueues(ctx context.Context, names []string, sh *shard) ([]string, error) {
	const page = 1000
	for from := int64(0); len(names) < MaxQueueNames; from += page {
		list, err := s.backend.Background.ZRange(ctx, sh.queues, from, from+page-1).Result()
		if err = backend.Classify(err); err != nil {
			return nil, err
		}
		names = append(names, list...)
		if len(list) < page {
			break
		}
	}
	return names, nil
}
