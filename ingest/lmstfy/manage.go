package lmstfy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/share"
)

// peek shows the next job of a queue.
func (c *call) peek() *rejection {
	ctx, cancel := c.deadline()
	defer cancel()
	j, err := c.Store.Peek(ctx, c.namespace, c.queue)
	if errors.Is(err, job.ErrNoJob) {
		return notFound("error", "the queue is empty")
	}
	if err != nil {
		return c.failed("peek", err)
	}
	return c.sendJob(&j, j.Tries-j.Attempt)
}

// getJob shows a job in any state.
func (c *call) getJob() *rejection {
	ref, ok := c.namespace.ParseID(c.queue, c.id)
	if !ok {
		return notFound("error", "job not found")
	}
	ctx, cancel := c.deadline()
	defer cancel()
	j, state, err := c.Store.Get(ctx, c.namespace, c.queue, ref)
	switch {
	case errors.Is(err, job.ErrNoJob), err == nil && (state == job.Gone || state == job.Expired || state == job.Acked):
		return notFound("error", "job not found")
	case err != nil:
		return c.failed("get", err)
	case j.Expires != 0 && j.Expires <= j.Now && state != job.Dead:
		return notFound("error", "job not found")
	}
	c.Metrics.add(c, 1, "pool_get_jobs")
	return c.sendJob(&j, 0)
}

// purge deletes the ready jobs of a queue.
func (c *call) purge() *rejection {
	ctx, cancel := c.workDeadline()
	defer cancel()
	if _, err := c.Store.Purge(ctx, c.namespace, c.queue, false); err != nil {
		return c.failed("purge", err)
	}
	c.Ctx.Response.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}

// size counts the ready jobs. It needs no token, so a namespace that does not exist looks
// like one without jobs.
func (c *call) size() *rejection {
	return c.writeSize(func(counts job.Counts) int64 { return counts.Ready })
}

// deadSize counts the dead letters.
func (c *call) deadSize() *rejection {
	return c.writeSize(func(counts job.Counts) int64 { return counts.Dead })
}

func (c *call) writeSize(of func(job.Counts) int64) *rejection {
	var counts job.Counts
	var err error
	switch {
	case c.namespace == nil:
	case c.anonymous:
		counts, err = c.sizes.counts(c)
	default:
		ctx, cancel := c.deadline()
		defer cancel()
		counts, err = c.Store.Counts(ctx, c.namespace, c.queue)
	}
	if err != nil {
		return c.failed("count", err)
	}
	return c.send(fasthttp.StatusOK, fmt.Appendf(nil, `{"namespace":"%s","queue":"%s","size":%d}`,
		c.namespaceName, c.queue, of(counts)))
}

// sizes are what requests without a token are told: one read a second and queue for all of
// them, in turns of their own, because nobody pays for these.
type sizes struct {
	mu      sync.Mutex
	byQueue map[target]*size
}

// size is one read; its fields are valid once done is closed.
type size struct {
	began  time.Time
	done   chan struct{}
	counts job.Counts
	err    error
}

const (
	sizeAge  = time.Second
	maxSizes = 1024 // queues; of more, each request reads
	// anonymous is the tenant of requests without a token. It is no namespace's name.
	anonymous = "no token"
)

func (all *sizes) counts(c *call) (job.Counts, error) {
	now, key := time.Now(), target{namespaceName: c.namespaceName, queue: c.queue}
	all.mu.Lock()
	s := all.byQueue[key]
	if s != nil && now.Sub(s.began) < sizeAge {
		all.mu.Unlock()
		<-s.done
		return s.counts, s.err
	}
	if len(all.byQueue) >= maxSizes {
		maps.DeleteFunc(all.byQueue, func(_ target, s *size) bool { return now.Sub(s.began) >= sizeAge })
	}
	s = &size{began: now, done: make(chan struct{}), err: partition.ErrUnavailable}
	if all.byQueue == nil {
		all.byQueue = map[target]*size{}
	}
	if len(all.byQueue) < maxSizes {
		all.byQueue[key] = s
	}
	all.mu.Unlock()
	defer close(s.done)
	ctx, cancel := context.WithTimeout(share.As(context.Background(), anonymous), storeTimeout)
	defer cancel()
	s.counts, s.err = c.Store.Counts(ctx, c.namespace, c.queue)
	return s.counts, s.err
}

// dead counts the dead letters and names the oldest.
func (c *call) dead() *rejection {
	ctx, cancel := c.deadline()
	defer cancel()
	jobs, total, err := c.Store.Dead(ctx, c.namespace, c.queue, 0, 1)
	if err != nil {
		return c.failed("list dead letters", err)
	}
	head := ""
	if len(jobs) > 0 {
		head = jobs[0].ID
	}
	return c.send(fasthttp.StatusOK, fmt.Appendf(nil, `{"deadletter_head":"%s","deadletter_size":%d,"namespace":"%s","queue":"%s"}`,
		head, total, c.namespaceName, c.queue))
}

// respawn makes the oldest dead letters ready for one try more.
func (c *call) respawn() *rejection {
	limit, rejected := c.limit()
	if rejected != nil {
		return rejected
	}
	ttl, rejected := c.seconds("ttl", defaultTTL)
	if rejected != nil {
		return rejected
	}
	ctx, cancel := c.workDeadline()
	defer cancel()
	n, err := c.Store.ActOnDead(ctx, &job.DeadAct{
		Namespace: c.namespace,
		Queue:     c.queue,
		Verb:      job.RespawnDead,
		Limit:     limit,
		TTL:       ttl,
	})
	if err != nil && n == 0 { // else the client hears how many, and may ask again
		return c.failed("respawn", err)
	}
	c.Metrics.add(c, float64(n), "deadletter_respawn_jobs")
	return c.send(fasthttp.StatusOK, fmt.Appendf(nil, `{"count":%d,"msg":"respawned"}`, n))
}

// deleteDead deletes the oldest dead letters.
func (c *call) deleteDead() *rejection {
	limit, rejected := c.limit()
	if rejected != nil {
		return rejected
	}
	ctx, cancel := c.workDeadline()
	defer cancel()
	if _, err := c.Store.ActOnDead(ctx, &job.DeadAct{
		Namespace: c.namespace,
		Queue:     c.queue,
		Verb:      job.DeleteDead,
		Limit:     limit,
	}); err != nil {
		return c.failed("delete dead letters", err)
	}
	c.Ctx.Response.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}
