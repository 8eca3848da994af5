package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// rawJobsSide is the jobs a second that a process publishes, claims and acks with the store
// alone.
func (m *measurement) rawJobsSide(ctx context.Context, size int) (float64, error) {
	r, err := m.jobRig(ctx, true)
	if err != nil {
		return 0, err
	}
	defer r.close()
	var all int64
	var res rawResult
	for _, d := range []time.Duration{warmUp / 2, m.segment / 2} {
		if res, err = r.side(ctx, "jobs", "-redis", r.redisURL, "-size", fmt.Sprint(size), "-queues", fmt.Sprint(m.partitions),
			"-payload", fmt.Sprint(m.payload), "-duration", d.String()); err != nil {
			return 0, err
		}
		all += res.Entries
	}
	_, err = m.law(ctx, r, job.Ledger{Published: all, Acked: all})
	return res.rate(), err
}

// rawJobs is the side "jobs": it publishes for a time, and claims and acks all of it.
func rawJobs(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("jobs", flag.ContinueOnError)
	url := flags.String("redis", "", "URL")
	size := flags.Int("size", 1, "jobs a publish and claim")
	queues := flags.Int("queues", 1, "")
	payload := flags.Int("payload", 0, "bytes")
	duration := flags.Duration("duration", 0, "of the publishes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	store, closed, err := openJobs(ctx, *url, true)
	if err != nil {
		return err
	}
	defer closed()
	groups := rawGroups
	if *size > 1 {
		groups = rawLeases
	}
	workers := make([]*rawWorker, rawWorkers)
	for i := range workers {
		workers[i] = &rawWorker{store: store, lane: store.NewLane(), ns: store.Namespace(jobNamespace), size: *size, groups: groups, jobs: messages(*size, *payload)}
	}
	for i, queue := range benchNames(*queues) {
		w := workers[i%len(workers)]
		w.queues = append(w.queues, queue)
	}
	var published, acked atomic.Int64
	start := time.Now()
	each := func(work func(*rawWorker) (int64, error), sum *atomic.Int64) error {
		var all sync.WaitGroup
		errs := make([]error, len(workers))
		for i, w := range workers {
			all.Go(func() {
				var n int64
				n, errs[i] = work(w)
				sum.Add(n)
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}
	if err := each(func(w *rawWorker) (int64, error) {
		return w.publish(ctx, func() bool { return ctx.Err() != nil || time.Since(start) >= *duration })
	}, &published); err != nil {
		return err
	}
	if err := each(func(w *rawWorker) (int64, error) { return w.consume(ctx) }, &acked); err != nil {
		return err
	}
	if published.Load() != acked.Load() {
		return fmt.Errorf("published %d, acked %d", published.Load(), acked.Load())
	}
	return json.NewEncoder(out).Encode(rawResult{Entries: acked.Load(), Elapsed: time.Since(start)})
}

// rawWorker has queues of its own.
type rawWorker struct {
	store  *job.Store
	lane   *job.Lane
	ns     *job.Namespace
	queues []string
	size   int // jobs a request
	groups int // requests a call of the store
	jobs   []job.Message
}

func (w *rawWorker) publish(ctx context.Context, stop func() bool) (done int64, err error) {
	for at := 0; len(w.queues) > 0 && !stop(); at += w.groups {
		all := make([]*job.Publish, min(w.groups, len(w.queues)))
		for i := range all {
			all[i] = &job.Publish{Namespace: w.ns, Queue: w.queues[(at+i)%len(w.queues)], Tries: 3, Messages: w.jobs}
		}
		if err := publishJobs(ctx, w.store, w.lane, all...); err != nil {
			return done, err
		}
		done += int64(len(all) * w.size)
	}
	return done, nil
}

// consume claims and acks until its queues have no more. The acks of what was claimed go
// with the next claims.
func (w *rawWorker) consume(ctx context.Context) (done int64, err error) {
	b := &job.Batch{}
	for left := w.queues; len(left) > 0 || len(b.Acks) > 0; {
		turn := left[:min(w.groups, len(left))]
		rest := left[len(turn):]
		left = rest[:len(rest):len(rest)]
		b.Claims = nil
		for _, queue := range turn {
			b.Claims = append(b.Claims, &job.Claim{Namespace: w.ns, Queues: []string{queue}, TTR: 10 * time.Minute, Count: w.size})
		}
		w.store.Run(ctx, w.lane, b)
		for _, a := range b.Acks {
			if !a.Acked {
				return done, fmt.Errorf("ack: not acked: %w", a.Err)
			}
		}
		done += int64(len(b.Acks))
		b.Acks = nil
		for i, c := range b.Claims {
			if c.Err != nil {
				return done, fmt.Errorf("claim: %w", c.Err)
			}
			if len(c.Jobs) > 0 {
				left = append(left, turn[i])
			}
			for _, j := range c.Jobs {
				b.Acks = append(b.Acks, &job.Ack{Namespace: w.ns, Queue: j.Queue, Ref: j.Ref})
			}
		}
	}
	return done, nil
}

// benchNames are names of n partitions or queues.
func benchNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("bench-", i)
	}
	return names
}
