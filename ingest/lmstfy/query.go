package lmstfy

import (
	"strconv"
	"time"
	"unsafe"

	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/partition/job"
)

// What a request without the parameter means.
const (
	defaultTTL = 86400 // seconds
	defaultTTR = 120   // seconds
)

const (
	maxCount   = 100
	maxQueues  = 256               // of a claim: each costs memory while it waits
	maxTimeout = 599 * time.Second // lmstfy's clients give up after 600 s
)

// uintOf reads a parameter as an unsigned decimal of at most bits bits. Of several, the
// first counts. One that is there and empty is invalid.
func (c *call) uintOf(name string, otherwise uint64, bits int) (n uint64, valid bool) {
	args := c.Ctx.QueryArgs()
	if !args.Has(name) {
		return otherwise, true
	}
	text := args.Peek(name)
	n, err := strconv.ParseUint(unsafe.String(unsafe.SliceData(text), len(text)), 10, bits)
	return n, err == nil
}

// seconds reads a parameter that is a time, in 32 bits.
func (c *call) seconds(name string, otherwise uint64) (d time.Duration, rejected *rejection) {
	n, valid := c.uintOf(name, otherwise, 32)
	if !valid {
		return 0, badRequest("invalid " + name)
	}
	return time.Duration(n) * time.Second, nil // #nosec G115 -- 32 bits
}

// readPublish reads delay, ttl and tries.
func (c *call) readPublish() (p *job.Publish, rejected *rejection) {
	p = &job.Publish{Namespace: c.namespace, Queue: c.queue}
	if p.Delay, rejected = c.seconds("delay", 0); rejected != nil {
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

// readClaim reads ttr, timeout, count and the queues. freeze_tries is ignored: tries
// bound how often a job is handed out.
func (c *call) readClaim() (claim *jobs.Claim, rejected *rejection) {
	claim = &jobs.Claim{
		Namespace: c.namespace, Conn: c.Conn(), Stopping: c.Stopping(),
		Revoked: func() bool { return c.Revoked(c.key) },
		Reserve: func(bytes int) bool { return c.Reserve(bytes) == nil },
	}
	if claim.TTR, rejected = c.seconds("ttr", defaultTTR); rejected != nil {
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
	var none bool
	if claim.Queues, none = c.queueNames(); none || len(claim.Queues) > maxQueues {
		return nil, badRequest("invalid queue name(s)")
	}
	return claim, nil
}

// limit reads how many dead letters a request is about.
func (c *call) limit() (n int, rejected *rejection) {
	limit, valid := c.uintOf("limit", 1, 63)
	if !valid || limit < 1 {
		return 0, badRequest("invalid limit")
	}
	return int(min(limit, 1<<31-1)), nil // #nosec G115 -- 31 bits
}
