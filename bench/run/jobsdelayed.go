package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/job"
)

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
	p := job.NewPromoter(r.jobs)
	if err := p.Start(ctx); err != nil {
		return 0, err
	}
	wait, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	var l job.Ledger
	for l.Ready < due && err == nil && wait.Err() == nil {
		pause(wait, 10*time.Millisecond)
		l, err = r.jobs.Ledger(ctx, r.ns)
	}
	if stopped := p.Stop(ctx); err == nil {
		err = stopped
	}
	if err == nil && l.Ready < due {
		err = fmt.Errorf("%d of %d due jobs are ready after %v", l.Ready, due, drainTimeout)
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
