package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

const (
	scriptTurns = 2 // of each verb a round
	farDelay    = 24 * time.Hour
)

// jobScripts measures what a publish costs Redis beside a produce.
func jobScripts(ctx context.Context, m *measurement) error {
	r, err := m.jobRig(ctx, false)
	if err != nil {
		return err
	}
	defer r.close()
	if _, err := r.store.Check(ctx); err != nil { // loads the scripts
		return err
	}
	var published int64
	for i, size := range []int{1, bulk} {
		calls := m.jobs.calls
		if size > 1 {
			calls = m.jobs.bulkCalls
		}
		publish, produce := r.publisher(ctx, m.queueNames(), messages(size, m.payload)), r.producer(ctx, m.queueNames(), size, m.payload)
		var ours, other float64
		for turn := range scriptTurns + 1 { // the first warms both up
			for _, side := range []struct {
				call func(int) error
				sum  *float64
			}{{publish, &ours}, {produce, &other}} {
				us, err := r.cpuOfCalls(ctx, calls, side.call)
				if err != nil {
					return err
				}
				if turn > 0 {
					*side.sum += us / scriptTurns
				}
			}
			published += int64(calls * size)
		}
		m.rows[i].add(ours, other, nil)
	}
	a, err := r.ledger(ctx)
	if err != nil {
		return err
	}
	if a.Accepted != published || a.Buffered != published {
		m.fault("%d entries produced; ledger %+v", published, a)
	}
	_, err = m.law(ctx, r, ready(published))
	return err
}

// cpuOfCalls is the µs of Redis's CPU that one of these calls takes.
func (r *jobRig) cpuOfCalls(ctx context.Context, calls int, call func(int) error) (float64, error) {
	_, before, err := r.spent(ctx)
	if err != nil {
		return 0, err
	}
	for i := range calls {
		if err := call(i); err != nil {
			return 0, err
		}
	}
	_, after, err := r.spent(ctx)
	return (after - before) * 1e6 / float64(calls), err
}

// publisher publishes jobs, one call of the script each time.
func (r *jobRig) publisher(ctx context.Context, queues []string, jobs []job.Message) func(int) error {
	lane := r.jobs.NewLane()
	return func(i int) error {
		return publishJobs(ctx, r.jobs, lane, &job.Publish{Namespace: r.ns, Queue: queues[i%len(queues)], Tries: 3, Messages: jobs})
	}
}

// producer produces entries of the same size likewise.
func (r *jobRig) producer(ctx context.Context, partitions []string, n, size int) func(int) error {
	now, _ := r.store.Now()
	entries := make([][]byte, n)
	for i, j := range messages(n, size) {
		entries[i] = partition.AppendEntry(nil, now, nil, j.Payload)
	}
	return func(i int) error {
		g := &partition.Group{Namespace: r.store.Namespace("default"), Partition: partitions[i%len(partitions)], Entries: entries}
		if r.store.Produce(ctx, []*partition.Group{g}); g.Err != nil || g.Accepted != n {
			return fmt.Errorf("produce: accepted %d of %d: %w", g.Accepted, n, g.Err)
		}
		return nil
	}
}

// jobBytes measures what jobs take in Redis.
func jobBytes(ctx context.Context, m *measurement) error {
	for i, delay := range []time.Duration{0, farDelay} {
		bytes, err := m.bytesOf(ctx, delay)
		if err != nil {
			return err
		}
		m.rows[i].add(bytes, 0, nil)
	}
	return nil
}

func (m *measurement) bytesOf(ctx context.Context, delay time.Duration) (float64, error) {
	r, err := m.jobRig(ctx, false)
	if err != nil {
		return 0, err
	}
	defer r.close()
	before, _, err := r.redisMemory(ctx)
	if err != nil {
		return 0, err
	}
	lane, jobs, queues := r.jobs.NewLane(), messages(job.MaxMessages, m.payload), m.queueNames()
	for i := range m.jobs.stored / job.MaxMessages {
		if err := publishJobs(ctx, r.jobs, lane, &job.Publish{
			Namespace: r.ns, Queue: queues[i%len(queues)], Delay: delay, Tries: 3, Messages: jobs,
		}); err != nil {
			return 0, err
		}
	}
	after, _, err := r.redisMemory(ctx)
	if err != nil {
		return 0, err
	}
	all := int64(m.jobs.stored)
	want := ready(all)
	if delay > 0 {
		want = job.Ledger{Published: all, Delayed: all}
	}
	_, err = m.law(ctx, r, want)
	return float64(after-before) / float64(all), err
}

const (
	delayedQueues = 1_000
	onPaper       = 10_000_000
	slowFrom      = 0 // µs: Redis keeps every call in its SLOWLOG
	slowKept      = 100_000
)

// delayedJobs measures the memory of delayed jobs, and the promoter when many come due.
func delayedJobs(ctx context.Context, m *measurement) error {
	r, err := m.jobRig(ctx, false)
	if err != nil {
		return err
	}
	defer r.close()
	all, due := int64(m.jobs.delayed), int64(m.jobs.due)
	before, _, err := r.redisMemory(ctx)
	if err != nil {
		return err
	}
	lane, jobs := r.jobs.NewLane(), messages(job.MaxMessages, m.payload)
	for i := range m.jobs.delayed / job.MaxMessages {
		p := &job.Publish{Namespace: r.ns, Queue: fmt.Sprint("bench-", i%delayedQueues), Delay: farDelay, Tries: 3, Messages: jobs}
		if i < m.jobs.due/job.MaxMessages {
			p.Delay = time.Millisecond
		}
		if err := publishJobs(ctx, r.jobs, lane, p); err != nil {
			return err
		}
	}
	after, _, err := r.redisMemory(ctx)
	if err != nil {
		return err
	}
	if _, err := m.law(ctx, r, job.Ledger{Published: all, Delayed: all}); err != nil {
		return err
	}
	longest, err := r.promote(ctx, due)
	if err != nil {
		return err
	}
	m.rows[0].add(float64(after-before)/float64(all)*onPaper/1e9, 0, nil)
	m.rows[1].add(milliseconds(longest), 0, nil)
	_, err = m.law(ctx, r, job.Ledger{Published: all, Ready: due, Delayed: all - due})
	return err
}

// promote runs a promoter until what is due is ready. It returns the longest call of its script.
func (r *jobRig) promote(ctx context.Context, due int64) (longest time.Duration, err error) {
	for setting, value := range map[string]int{"slowlog-log-slower-than": slowFrom, "slowlog-max-len": slowKept} {
		if err := r.client.ConfigSet(ctx, setting, fmt.Sprint(value)).Err(); err != nil {
			return 0, err
		}
	}
	p := r.promoter()
	if err := p.Start(ctx); err != nil {
		return 0, err
	}
	err = r.awaitReady(ctx, due, 10*time.Millisecond)
	if stopped := p.Stop(ctx); err == nil {
		err = stopped
	}
	if err != nil {
		return 0, err
	}
	slow, err := r.client.SlowLogGet(ctx, slowKept).Result()
	for _, call := range slow {
		if len(call.Args) > 1 && strings.EqualFold(call.Args[0], "evalsha") && call.Args[1] == luajob.Promote.SHA {
			longest = max(longest, call.Duration)
		}
	}
	if err == nil && longest == 0 {
		err = errors.New("no call of promote is in the SLOWLOG")
	}
	return longest, err
}
