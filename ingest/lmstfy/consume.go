package lmstfy

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// consume claims jobs, and waits for one.
func (c *call) consume() *rejection {
	claim, rejected := c.readClaim()
	if rejected != nil {
		return rejected
	}
	// One job is taken of the rate before the wait, and the others with the jobs: a wait must
	// not keep what others could use.
	limiter := c.key.Limiters().Consume
	taken, rejected := c.take(limiter, 1, limitConsume)
	if rejected != nil {
		return rejected
	}
	var claimed []job.Job
	var err error
	if len(claim.Queues) > 0 {
		claimed, err = c.Engine.Claim(claim)
	}
	if len(claimed) == 0 {
		taken.Refund()
		if err != nil {
			return c.failed("claim", err)
		}
		return notFound("msg", "no job available")
	}
	claimed, rejected = c.sendJobs(claimed, claim.Count > 1)
	if rejected != nil {
		taken.Refund()
		c.Engine.GiveBack(c.namespace, claimed)
		return rejected
	}
	c.Metrics.consumed(c, claimed, len(claim.Queues))
	jobs.GiveBackLost(c.Exchange, c.Engine, c.namespace, claimed)
	return nil
}

// sendJobs answers with claimed jobs, and returns those that it did not give back: where the
// rate of the token does not allow all of them, the first.
func (c *call) sendJobs(claimed []job.Job, array bool) ([]job.Job, *rejection) {
	size := 2
	for i := range claimed {
		size += c.jobSize(&claimed[i])
	}
	if rejected := c.reserve(size); rejected != nil {
		return claimed, rejected
	}
	others, within := c.takeIf(c.key.Limiters().Consume, len(claimed)-1)
	if !within {
		c.Engine.GiveBack(c.namespace, claimed[1:])
		claimed = claimed[:1]
	}
	rejected := c.send(fasthttp.StatusOK, c.appendJobs(make([]byte, 0, size), claimed, array))
	if rejected != nil {
		others.Refund()
	}
	return claimed, rejected
}

// appendJobs makes the answer: an array when the request asked for more than one job.
func (c *call) appendJobs(dst []byte, claimed []job.Job, array bool) []byte {
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

// sendJob answers with one job.
func (c *call) sendJob(j *job.Job, remainTries int) *rejection {
	size := c.jobSize(j)
	if rejected := c.reserve(size); rejected != nil {
		return rejected
	}
	return c.send(fasthttp.StatusOK, c.appendJob(make([]byte, 0, size), j, "", remainTries))
}

// jobSize is at least the length of a job as the API shows it.
func (c *call) jobSize(j *job.Job) int {
	return 256 + base64.StdEncoding.EncodedLen(len(j.Payload)) + len(j.Attributes) + len(j.ID) +
		len(j.Queue) + len(c.namespaceName)
}

// appendJob appends a job as the API shows it. remainTries is how often it may be claimed
// yet. The names have no character that JSON escapes.
func (c *call) appendJob(dst []byte, j *job.Job, msg string, remainTries int) []byte {
	dst = append(dst, `{"attributes":`...)
	if len(j.Attributes) > 0 {
		dst = append(dst, j.Attributes...)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"data":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, j.Payload)
	dst = append(dst, `","elapsed_ms":`...)
	dst = strconv.AppendInt(dst, max(0, j.Now-j.Published), 10)
	dst = append(append(dst, `,"job_id":"`...), j.ID...)
	if msg != "" {
		dst = append(append(dst, `","msg":"`...), msg...)
	}
	dst = append(append(dst, `","namespace":"`...), c.namespaceName...)
	dst = append(append(dst, `","queue":"`...), j.Queue...)
	dst = append(dst, `","remain_tries":`...)
	dst = strconv.AppendInt(dst, int64(max(0, remainTries)), 10)
	dst = append(dst, `,"ttl":`...)
	return append(strconv.AppendInt(dst, ttlSeconds(j), 10), '}')
}

// ttlSeconds is how long a job lives yet, in whole seconds, 1 at least; 0: for ever. It is
// rounded, because the clocks of this process and of Redis are some ms apart: rounded up, a
// new job would have a second more than it was given.
func ttlSeconds(j *job.Job) int64 {
	if j.Expires == 0 {
		return 0
	}
	return max(1, (j.Expires-j.Now+500)/1000)
}

// ack ends a job. Its answer is the same for one that is gone.
func (c *call) ack() *rejection {
	if rejected := c.ackJob(); rejected != nil {
		return rejected
	}
	c.Ctx.Response.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}

// ackJob acks the job of the path. An id of no job of the queue asks no store.
func (c *call) ackJob() *rejection {
	ref, ok := c.namespace.ParseID(c.queue, c.id)
	if !ok {
		return nil
	}
	a := &job.Ack{Namespace: c.namespace, Queue: c.queue, Ref: ref, By: c.key.Name()}
	if c.Engine.Ack(a); a.Err != nil {
		return c.failed("ack", a.Err)
	}
	c.Metrics.acked(c, a)
	return nil
}

// readClaim reads ttr, timeout, count and the queues. freeze_tries is ignored: tries
// bound how often a job is handed out.
func (c *call) readClaim() (claim *jobs.Claim, rejected *rejection) {
	claim = &jobs.Claim{
		Namespace: c.namespace,
		By:        c.key.Name(),
		Conn:      c.Conn(),
		Stopping:  c.Stopping(),
		Revoked:   func() bool { return c.Revoked(c.key) },
		Reserve:   func(bytes int) bool { return c.Wait(bytes) == nil },
	}
	names, none := c.queueNames()
	if claim.TTR, rejected = c.seconds("ttr", c.namespace.Lease(defaultTTR, names...)); rejected != nil {
		return nil, rejected
	}
	if claim.Wait, rejected = c.seconds("timeout", 0); rejected != nil {
		return nil, rejected
	}
	claim.Wait = min(claim.Wait, maxTimeout)
	count, valid := c.uintOf("count", 1, 32)
	if !valid || count < 1 || count > maxCount {
		return nil, badRequest("invalid count")
	}
	claim.Count = int(count) // #nosec G115 -- to 100
	if claim.Queues = names; none || len(names) > maxQueues {
		return nil, badRequest("invalid queue name(s)")
	}
	return claim, nil
}

// queueNames splits the queues of a path. none: the path names none. A queue that no job can
// be in, because its name is too long, is left out.
func (c *call) queueNames() (names []string, none bool) {
	none = true
	for name := range strings.SplitSeq(c.queue, ",") {
		none = none && name == ""
		if partition.ValidQueue(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, none
}
