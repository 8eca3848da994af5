package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
)

const (
	// pollCommands is by how much what goes on without polls may vary, a second.
	pollCommands = 5
	wakeRate     = 200 // a second
	wakeSenders  = 4
	pollBuffer   = 1024 // bytes: an answer's head
)

// jobPolls measures claims that wait.
func jobPolls(ctx context.Context, m *measurement) (err error) {
	r, err := m.servedJobs(ctx, "--max-conns=20000")
	if err != nil {
		return err
	}
	defer r.close()
	// The server's memory, and what it asks Redis, are those of one that was in use.
	warm := jobTurn{url: r.data, connections: batchConns, ask: m.nativePublish(1), duration: warmUp}
	all, _, err := warm.run(ctx)
	if err != nil {
		return err
	}
	warm.ask, warm.duration, warm.jobs = m.nativeClaim(1), 0, all
	if _, _, err := warm.run(ctx); err != nil {
		return err
	}
	rig.Sleep(ctx, idleSettle)
	before, err := r.server.RSS()
	if err != nil {
		return err
	}
	without, err := r.commandsNow(ctx, m.jobs.watched)
	if err != nil {
		return err
	}

	w := &wakes{polls: m.jobs.polls, answered: make([]time.Time, int(wakeRate*m.segment.Seconds())+1)}
	w.received = make([]time.Time, len(w.answered))
	polls, err := w.open(ctx, r.data)
	defer func() { err = errors.Join(err, w.close(polls)) }()
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := r.pollsOpen(wait, float64(w.polls)); err != nil {
		return err
	}
	rig.Sleep(ctx, idleSettle)
	with, err := r.commandsNow(ctx, m.jobs.watched)
	if err != nil {
		return err
	}
	after, err := r.server.RSS()
	if err != nil {
		return err
	}
	if err := w.publish(ctx, r.data, m.payload); err != nil {
		return err
	}
	for wait.Err() == nil && w.acked.Load() < int64(len(w.answered)) && w.failed.Load() == nil {
		rig.Sleep(wait, time.Millisecond)
	}
	p99, err := w.p99()
	if err != nil {
		return err
	}
	m.rows[0].add(float64(after-before)/float64(w.polls)/1000, 0, nil)
	m.rows[1].add(with-without, 0, nil)
	m.rows[1].Ours[len(m.rows[1].Ours)-1], m.rows[1].Other = with, append(m.rows[1].Other, without)
	m.rows[2].add(milliseconds(p99), 0, nil)
	all += int64(len(w.answered))
	_, err = m.law(ctx, r, acked(all))
	return err
}

// commandsNow is the Redis commands a second while nothing is sent, less our own look.
func (r *setup) commandsNow(ctx context.Context, watched time.Duration) (float64, error) {
	before, _, err := r.redisCalls(ctx)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	rig.Sleep(ctx, watched)
	after, _, err := r.redisCalls(ctx)
	return float64(after-before-1) / time.Since(start).Seconds(), err
}

// pollsOpen waits until the server has that many claims that wait.
func (r *setup) pollsOpen(ctx context.Context, want float64) error {
	for {
		text, err := bench.Get(ctx, r.admin+"/metrics")
		if err != nil {
			return err
		}
		open := bench.Metric(text, `spillway_jobs_polls{pool="default"}`)
		if open == want {
			return nil
		}
		if rig.Sleep(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("%v of %v polls wait: %w", open, want, ctx.Err())
		}
	}
}

// wakes are polls, each for a queue of its own, and when what was published came.
type wakes struct {
	polls              int
	answered, received []time.Time // by the number of the job; each has one writer
	acked              atomic.Int64
	closing            atomic.Bool
	failed             atomic.Pointer[error]
	readers            sync.WaitGroup
}

func pollQueue(i int) string { return fmt.Sprint("poll-", i) }

// open opens the polls. They ask again after each answer.
func (w *wakes) open(ctx context.Context, url string) (conns []*jobConn, err error) {
	for i := range w.polls {
		c, err := dialJobs(ctx, url, pollBuffer)
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
		w.readers.Go(func() {
			for !w.closing.Load() {
				if err := w.poll(c, pollQueue(i)); err != nil && !w.closing.Load() {
					w.failed.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	return conns, nil
}

// poll waits for a job, notes when it came, and acks it.
func (w *wakes) poll(c *jobConn, queue string) error {
	c.body = c.body[:0]
	status, answer, err := c.send("POST", "/v1/"+jobNamespace+"/"+queue+"/claim?wait=10m&ttr=1m", "", 10*time.Minute)
	at := time.Now()
	data := idsIn(answer, `"data":"`)
	if err != nil || status != 200 || len(data) != 1 {
		return fmt.Errorf("poll: status %d: %.200s: %w", status, answer, err)
	}
	payload, err := base64.StdEncoding.AppendDecode(nil, data[0])
	if err != nil {
		return err
	}
	n, err := bench.PayloadNumber(payload)
	if err != nil {
		return err
	}
	w.received[n] = at
	if _, err = c.ackAll("/v1/"+jobNamespace+"/"+queue+"/settle", answer); err == nil {
		w.acked.Add(1)
	}
	return err
}

// publish publishes a job to one queue after the other, when each is due.
func (w *wakes) publish(ctx context.Context, url string, payload int) error {
	errs := make([]error, wakeSenders)
	padding := bench.Padding(payload)
	start := time.Now()
	var senders sync.WaitGroup
	for s := range wakeSenders {
		senders.Go(func() {
			c, err := dialJobs(ctx, url, pollBuffer)
			if err != nil {
				errs[s] = err
				return
			}
			defer func() { _ = c.nc.Close() }() // nothing is in flight
			for n := s; n < len(w.answered) && ctx.Err() == nil; n += wakeSenders {
				rig.Sleep(ctx, time.Until(start.Add(time.Duration(n)*time.Second/wakeRate)))
				c.body = bench.AppendPayload(c.body[:0], int64(n), padding)
				// 7,919 is a prime: neighbours are far apart, and no queue comes again soon.
				if _, errs[s] = c.must(200, "POST", "/v1/"+jobNamespace+"/"+pollQueue(n*7919%w.polls), "application/json"); errs[s] != nil {
					return
				}
				w.answered[n] = time.Now()
			}
		})
	}
	senders.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// p99 of the time from the answer of a publish to its job. Every job must have come.
func (w *wakes) p99() (time.Duration, error) {
	if err := w.failed.Load(); err != nil {
		return 0, *err
	}
	if n := w.acked.Load(); n != int64(len(w.answered)) {
		return 0, fmt.Errorf("%d of %d jobs woke their poll", n, len(w.answered))
	}
	d := bench.NewDurations(time.Minute)
	for n, at := range w.answered {
		d.Add(w.received[n].Sub(at))
	}
	return d.Quantiles().P99, nil
}

// close hangs up.
func (w *wakes) close(conns []*jobConn) error {
	w.closing.Store(true)
	for _, c := range conns {
		_ = c.nc.Close() // a poll that waits loses nothing
	}
	w.readers.Wait()
	return nil
}
