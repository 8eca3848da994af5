package jobtest

import (
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

func aCallersIDIsStoredOnce(b *bench) {
	b.open(nil)
	named := func() *job.Publish {
		p := b.message("q", "x")
		p.CallerID = "order-1"
		return p
	}
	first, twin := named(), named()
	b.run(job.Batch{Publishes: []*job.Publish{first, twin}})
	b.same("the second of a batch", []any{first.Exists, twin.Exists, twin.Err, twin.First}, []any{false, true, nil, first.First})
	again := named()
	b.run(job.Batch{Publishes: []*job.Publish{again}})
	b.same("again", []any{again.Exists, again.First}, []any{true, first.First})
	j := b.claim(5, "q")[0]
	b.same("id", []any{j.CallerID, j.ID}, []any{"order-1", b.ns.ID(0, "q", first.First, "order-1")})
	b.ack(j)
	after := named()
	b.run(job.Batch{Publishes: []*job.Publish{after}})
	b.same("after the ack", []any{after.Exists, after.Err, after.First > first.First}, []any{false, nil, true})
	b.ledger(job.Ledger{Published: 2, Acked: 1, Ready: 1})
}

func aPublishWithAKeyIsStoredOnce(b *bench) {
	b.open(nil)
	keyed := func(key string, payloads ...string) *job.Publish {
		p := b.message("q", payloads...)
		p.Key = key
		return p
	}
	first := keyed("k", "a", "b")
	b.store1(first)
	again, other := keyed("k", "c"), keyed("l", "d")
	b.run(job.Batch{Publishes: []*job.Publish{again, other, b.message("q", "e")}})
	b.same("again", []any{again.Err, again.Repeated, again.First, again.Count}, []any{nil, true, first.First, 2})
	b.same("another key", []any{other.Err, other.Repeated}, []any{nil, false})
	b.same("jobs", payloads(b.claim(9, "q")), []string{"a", "b", "d", "e"})
}

func aFullNamespaceRefuses(b *bench) {
	b.open(func(p *job.Policy) { p.MaxJobs = 5 })
	b.publish("q", "1", "2", "3")
	three, two, one := b.message("q", "4", "5", "6"), b.message("q", "7", "8"), b.message("q", "9")
	b.run(job.Batch{Publishes: []*job.Publish{three, two, one}})
	b.same("what fits is stored", []any{three.Err, two.Err, one.Err}, []any{job.ErrTooManyJobs, nil, job.ErrTooManyJobs})
	jobs := b.claim(9, "q")
	b.same("jobs", payloads(jobs), []string{"1", "2", "3", "7", "8"})
	b.ack(jobs[0])
	b.publish("q", "10")
	b.ledger(job.Ledger{Published: 6, Acked: 1, Leased: 4, Ready: 1})
}

func aFurtherQueueIsRefused(b *bench) {
	b.open(func(p *job.Policy) { p.MaxQueues = 2 })
	b.publish("a", "x")
	b.publish("b", "x")
	p := b.message("c", "x")
	b.run(job.Batch{Publishes: []*job.Publish{p}})
	b.is("a third queue", p.Err, job.ErrTooManyQueues)
	b.publish("a", "y")
	b.ack(b.claim(1, "b")[0])
	b.publish("c", "x")
}

func expiredJobsAreNotHandedOut(b *bench) {
	b.open(nil)
	p := b.message("q", "short")
	p.TTL = time.Millisecond
	b.store1(p)
	b.publish("q", "long")
	b.until("its time is over", func() bool {
		j, err := b.store.Peek(b.Context(), b.ns, "q")
		return err == nil && string(j.Payload) == "long"
	})
	b.same("jobs", payloads(b.claim(5, "q")), []string{"long"})
	b.ledger(job.Ledger{Published: 2, Expired: 1, Leased: 1})
}

func repliesLiveForAWhile(b *bench) {
	b.open(func(p *job.Policy) { p.ReplyTTL = time.Minute })
	id := b.publish("q", "question")[0]
	p := b.message(id, "answer")
	p.TTL = 0
	b.store1(p)
	j := b.claim(1, id)[0]
	if left := j.Expires - j.Now; left < 50_000 || left > 61_000 {
		b.Errorf("a reply lives for %d ms, want a minute", left)
	}
	b.same("bury", b.settle(j, job.Bury, 0), job.Expired)
}

func aSpreadQueueIsEverywhere(b *bench) {
	b.open(func(p *job.Policy) { p.Shards, p.Spread = 4, map[string]int{"bulk": 3} })
	shards := b.ns.Shards("bulk")
	for i, shard := range shards {
		p := b.message("bulk", fmt.Sprint(i))
		p.Shard = shard
		b.store1(p)
	}
	counts, err := b.store.Counts(b.Context(), b.ns, "bulk")
	b.same("counts", []any{counts.Ready, err}, []any{int64(3), nil})
	first, err := b.store.Peek(b.Context(), b.ns, "bulk")
	b.same("peek", []any{string(first.Payload), first.Shard, err}, []any{"0", shards[0], nil})
	for i, shard := range shards {
		c := &job.Claim{Namespace: b.ns, Shard: shard, Queues: []string{"bulk"}, TTR: time.Minute, Count: 5}
		b.run(job.Batch{Claims: []*job.Claim{c}})
		b.same("jobs", payloads(c.Jobs), []string{fmt.Sprint(i)})
		b.ack(c.Jobs[0])
	}
	b.ledger(job.Ledger{Published: 3, Acked: 3})
}

func badRequestsRunNothing(b *bench) {
	b.open(nil)
	good := b.message("q", "x")
	batch := job.Batch{Publishes: []*job.Publish{good}}
	for _, edit := range []func(*job.Publish){
		func(p *job.Publish) { p.Namespace = nil },
		func(p *job.Publish) { p.Queue = "a b" },
		func(p *job.Publish) { p.Shard = 1 },
		func(p *job.Publish) { p.Tries = 0 },
		func(p *job.Publish) { p.Tries = job.MaxTries + 1 },
		func(p *job.Publish) { p.Delay = -1 },
		func(p *job.Publish) { p.TTL = job.MaxTTL + 1 },
		func(p *job.Publish) { p.Messages = nil },
		func(p *job.Publish) { p.Messages = make([]job.Message, job.MaxMessages+1) },
		func(p *job.Publish) { p.CallerID = "a b" },
		func(p *job.Publish) { p.CallerID, p.Messages = "a", make([]job.Message, 2) },
		func(p *job.Publish) { p.KeyTTL = job.MaxKeyTTL + 1 },
	} {
		p := b.message("q", "x")
		edit(p)
		batch.Publishes = append(batch.Publishes, p)
	}
	for _, edit := range []func(*job.Claim){
		func(c *job.Claim) { c.Namespace = nil },
		func(c *job.Claim) { c.Queues = nil },
		func(c *job.Claim) { c.Queues = []string{"q", "q"} },
		func(c *job.Claim) { c.Queues = []string{"{q}"} },
		func(c *job.Claim) { c.Count = 0 },
		func(c *job.Claim) { c.Count = job.MaxCount + 1 },
		func(c *job.Claim) { c.TTR = -1 },
		func(c *job.Claim) { c.Shard = -1 },
	} {
		c := &job.Claim{Namespace: b.ns, Queues: []string{"other"}, Count: 1}
		edit(c)
		batch.Claims = append(batch.Claims, c)
	}
	batch.Acks = []*job.Ack{{Namespace: b.ns, Queue: "q", Ref: job.Ref{Shard: 7, Seq: 1}}, {Namespace: b.ns, Queue: "q"}}
	batch.Settles = []*job.Settle{{Namespace: b.ns, Queue: "q", Ref: job.Ref{Seq: 1}}, {Queue: "q", Verb: job.Nack, Ref: job.Ref{Seq: 1}}}
	b.run(batch)
	b.is("the good one", good.Err, nil)
	for i, p := range batch.Publishes[1:] {
		b.is(fmt.Sprint("publish ", i), p.Err, job.ErrBadArgument)
	}
	for i, c := range batch.Claims {
		b.is(fmt.Sprint("claim ", i), c.Err, job.ErrBadArgument)
	}
	for i, a := range batch.Acks {
		b.is(fmt.Sprint("ack ", i), a.Err, job.ErrBadArgument)
	}
	for i, s := range batch.Settles {
		b.is(fmt.Sprint("settle ", i), s.Err, job.ErrBadArgument)
	}
	b.ledger(job.Ledger{Published: 1, Ready: 1})
}

func aPolicyChangesWhileJobsWait(b *bench) {
	b.open(nil)
	b.publish("q", "x")
	before := b.ns
	p := job.DefaultPolicy()
	p.MaxJobs = 1
	b.is("change", b.store.SetNamespaces(b.Context(), map[string]job.Policy{"mail": p, "other": job.DefaultPolicy()}), nil)
	b.ns = b.store.Namespace("mail")
	full := b.message("q", "y")
	b.run(job.Batch{Publishes: []*job.Publish{full}})
	b.is("the new limit", full.Err, job.ErrTooManyJobs)
	j := b.claim(1, "q")[0]
	b.ns = before
	b.same("who has the old one may go on", b.ack(j).Acked, true)
	b.ns = b.store.Namespace("other")
	b.publish("q", "x")
	p.Shards = 2
	b.is("another number of shards", b.store.SetNamespaces(b.Context(), map[string]job.Policy{"mail": p}), errIncompatible)
	b.same("the one not named is gone", b.store.Namespace("other") == nil, true)
}
