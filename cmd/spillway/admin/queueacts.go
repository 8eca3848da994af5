package admin

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// MaxPublished is how many jobs a PublishRequest has at most.
const MaxPublished = job.MaxMessages

type publish struct {
	ofQueue `json:"-"`
	PublishRequest
}

// PublishRequest has jobs for a queue. Those of an application go to the data port, which takes more.
type PublishRequest struct {
	Data    []json.RawMessage `json:"data" help:"1 to 1,000 jobs, each a JSON value, stored as it is."`
	DelayMS *int64            `json:"delay_ms,omitempty" help:"Until they are ready; absent: that of the queue's rule."`
	TTLMS   int64             `json:"ttl_ms,omitempty" help:"How long they live; 0: for ever."`
	Tries   int               `json:"tries,omitempty" help:"How often they are claimed at most; 0: that of the queue's rule."`
}

// Published are the ids of the jobs of a PublishRequest, in its order.
type Published struct {
	IDs []string `json:"ids"`
}

// Count is how many jobs they are.
func (p Published) Count() int64 { return int64(len(p.IDs)) }

func (s *Server) publishJobs(r *request, body *publish) (answer Published, err error) {
	space, queue := r.jobSpace(), r.PathValue("queue")
	if r.err == nil && space.ns.PHP {
		r.fail(notHere(space.ns.Name, kindPHP, ": its jobs are payloads of its library, which the data port takes"))
	}
	if r.err != nil {
		return answer, r.err
	}
	if !partition.ValidQueue(queue) {
		return answer, wire.Reject(wire.CodeBadQueue)
	}
	p := &job.Publish{
		Namespace: space.ns,
		Queue:     queue,
		By:        r.who.name,
		TTL:       time.Duration(body.TTLMS) * time.Millisecond,
		Delay:     space.ns.Delay(queue),
		Tries:     cmp.Or(body.Tries, space.ns.Tries(queue)),
	}
	if body.DelayMS != nil {
		p.Delay = time.Duration(*body.DelayMS) * time.Millisecond
	}
	switch {
	case len(body.Data) < 1 || len(body.Data) > MaxPublished:
		return answer, badRequest("data: want 1 to %d jobs", MaxPublished)
	case body.DelayMS != nil && (*body.DelayMS < 0 || *body.DelayMS > job.MaxDelay.Milliseconds()):
		return answer, badRequest("delay_ms: want 0 to %d", job.MaxDelay.Milliseconds())
	case body.TTLMS < 0 || body.TTLMS > job.MaxTTL.Milliseconds() || p.TTL > 0 && p.TTL <= p.Delay:
		return answer, badRequest("ttl_ms: want more than delay_ms, to %d, or 0", job.MaxTTL.Milliseconds())
	case p.Tries < 1 || p.Tries > job.MaxTries:
		return answer, badRequest("tries: want 1 to %d", job.MaxTries)
	}
	for _, data := range body.Data {
		p.Messages = append(p.Messages, job.Message{Payload: data})
	}
	p.Shard = space.ns.HomeOf(p, rand.Uint64())
	space.store.Run(r.ctx, space.store.NewLane(), &job.Batch{Publishes: []*job.Publish{p}})
	answer.IDs = []string{}
	for i := range p.Count {
		answer.IDs = append(answer.IDs, space.ns.ID(p.Shard, queue, p.First+int64(i), ""))
	}
	return answer, p.Err
}
