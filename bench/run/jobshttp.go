package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/bench"
)

// jobsOverHTTP measures the native API beside the raw scripts.
func jobsOverHTTP(ctx context.Context, m *measurement) error {
	for i, size := range []int{1, bulk} {
		ours, c, err := m.nativeSide(ctx, size)
		if err != nil {
			return err
		}
		other, err := m.rawJobsSide(ctx, size)
		if err != nil {
			return err
		}
		m.rows[i].add(ours, other, &c)
	}
	return nil
}

// connectionsFor is how many connections requests of size jobs use.
func connectionsFor(size int) int {
	if size > 1 {
		return batchConns
	}
	return manyConns
}

// nativeSide is the jobs a second that are published, claimed and acked over the native API.
func (m *measurement) nativeSide(ctx context.Context, size int) (rate float64, c costs, err error) {
	r, err := m.servedJobs(ctx)
	if err != nil {
		return 0, c, err
	}
	defer r.close()
	publish := jobTurn{url: r.data, connections: connectionsFor(size), ask: m.nativePublish(size), duration: warmUp / 2}
	claim := jobTurn{url: r.data, connections: publish.connections, ask: m.nativeClaim(size)}
	var all int64
	turn := func() (jobs int64, elapsed time.Duration, err error) {
		jobs, in, err := publish.run(ctx)
		if err != nil || jobs == 0 {
			return jobs, in, err
		}
		claim.jobs = jobs
		_, out, err := claim.run(ctx)
		all += jobs
		return jobs, in + out, err
	}
	if _, _, err := turn(); err != nil { // warms up
		return 0, c, err
	}
	before, err := r.usage(ctx)
	if err != nil {
		return 0, c, err
	}
	publish.duration = m.segment / 2
	jobs, elapsed, err := turn()
	if err != nil {
		return 0, c, err
	}
	now, err := r.usage(ctx)
	if err != nil {
		return 0, c, err
	}
	c = now.since(before, jobs)
	c.Residual, err = m.law(ctx, r, acked(all))
	return float64(jobs) / elapsed.Seconds(), c, err
}

// nativePublish publishes jobs to one queue a request, to all queues in turn.
func (m *measurement) nativePublish(size int) func(*jobConn, int64) (int, error) {
	targets, padding := m.targets("/v1/"+jobNamespace+"/", ""), bench.Padding(m.payload)
	contentType := "application/json"
	if size > 1 {
		contentType = "application/x-ndjson"
	}
	return func(c *jobConn, i int64) (int, error) {
		c.body = c.body[:0]
		for n := range int64(size) {
			c.body = bench.AppendPayload(c.body, i*int64(size)+n, padding)
			if size > 1 {
				c.body = append(c.body, '\n')
			}
		}
		_, err := c.must(200, "POST", targets[i%int64(len(targets))], contentType)
		return size, err
	}
}

// nativeClaim claims jobs of one queue, and acks them.
func (m *measurement) nativeClaim(size int) func(*jobConn, int64) (int, error) {
	claims := m.targets("/v1/"+jobNamespace+"/", fmt.Sprintf("/claim?ttr=10m&count=%d", size))
	settles := m.targets("/v1/"+jobNamespace+"/", "/settle")
	return func(c *jobConn, i int64) (int, error) {
		at := i % int64(len(claims))
		c.body = c.body[:0]
		answer, err := c.must(200, "POST", claims[at], "")
		if err != nil {
			return 0, err
		}
		return c.ackAll(settles[at], answer)
	}
}

// ackAll acks the jobs of an answer and returns how many they were.
func (c *jobConn) ackAll(target string, claimed []byte) (int, error) {
	ids := idsIn(claimed, `"id":"`)
	if len(ids) == 0 {
		return 0, nil
	}
	c.body = c.body[:0]
	for _, id := range ids {
		c.body = append(append(append(c.body, `{"id":"`...), id...), `","do":"ack"}`+"\n"...)
	}
	answer, err := c.must(200, "POST", target, "application/x-ndjson")
	if n := bytes.Count(answer, []byte(`"state":"acked"`)); err == nil && n != len(ids) {
		err = fmt.Errorf("%d of %d jobs acked: %.200s", n, len(ids), answer)
	}
	return len(ids), err
}

// targets are the paths of one route for all queues.
func (m *measurement) targets(before, after string) []string {
	all := m.queueNames()
	for i, queue := range all {
		all[i] = before + queue + after
	}
	return all
}
