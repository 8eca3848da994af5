package lmstfy

import (
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/job"
)

// consume claims jobs, and waits for one.
func (c *call) consume() *refusal {
	claim, refused := c.readClaim()
	if refused != nil {
		return refused
	}
	array := claim.Count > 1
	refund, refused := c.takeJobs(claim)
	if refused != nil {
		return refused
	}
	var jobs []job.Job
	var err error
	if len(claim.Queues) > 0 {
		jobs, err = c.Queues.Claim(claim)
	}
	if unused := claim.Count - len(jobs); unused > 0 {
		refund(int64(unused))
	}
	if err != nil {
		return c.failed("claim", err)
	}
	if len(jobs) == 0 {
		return notFound("msg", "no job available")
	}
	if refused := c.send(fasthttp.StatusOK, c.appendJobs(jobs, array)); refused != nil {
		ctx, cancel := c.deadline()
		defer cancel()
		c.Queues.Requeue(ctx, c.namespace, jobs)
		return refused
	}
	c.Metrics.consumed(c, jobs)
	return nil
}

// takeJobs takes what a claim may bring from the token's rate of jobs. Where that is too
// much, one job.
func (c *call) takeJobs(claim *Claim) (refund func(int64), refused *refusal) {
	refund, refused = c.take(c.limits.Consume, claim.Count, limitConsume)
	if refused == nil || claim.Count == 1 || refused.code != wire.CodeRateLimited {
		return refund, refused
	}
	claim.Count = 1
	return c.take(c.limits.Consume, 1, limitConsume)
}

// appendJobs makes the answer: an array when the request asked for more than one job.
func (c *call) appendJobs(jobs []job.Job, array bool) []byte {
	size := 2
	for i := range jobs {
		size += len(jobs[i].Payload)*4/3 + len(jobs[i].Attributes) + len(jobs[i].Queue) + len(c.namespaceName) + 192
	}
	dst := make([]byte, 0, size)
	if array {
		dst = append(dst, '[')
	}
	for i := range jobs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = c.appendJob(dst, &jobs[i], "new job", jobs[i].Tries-jobs[i].Attempt)
	}
	if array {
		dst = append(dst, ']')
	}
	return dst
}

// ack ends a job. Its answer is the same for one that is gone.
func (c *call) ack() *refusal {
	if refused := c.ackJob(); refused != nil {
		return refused
	}
	c.Ctx.Response.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}

// ackJob acks the job of the path. An id of no job of the queue asks no store.
func (c *call) ackJob() *refusal {
	ref, ok := c.namespace.ParseID(c.queue, c.id)
	if !ok {
		return nil
	}
	ctx, cancel := c.deadline()
	defer cancel()
	a := &job.Ack{Namespace: c.namespace, Queue: c.queue, Ref: ref}
	if err := c.Queues.Ack(ctx, a); err != nil {
		return c.failed("ack", err)
	}
	c.Metrics.acked(c, a)
	return nil
}
