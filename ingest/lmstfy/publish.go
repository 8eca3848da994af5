package lmstfy

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"unsafe"

	"github.com/tidwall/gjson"
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

const (
	maxJob      = 1 << 20  // bytes
	maxBulkBody = 16 << 20 // bytes
	maxBulk     = 64       // jobs
)

// MaxBody is the largest body of the API, in bytes.
const MaxBody = maxBulkBody

// publish stores the body as one job.
func (c *call) publish() *rejection {
	p, rejected := c.readPublish()
	if rejected != nil {
		return rejected
	}
	body, rejected := c.readBody(maxJob)
	if rejected != nil {
		return rejected
	}
	attributes, rejected := c.attributes()
	if rejected != nil {
		return rejected
	}
	p.Messages = []job.Message{{Payload: body, Attributes: attributes}}
	if rejected := c.store(p); rejected != nil {
		return rejected
	}
	answer := c.namespace.AppendID([]byte(`{"job_id":"`), p.Shard, p.Queue, p.First, "")
	return c.send(fasthttp.StatusCreated, append(answer, `","msg":"published"}`...))
}

// publishBulk stores each value of a JSON array as a job, all or none.
func (c *call) publishBulk() *rejection {
	p, rejected := c.readPublish()
	if rejected != nil {
		return rejected
	}
	body, rejected := c.readBody(maxBulkBody)
	if rejected != nil {
		return rejected
	}
	attributes, rejected := c.attributes()
	if rejected != nil {
		return rejected
	}
	values, rejected := bulkValues(body)
	if rejected != nil {
		return rejected
	}
	for _, value := range values {
		p.Messages = append(p.Messages, job.Message{Payload: value, Attributes: attributes})
	}
	if rejected := c.store(p); rejected != nil {
		return rejected
	}
	answer := append(make([]byte, 0, 64+32*len(values)), `{"job_ids":[`...)
	for i := range values {
		if i > 0 {
			answer = append(answer, ',')
		}
		answer = append(c.namespace.AppendID(
			append(answer, '"'),
			p.Shard,
			p.Queue,
			p.First+int64(i),
			"",
		), '"')
	}
	return c.send(fasthttp.StatusCreated, append(answer, `],"msg":"published"}`...))
}

// bulkValues returns the raw texts of the values of a JSON array. It stops at the first too
// many: an array of 16 MiB may have 8 million values.
func bulkValues(body []byte) (values [][]byte, rejected *rejection) {
	array := gjson.Parse(unsafe.String(unsafe.SliceData(body), len(body))) // no second 16 MiB that nothing reserves
	if !json.Valid(body) || !array.IsArray() && array.Type != gjson.Null {
		return nil, badRequest("request body should be an array of objects")
	}
	array.ForEach(func(_, value gjson.Result) bool {
		values = append(values, unsafe.Slice(unsafe.StringData(value.Raw), len(value.Raw)))
		return len(values) <= maxBulk
	})
	switch {
	case len(values) == 0 || array.Type == gjson.Null:
		return nil, badRequest("no jobs")
	case len(values) > maxBulk:
		return nil, badRequest("too many jobs")
	}
	for _, value := range values {
		if len(value) > maxJob {
			return nil, reject(wire.CodeEntryTooLarge, fasthttp.StatusRequestEntityTooLarge, "job too large")
		}
	}
	return values, nil
}

// republish stores the body as a job, and then acks another. A job that a bad parameter
// or an outage keeps from being stored does not cost the other.
func (c *call) republish() *rejection {
	if rejected := c.publish(); rejected != nil {
		return rejected
	}
	return c.ackJob()
}

// store publishes, within the token's rate of jobs.
func (c *call) store(p *job.Publish) *rejection {
	taken, rejected := c.take(c.key.Limiters().Produce, len(p.Messages), limitProduce)
	if rejected != nil {
		return rejected
	}
	p.Shard = p.Namespace.HomeOf(p, rand.Uint64())
	if c.Engine.Publish(p); p.Err != nil {
		if !errors.Is(p.Err, partition.ErrUnknown) { // else it may be stored
			taken.Refund()
		}
		return c.failed("publish", p.Err)
	}
	c.Metrics.published(c, p)
	return nil
}

// full answers that a namespace takes no more; nil: err says another thing.
func full(err error) *rejection {
	r := &rejection{status: fasthttp.StatusTooManyRequests, field: "msg", code: wire.CodeTooManyPartitions}
	switch {
	case errors.Is(err, job.ErrTooManyJobs):
		r.text = "the namespace holds as many jobs as it may, please retry later"
	case errors.Is(err, job.ErrTooManyQueues):
		r.text = "the namespace has as many queues as it may, please retry later"
	default:
		return nil
	}
	return r
}

func (c *call) readBody(limit int) ([]byte, *rejection) {
	body, rejected := c.RawBody(limit)
	if rejected != nil {
		return nil, rejectedBody(rejected)
	}
	return body, nil
}

// readPublish reads delay, ttl and tries.
func (c *call) readPublish() (p *job.Publish, rejected *rejection) {
	p = &job.Publish{Namespace: c.namespace, Queue: c.queue, By: c.key.Name()}
	if p.Delay, rejected = c.seconds("delay", c.namespace.Delay(c.queue)); rejected != nil {
		return nil, rejected
	}
	if p.TTL, rejected = c.seconds("ttl", defaultTTL); rejected != nil {
		return nil, rejected
	}
	if p.TTL > 0 && p.TTL < p.Delay {
		return nil, badRequest("ttl is shorter than delay")
	}
	tries, valid := c.uintOf("tries", 1, 16)
	switch {
	case !valid:
		return nil, badRequest("invalid tries")
	case tries == 0:
		return nil, badRequest("tries shouldn't be zero")
	}
	p.Tries = int(tries) // #nosec G115 -- 16 bits
	return p, nil
}
