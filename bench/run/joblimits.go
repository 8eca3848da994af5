package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
)

const (
	// roomyLimit counts leases, and holds none back.
	roomyLimit = "namespaces: {default: {}, " + jobNamespace + `: {kind: queue, queues: [{match: "*", concurrency: 10000}]}}` + "\n"
	tightLimit = "namespaces: {default: {}, " + jobNamespace + `: {kind: queue, queues: [{match: "*", concurrency: 10}]}}` + "\n"
	limit      = 10
	// limitWorkers share the slots over limitServers, and hold each for slotTime.
	limitWorkers, limitServers = 60, 3
	slotTime                   = 50 * time.Millisecond
)

// jobLimits measures queues whose leases are counted.
func jobLimits(ctx context.Context, m *measurement) error {
	with, err := m.claimedUnder(ctx, roomyLimit)
	if err != nil {
		return err
	}
	without, err := m.claimedUnder(ctx, jobsFile)
	if err != nil {
		return err
	}
	m.rows[0].add(with, without, nil)
	used, err := m.slotsUsed(ctx)
	if err == nil {
		m.rows[1].add(used, 0, nil)
	}
	return err
}

// claimedUnder is the jobs a second that are claimed and acked, one a request.
func (m *measurement) claimedUnder(ctx context.Context, text string) (rate float64, err error) {
	r, err := m.servedQueues(ctx, text)
	if err != nil {
		return 0, err
	}
	defer r.close()
	publish := jobTurn{url: r.data, connections: manyConns, ask: m.nativePublish(1)}
	claim := jobTurn{url: r.data, connections: manyConns, ask: m.nativeClaim(1)}
	var all int64
	for _, publish.duration = range []time.Duration{warmUp / 2, m.segment / 2} { // the first warms up
		jobs, _, err := publish.run(ctx)
		if err == nil && jobs == 0 {
			err = errors.New("no job was published")
		}
		if err != nil {
			return 0, err
		}
		all, claim.jobs = all+jobs, jobs
		_, elapsed, err := claim.run(ctx)
		if err != nil {
			return 0, err
		}
		rate = float64(jobs) / elapsed.Seconds()
	}
	_, err = m.law(ctx, r, acked(all))
	return rate, err
}

// slotsUsed is the share of the slots of a queue that workers at several servers hold while there is work.
func (m *measurement) slotsUsed(ctx context.Context) (used float64, err error) {
	r, err := m.servedQueues(ctx, tightLimit)
	if err != nil {
		return 0, err
	}
	defer r.close()
	others, err := r.peers(ctx, limitServers-1, "--config="+r.queuesFile(), "--role=ingest")
	defer func() { stopAll(others) }()
	if err != nil {
		return 0, err
	}
	queue := "/v1/" + jobNamespace + "/" + m.queueNames()[0]
	most := 2 * limit * int64((warmUp+m.segment)/slotTime)
	put := jobTurn{url: r.data, connections: batchConns, jobs: most, ask: func(c *jobConn, i int64) (int, error) {
		if i >= most {
			return 0, nil
		}
		c.body = bench.AppendPayload(c.body[:0], i, bench.Padding(m.payload))
		_, err := c.must(200, "POST", queue, "application/json")
		return 1, err
	}}
	if _, _, err := put.run(ctx); err != nil {
		return 0, err
	}
	var held atomic.Int64 // ns, from the end of the warm-up on
	begin := time.Now().Add(warmUp)
	end := begin.Add(m.segment)
	ask := func(c *jobConn, _ int64) (int, error) {
		c.body = c.body[:0]
		answer, err := c.must(200, "POST", queue+"/claim?ttr=10m&wait=1s", "")
		if err != nil {
			return 0, err
		}
		from := time.Now()
		rig.Sleep(ctx, slotTime)
		to := time.Now()
		jobs, err := c.ackAll(queue+"/settle", answer)
		if from.Before(begin) {
			from = begin
		}
		if to.After(end) {
			to = end
		}
		if jobs > 0 && to.After(from) {
			held.Add(int64(to.Sub(from)))
		}
		return jobs, err
	}
	done := make(chan error)
	urls := []string{r.data}
	for _, p := range others {
		urls = append(urls, p.data)
	}
	for _, url := range urls {
		work := jobTurn{url: url, connections: limitWorkers / limitServers, ask: ask, duration: warmUp + m.segment}
		go func() {
			_, _, err := work.run(ctx)
			done <- err
		}()
	}
	for range urls {
		if failed := <-done; failed != nil {
			err = failed
		}
	}
	return float64(held.Load()) / float64(limit*m.segment), err
}
