package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-io/spillway/bench/rig"
)

// rateGroups are the rows of rates.
var rateGroups = []group{
	{"rates", func() []*row {
		return []*row{
			{Key: "rates", Measure: "Redis CPU of a claim of 128 under a rate ÷ without", Goal: 1.15, AtMost: true,
				Note: "a rate that lets all pass; job.Store.Run, one queue each"},
			{Key: "rates", Measure: "jobs that three processes claim together ÷ what the rate lets pass", Goal: 0.95,
				Note: "2,000/s, burst 100, for 5 s by Redis's clock, with work all the time; a job more than the rate lets pass is a fault"},
		}
	}, rates},
}

const (
	sharedRate  = 2000 // jobs a second
	sharedBurst = 100
	rateFor     = 5 * time.Second
)

func rates(ctx context.Context, m *measurement) error {
	r, err := m.jobRig(ctx, false)
	if err != nil {
		return err
	}
	defer r.close()
	store, closed, err := openJobs(ctx, r.redisURL, false, rated("rated", 100_000, 10_000))
	if err != nil {
		return err
	}
	defer closed()
	r.jobs, r.ns = store, store.Namespace(jobNamespace)
	queues := []string{"rated", "plain"}
	var us [2]float64
	for turn := range scriptTurns + 1 { // the first warms both up
		for i := range queues {
			i = (i + turn) % len(queues) // what comes first finds fewer leases
			calls, queue := m.jobs.bulkCalls, queues[i]
			if _, err := r.cpuOfCalls(ctx, calls, r.publisher(ctx, []string{queue}, messages(bulk, m.payload))); err != nil {
				return err
			}
			lane := r.jobs.NewLane()
			spent, err := r.cpuOfCalls(ctx, calls, func(int) error {
				rig.Sleep(ctx, time.Millisecond) // below the rate
				c := claimJobs(ctx, r.jobs, lane, queue, bulk)
				if c.Err == nil && len(c.Jobs) != bulk {
					return fmt.Errorf("claimed %d of %d", len(c.Jobs), bulk)
				}
				return c.Err
			})
			if err != nil {
				return err
			}
			if turn > 0 {
				us[i] += spent / scriptTurns
			}
		}
	}
	m.rows[0].add(us[0], us[1], nil)
	return m.shareRate(ctx, r)
}

// shareRate lets three processes claim from one queue as fast as its rate lets them.
func (m *measurement) shareRate(ctx context.Context, r *jobRig) error {
	publish := r.publisher(ctx, []string{"slow"}, messages(bulk, m.payload))
	for i := range 2 * sharedRate * int(rateFor/time.Second) / bulk {
		if err := publish(i); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	var first, last int64 // when jobs were claimed, ms of Redis's clock
	var failed error
	claimed := 0
	var claiming sync.WaitGroup
	for range 3 {
		store, closed, err := openJobs(ctx, r.redisURL, false, rated("slow", sharedRate, sharedBurst))
		if err != nil {
			return err
		}
		defer closed()
		claiming.Go(func() {
			lane := store.NewLane()
			for end := time.Now().Add(rateFor); time.Now().Before(end) && ctx.Err() == nil; {
				c := claimJobs(ctx, store, lane, "slow", bulk)
				mu.Lock()
				if failed = c.Err; failed == nil && len(c.Jobs) > 0 {
					now := c.Jobs[0].Now
					if claimed += len(c.Jobs); first == 0 || now < first {
						first = now
					}
					last = max(last, now)
				}
				mu.Unlock()
				if c.Err != nil {
					return
				}
				if len(c.Held) > 0 {
					rig.Sleep(ctx, time.Duration(c.Held[0])*time.Millisecond)
				}
			}
		})
	}
	claiming.Wait()
	passes := float64(last-first)/1000*sharedRate + sharedBurst
	if float64(claimed) > passes+sharedRate/1000 { // the clock is read in ms
		m.fault("%d jobs were claimed, and the rate lets %.0f pass", claimed, passes)
	}
	m.rows[1].add(float64(claimed), passes, nil)
	return failed
}
