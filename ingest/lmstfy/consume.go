package lmstfy

import (
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

// consume claims jobs, and waits for one.
func (c *call) consume() *refusal {
	claim, refused := c.readClaim()
	if refused != nil {
		return refused
	}
	array := claim.Count > 1
	taken, refused := c.takeJobs(claim)
	if refused != nil {
		return refused
	}
	var claimed []job.Job
	var err error
	if len(claim.Queues) > 0 {
		claimed, err = c.Queues.Claim(claim)
	}
	taken.RefundPart(int64(claim.Count - len(claimed)))
	if err != nil {
		return c.failed("claim", err)
	}
	if len(claimed) == 0 {
		return notFound("msg", "no job available")
	}
	if refused := c.send(fasthttp.StatusOK, c.appendJobs(claimed, array)); refused != nil {
		c.Queues.GiveBack(c.namespace, claimed)
		return refused
	}
	c.Metrics.consumed(c, claimed, len(claim.Queues))
	return nil
}

// takeJobs takes what a claim may bring from the token's rate of jobs. Where that is too
// much, one job.
func (c *call) takeJobs(claim *jobs.Claim) (control.Taken, *refusal) {
	limiter := c.key.Limiters().Consume
	taken, refused := c.take(limiter, claim.Count, limitConsume)
	if refused == nil || claim.Count == 1 || refused.code != wire.CodeRateLimited {
		return taken, refused
	}
	claim.Count = 1
	return c.take(limiter, 1, limitConsume)
}

// appendJobs makes the answer: an array when the request asked for more than one job.
func (c *call) appendJobs(claimed []job.Job, array bool) []byte {
	size := 2
	for i := range claimed {
		size += len(claimed[i].Payload)*4/3 + len(claimed[i].Attributes) + len(claimed[i].Queue) + len(c.namespaceName) + 192
	}
	dst := make([]byte, 0, size)
	if array {
		dst = append(dst, '[')
	}
	for i := range claimed {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = c.appendJob(dst, &claimed[i], "new job", claimed[i].Tries-claimed[i].Attempt)
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
	a := &job.Ack{Namespace: c.namespace, Queue: c.queue, Ref: ref}
	if err := c.Queues.Ack(a); err != nil {
		return c.failed("ack", err)
	}
	c.Metrics.acked(c, a)
	return nil
}
