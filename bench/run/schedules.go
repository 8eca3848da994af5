package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/schedule"

	"github.com/spillway-io/spillway/bench/rig"
)

// scheduleGroups are the rows of schedules.
var scheduleGroups = []group{
	{"schedules", func() []*row {
		return []*row{
			{Key: "schedules", Measure: "bytes of Redis an idle schedule, with 150 bytes of specification", Unit: "B", Goal: 520, AtMost: true,
				Note: "used_memory; 100,000 schedules of one queue in one shard"},
			{Key: "schedules", Measure: "Redis commands of an idle process with 100,000 schedules ÷ with none", Goal: 1.1, AtMost: true,
				Note: "promoter and firer, 3 s each; commands inside scripts included"},
			{Key: "schedules", Measure: "Redis CPU of 100,000 that are due at once, all that it takes to fire them", Unit: "s", Goal: 6, AtMost: true,
				Note: "promoter and firer of one process; jobs of 200 bytes"},
			{Key: "schedules", Measure: "the same a schedule ÷ publishing a job, 128 a call", Goal: 10, AtMost: true,
				Note: "reads of what is due included; job.Store.Run, 1,000 calls after them"},
		}
	}, dueSchedules},
	{"schedules of a second", func() []*row {
		return []*row{{Key: "schedules", Measure: "p99 of published − tick, 1,000 schedules with every: 1s", Unit: "ms", Goal: 250, AtMost: true,
			Note: "all at the beginning of each second, for 10 s; three processes' promoters and firers on one Redis"}}
	}, everySecond},
}

const (
	manySchedules = 100_000
	scheduleQueue = "reports"
	idleFor       = 3 * time.Second
	dueAfter      = 30 * time.Second // by then they are put, and idle processes were watched
)

// firing runs a promoter and a firer on the store, as a process does.
func (r *jobRig) firing(ctx context.Context) (stop func(), err error) {
	p, f := r.promoter(), schedule.NewFirer(r.jobs, prometheus.NewRegistry(), zap.NewNop())
	if err := errors.Join(p.Start(ctx), f.Start(ctx)); err != nil {
		return nil, err
	}
	return func() { _ = errors.Join(p.Stop(ctx), f.Stop(ctx)) }, nil // whose errors are those of ctx
}

// idle is the commands and the CPU of an idle process.
func (r *jobRig) idle(ctx context.Context) (commands int64, err error) {
	stop, err := r.firing(ctx)
	if err != nil {
		return 0, err
	}
	defer stop()
	rig.Sleep(ctx, time.Second) // its first look
	before, _, err := r.spent(ctx)
	if err != nil {
		return 0, err
	}
	rig.Sleep(ctx, idleFor)
	after, _, err := r.spent(ctx)
	return after - before, err
}

// putSchedules makes schedules with a specification, n of them.
func (r *jobRig) putSchedules(ctx context.Context, n int, text []byte) error {
	spec, err := schedule.Parse(text)
	if err != nil {
		return err
	}
	now, err := r.jobs.Clock(ctx, r.ns, scheduleQueue)
	if err != nil {
		return err
	}
	var next atomic.Int64
	var putting sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs {
		putting.Go(func() {
			for i := next.Add(1); i <= int64(n) && errs[w] == nil; i = next.Add(1) {
				errs[w] = r.putSchedule(ctx, fmt.Sprintf("s%05d", i), spec, now)
			}
		})
	}
	putting.Wait()
	return errors.Join(errs...)
}

// dueSchedules measures schedules while they are idle, and when all are due.
func dueSchedules(ctx context.Context, m *measurement) error {
	r, err := m.jobRig(ctx, false)
	if err != nil {
		return err
	}
	defer r.close()
	none, err := r.idle(ctx)
	if err != nil {
		return err
	}
	before, _, err := r.redisMemory(ctx)
	if err != nil {
		return err
	}
	due := time.Now().Add(dueAfter).Truncate(time.Second)
	spec := fmt.Sprintf(`{"at":%q,"data":%q}`, due.UTC().Format(time.RFC3339), messages(1, m.payload)[0].Payload)
	if err := r.putSchedules(ctx, manySchedules, []byte(spec)); err != nil {
		return err
	}
	after, _, err := r.redisMemory(ctx)
	if err != nil {
		return err
	}
	m.rows[0].add(float64(after-before)/manySchedules-float64(len(spec)-150), 0, nil)
	some, err := r.idle(ctx)
	if err != nil {
		return err
	}
	m.rows[1].add(float64(some), float64(none), nil)
	if wait := time.Until(due) - 100*time.Millisecond; wait > 0 {
		rig.Sleep(ctx, wait)
	} else {
		m.fault("putting and watching took longer than %v", dueAfter)
	}
	_, start, err := r.spent(ctx)
	if err != nil {
		return err
	}
	stop, err := r.firing(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := r.awaitReady(ctx, manySchedules, 50*time.Millisecond); err != nil {
		return err
	}
	_, end, err := r.spent(ctx)
	if err != nil {
		return err
	}
	m.rows[2].add(end-start, 0, nil)
	published := int64(m.jobs.bulkCalls * bulk)
	publish, err := r.cpuOfCalls(ctx, m.jobs.bulkCalls, r.publisher(ctx, []string{scheduleQueue}, messages(bulk, m.payload)))
	if err != nil {
		return err
	}
	m.rows[3].add((end-start)*1e6/manySchedules, publish/bulk, nil)
	_, err = m.law(ctx, r, ready(manySchedules+published))
	return err
}

// everySecond measures how late the jobs of many schedules are that are due at the same time.
func everySecond(ctx context.Context, m *measurement) error {
	r, err := m.jobRig(ctx, false)
	if err != nil {
		return err
	}
	defer r.close()
	for i := range 3 {
		process := *r // which puts, too: its promoter knows of a tick that is near
		if i > 0 {
			other, closed, err := openJobs(ctx, r.redisURL, false)
			if err != nil {
				return err
			}
			defer closed()
			process.jobs = other
		}
		stop, err := process.firing(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := r.putSchedules(ctx, 1000, []byte(`{"every":"1s","data":{"n":1}}`)); err != nil {
		return err
	}
	rig.Sleep(ctx, 10*time.Second)
	var lags []time.Duration
	seen := map[string]bool{}
	lane := r.jobs.NewLane()
	for {
		c := claimJobs(ctx, r.jobs, lane, scheduleQueue, 1000)
		if c.Err != nil {
			return c.Err
		}
		for _, j := range c.Jobs {
			var a struct{ Schedule, Tick string }
			if err := json.Unmarshal(j.Attributes, &a); err != nil {
				return err
			}
			tick, err := time.Parse(time.RFC3339, a.Tick)
			if err != nil {
				return err
			}
			if key := a.Schedule + a.Tick; seen[key] {
				m.fault("%s was published twice", key)
			} else {
				seen[key] = true
			}
			lags = append(lags, time.UnixMicro(j.Seq).Sub(tick))
		}
		if len(c.Jobs) == 0 || len(lags) > 20_000 {
			break
		}
	}
	if len(lags) < 5000 {
		m.fault("%d runs in 10 s", len(lags))
	}
	slices.Sort(lags)
	m.rows[0].add(milliseconds(lags[len(lags)*99/100]), 0, nil)
	return nil
}
