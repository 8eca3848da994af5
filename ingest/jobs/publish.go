package jobs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// publish stores the jobs of a request, all or none.
func (a *api) publish(c *call) *ingest.Rejection {
	p, shards, rejected := a.options(c, c.Ctx.Request.Header.Peek("Idempotency-Key"))
	if rejected != nil {
		return rejected
	}
	if rejected = a.messages(c, p, shards); rejected != nil {
		return a.unlessRepeated(c, p, rejected)
	}
	taken, rejected := c.take(c.key.Limiters().Produce, job.WithFollowUps(len(p.Messages), p.OnEnd))
	if rejected != nil {
		return rejected
	}
	a.Publish(p)
	if p.Err != nil {
		if !errors.Is(p.Err, partition.ErrUnknown) {
			taken.Refund()
		}
		return a.reject(c, p.Err)
	}
	changed, rejected := a.resolve(c, p)
	if rejected != nil {
		return rejected
	}
	return a.published(c, p, changed)
}

// published answers a publish.
func (a *api) published(c *call, p *job.Publish, changed bool) *ingest.Rejection {
	if !p.Exists && wire.Prefers(c.Ctx.Request.Header.Peek("Prefer"), "return=minimal") {
		c.Ctx.SetStatusCode(204)
		return nil
	}
	answer := appendPublished(nil, p)
	if changed {
		answer = append([]byte(`{"changed":true,`), answer[1:]...)
	}
	return c.Answer(200, jsonType, answer)
}

// messages reads what a publish stores.
func (a *api) messages(c *call, p *job.Publish, shards int) *ingest.Rejection {
	body, rejected := c.Body()
	if rejected != nil {
		return rejected
	}
	attributes, rejected := c.attributes()
	if rejected != nil {
		return rejected
	}
	if p.Messages, rejected = a.split(c, body, a.cfg.MaxEntry-len(attributes)); rejected != nil {
		return rejected
	}
	for i := range p.Messages {
		p.Messages[i].Attributes = attributes
	}
	if c.namespace.PHP {
		for i := range p.Messages {
			if rejected := c.mayPublish(i, p.Messages[i].Payload); rejected != nil {
				return rejected
			}
		}
	}
	if len(p.Messages) > 1 {
		switch {
		case p.CallerID != "":
			return ingest.Reject(wire.CodeBadID, "id is for one job: send one a request")
		case p.Unique > 0:
			return ingest.Reject(wire.CodeBadUnique, "unique is for one job: send one a request")
		}
	}
	if shards > 0 {
		if len(p.Messages) > 1 {
			return ingest.Reject(wire.CodeBadShards, "shards is for one job: send one a request")
		}
		if rejected := a.mayShard(len(p.Messages[0].Payload)+len(attributes), shards); rejected != nil {
			return rejected
		}
		p.Messages = sharded(p.Messages[0], shards)
	} else if rejected := a.mayStore(p.Messages); rejected != nil {
		return rejected
	}
	if c.late != nil {
		return c.late
	}
	return c.Reserve(len(p.Messages)*(publishCost+len(attributes)) + shards*len(body))
}

// unlessRepeated answers a publish that the clock or a setting rejects: it may be the repeat of one that was
// taken, for which its time has passed since, or the setting was another one.
func (a *api) unlessRepeated(c *call, p *job.Publish, rejected *ingest.Rejection) *ingest.Rejection {
	switch {
	case p.Key == "" && p.CallerID == "" && p.Unique == 0:
		return rejected
	case rejected != c.late && !slices.Contains(settingsReject, rejected.Code):
		return rejected
	}
	p.Messages, p.Delay, p.TTL, p.OnEnd, p.Prepare = nil, 0, 0, "", nil
	if a.Publish(p); p.Err != nil {
		return rejected
	}
	return a.published(c, p, false)
}

// settingsReject are the codes of what a request of the same text did not exceed before a reload.
var settingsReject = []wire.Code{wire.CodeEntryTooLarge, wire.CodeBodyTooLarge, wire.CodeTooManyEntries}

// publishEach stores messages of an adapter, each by itself.
func (a *api) publishEach(c *call, all []Message) *ingest.Rejection {
	taken, rejected := c.take(c.key.Limiters().Produce, len(all))
	if rejected != nil {
		return rejected
	}
	publishes := make([]*job.Publish, len(all))
	for i, m := range all {
		publishes[i] = &job.Publish{
			Namespace: c.namespace,
			Queue:     c.queue(),
			By:        c.key.Name(),
			Tries:     m.Tries,
			Delay:     m.Delay,
			Messages:  []job.Message{{Payload: m.Payload, Attributes: m.Attributes}},
		}
		publishes[i].Shard = c.namespace.HomeOf(publishes[i], a.publishes.Add(1))
	}
	a.Publish(publishes...)
	for i, p := range publishes {
		switch {
		case p.Err == nil:
			all[i].ID = p.Namespace.ID(p.Shard, p.Queue, p.First, "")
			continue
		case !errors.Is(p.Err, partition.ErrUnknown):
			taken.RefundPart(1)
		}
		all[i].Rejected = a.reject(c, p.Err)
	}
	return nil
}

// publishCost is what a job of a request takes beside its bytes, about: a message, its
// place in the call of the store, and its id in the answer.
const publishCost = 256

const jsonType = "application/json"

// options reads the parameters of a publish. key is its Idempotency-Key; empty: none.
func (a *api) options(c *call,
	key []byte) (p *job.Publish, shards int, rejected *ingest.Rejection) {
	ns, queue := c.namespace, c.queue()
	p = &job.Publish{
		Namespace: ns,
		Queue:     queue,
		By:        c.key.Name(),
		Delay:     c.duration("delay", ns.Delay(queue), 0, job.MaxDelay),
	}
	if _, given := c.args["at"]; given {
		p.Delay = a.until(c)
	}
	if p.TTL = c.duration("ttl", 0, 0, job.MaxTTL); p.TTL > 0 && p.TTL <= p.Delay {
		c.late = cmp.Or(c.late, ingest.Reject(wire.CodeBadTTL,
			"ttl is longer than delay, or 0: the job would expire before it is ready"))
	}
	p.Tries = c.number("tries", ns.Tries(queue), 1, job.MaxTries)
	if id, given := c.args["id"]; given {
		if !job.ValidCallerID(id) {
			c.fail(wire.CodeBadID, "")
		}
		p.CallerID = id
	}
	p.OnEnd = c.queueOf("on_end")
	p.Prepare = c.prepare()
	if shards = c.number("shards", 0, 1, job.MaxMessages); shards > 0 && p.CallerID != "" {
		c.fail(wire.CodeBadShards,
			"shards makes several jobs, and id is for one: give one of them")
	}
	c.unique(p, shards)
	p.KeyTTL = c.duration("dedup", 0, time.Second, job.MaxKeyTTL)
	switch {
	case len(key) > 0 && !wire.ValidIdempotencyKey(key):
		c.fail(wire.CodeBadHeader,
			"Idempotency-Key is 1 to 128 printable ASCII characters")
	case len(key) == 0 && p.KeyTTL > 0:
		c.fail(wire.CodeBadDedup,
			"dedup is how long an Idempotency-Key holds: send one")
	}
	p.Key = string(key)
	if c.wrong == nil {
		p.Shard = ns.HomeOf(p, a.publishes.Add(1))
	}
	return p, shards, c.wrong
}

// queueOf reads the name of a queue; "": none is given.
func (q *query) queueOf(name string) string {
	queue, given := q.args[name]
	if given && !partition.ValidOwnName(queue) {
		q.bad(name, "the name of a queue: 1 to 255 letters, digits, '.', '_' or '-', not '.' or '_' first")
	}
	return queue
}

// until is the delay of a publish that says at which time its jobs are ready.
func (a *api) until(c *call) time.Duration {
	if _, both := c.args["delay"]; both {
		c.fail(wire.CodeBadAt, "delay and at say the same: give one of them")
	}
	delay, rejected := a.delayUntil(c.moment("at", time.Time{}))
	c.late = rejected
	return delay
}

// delayUntil is how long it is until a time to come.
func (a *api) delayUntil(at time.Time) (time.Duration, *ingest.Rejection) {
	now, known := a.store.Now()
	if !known {
		return 0, ingest.Reject(wire.CodeStoreUnavailable, "")
	}
	delay := time.Duration(at.UnixMilli()-now) * time.Millisecond
	if delay <= 0 || delay > job.MaxDelay {
		return 0, ingest.Reject(wire.CodeBadAt, "at is a time to come, within "+job.MaxDelay.String())
	}
	return delay, nil
}

// split cuts a body into messages, by its Content-Type: lines, the values of an array, or
// one, of at most bytes each. Unlike for entries, an object is one job whatever it holds.
func (a *api) split(c *call, body []byte, most int) ([]job.Message, *ingest.Rejection) {
	kind, _, _ := bytes.Cut(c.Ctx.Request.Header.ContentType(), []byte{';'})
	kind = bytes.TrimRight(kind, " \t")
	var all []job.Message
	add := func(payload []byte) *ingest.Rejection {
		switch {
		case len(all) == a.cfg.MaxEntries:
			return ingest.Reject(wire.CodeTooManyEntries,
				fmt.Sprintf("a request publishes at most %d jobs: send fewer", a.cfg.MaxEntries))
		case len(payload) > most:
			return ingest.Reject(wire.CodeEntryTooLarge, fmt.Sprintf("job %d is larger than %d bytes; no job of the request is stored", len(all), most))
		}
		all = append(all, job.Message{Payload: payload})
		return nil
	}
	switch {
	case bytes.EqualFold(kind, []byte("application/x-ndjson")):
		lines := wire.SplitLines(body)
		for line, ok := lines.Next(); ok; line, ok = lines.Next() {
			if rejected := add(line); rejected != nil {
				return nil, rejected
			}
		}
	case bytes.EqualFold(kind, []byte(jsonType)):
		batch, err := wire.ParseBatch(body)
		if err != nil && err != wire.ErrSentAt { // which is about envelopes, and here there are none
			return nil, ingest.Reject(wire.CodeBadJSON, "")
		}
		if batch.Form != wire.Array {
			rejected := add(body)
			return all, rejected
		}
		for raw := range batch.Items() {
			if rejected := add(raw); rejected != nil {
				return nil, rejected
			}
		}
	default:
		rejected := add(body)
		return all, rejected
	}
	if len(all) == 0 {
		return nil, ingest.Reject(wire.CodeEmptyBatch, "")
	}
	return all, nil
}

// mayStore bounds what jobs take as they are stored: all have the attributes that the URL names once.
func (a *api) mayStore(jobs []job.Message) *ingest.Rejection {
	bytes := 0
	for i := range jobs {
		bytes += len(jobs[i].Payload) + len(jobs[i].Attributes)
	}
	if bytes > a.cfg.MaxBody {
		return ingest.Reject(wire.CodeBodyTooLarge,
			fmt.Sprintf("the jobs and their attributes take %d bytes, and max_body is %d: send fewer jobs or shorter attributes", bytes, a.cfg.MaxBody))
	}
	return nil
}

// mayShard bounds what n jobs of a payload take as if the request had held them all.
func (a *api) mayShard(payload, n int) *ingest.Rejection {
	switch bytes := n * (payload + shardAttributes); {
	case n > a.cfg.MaxEntries:
		return ingest.Reject(wire.CodeTooManyEntries,
			fmt.Sprintf("a request publishes at most %d jobs: send a smaller shards", a.cfg.MaxEntries))
	case bytes > a.cfg.MaxBody:
		return ingest.Reject(wire.CodeBodyTooLarge,
			fmt.Sprintf("shards makes %d bytes of jobs, and max_body is %d: send a smaller job or a smaller shards", bytes, a.cfg.MaxBody))
	}
	return nil
}

// shardAttributes is the most bytes of attributes that sharded adds to a job.
const shardAttributes = len(`{"shard_index":"999","shard_total":"1000"}`)

// sharded is n messages with the same payload, each of which says which it is.
func sharded(m job.Message, n int) []job.Message {
	all := make([]job.Message, n)
	for i := range all {
		all[i] = job.Message{Payload: m.Payload,
			Attributes: fmt.Appendf(nil, `{"shard_index":"%d","shard_total":"%d"}`, i, n)}
		if last := len(all[i].Attributes) - 1; m.Attributes != nil {
			all[i].Attributes = append(append(all[i].Attributes[:last], ','), m.Attributes[1:]...)
		}
	}
	return all
}

// appendPublished appends the answer to a publish.
func appendPublished(dst []byte, p *job.Publish) []byte {
	accepted := p.Count
	if p.Exists {
		accepted = 0
	}
	dst = strconv.AppendInt(append(dst, `{"accepted":`...), int64(accepted), 10)
	if p.Repeated {
		dst = append(dst, `,"repeated":true`...)
	}
	if p.Exists {
		dst = append(dst, `,"exists":true`...)
	}
	dst = append(dst, `,"ids":[`...)
	for i := range p.Count {
		if p.Namespace.PHP {
			break // its id is that of a delivery
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = p.Namespace.AppendID(append(dst, '"'), p.Shard, p.Queue, p.First+int64(i), p.CallerID)
		dst = append(dst, '"')
	}
	return append(dst, "]}\n"...)
}

// Defaults of a publish of prepared jobs: the last question is asked some 12 hours after the
// publish.
const (
	defaultCheckAfter = time.Minute
	defaultChecks     = 15
)

// prepare reads the parameters of a publish whose jobs wait for a commit; nil: they do not.
func (c *call) prepare() *job.Prepare {
	switch text, given := c.args["prepare"]; {
	case given && text != "0" && text != "1":
		c.bad("prepare", "1 or 0")
		return nil
	case text != "1":
		for _, name := range []string{"check", "check_after", "checks"} {
			if _, given := c.args[name]; given {
				c.bad(name, "for prepared jobs: send prepare=1, too")
			}
		}
		return nil
	}
	p, least, fallback := &job.Prepare{Check: c.queueOf("check")}, 0, 0
	if _, given := c.args["check"]; given {
		least, fallback = 1, defaultChecks
	} else if _, given := c.args["checks"]; given {
		c.bad("checks", "how often check, the queue that is missing, is asked")
	}
	p.After = c.duration("check_after", defaultCheckAfter, job.MinCheckAfter, job.MaxCheckAfter)
	p.Checks = c.number("checks", fallback, least, job.MaxChecks)
	return p
}
