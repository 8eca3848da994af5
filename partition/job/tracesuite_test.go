package job_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// traceFor keeps traces of some queues, and begins to write them.
func (b *bench) traceFor(edit func(*job.Policy)) {
	b.Helper()
	b.open(func(p *job.Policy) {
		p.Rules = []job.Rule{{Match: "seen*", KeepTrace: job.Span(time.Hour)}}
		edit(p)
	})
	t := job.NewTracer(b.real)
	if err := t.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = t.Stop(context.Background()) })
}

// told is what the trace of a job tells, once it has so many events.
func (b *bench) told(queue, id string, events int) string {
	b.Helper()
	var words []string
	ref, _ := b.ns.ParseID(queue, id)
	b.until(fmt.Sprint(queue, " has ", events, " events"), func() bool {
		list, err := b.store.Trace(b.Context(), b.ns, queue, ref)
		if err != nil && !errors.Is(err, job.ErrNoTrace) {
			b.Fatal(err)
		}
		words = words[:0]
		before := int64(0)
		for _, e := range list {
			if e.AtMS < before || e.AtMS == 0 {
				b.Errorf("%s is at %d, after %d", e.Event, e.AtMS, before)
			}
			before = e.AtMS
			words = append(words, strings.Join(strings.Fields(fmt.Sprint(e.Event, " ", e.By, " ", e.Reason, " ", e.Error)), " "))
			if e.Attempt > 0 {
				words[len(words)-1] += fmt.Sprint(" ", e.Attempt)
			}
		}
		return len(list) >= events
	})
	return strings.Join(words, ", ")
}

func aTraceTellsWhatHappenedToAJob(b *bench) {
	b.traceFor(func(p *job.Policy) { p.Shards, p.Spread = 4, map[string]int{"seen": 3} })
	b.promote()
	p := b.message("seen", "x")
	p.By, p.Delay, p.Tries = "web", time.Millisecond, 2
	id := b.store1(p)[0]
	b.until("it is ready", func() bool {
		c, err := b.store.Counts(b.Context(), b.ns, "seen")
		return err == nil && c.Ready == 1
	})
	claim := func() job.Job {
		for _, shard := range b.ns.Shards("seen") {
			c := &job.Claim{Namespace: b.ns, Shard: shard, Queues: []string{"seen"}, TTR: time.Minute, Count: 1, By: "worker"}
			if b.run(job.Batch{Claims: []*job.Claim{c}}); len(c.Jobs) == 1 {
				return c.Jobs[0]
			}
		}
		b.Fatal("no job")
		return job.Job{}
	}
	j := claim()
	b.settle(j, job.Touch, time.Hour)
	b.settle(j, job.Nack, 0)
	b.store.Note(b.ns, "seen", claim().Ref, job.TraceEvent{Event: "written", By: "push", Attempt: 2})
	last := &job.Settle{Namespace: b.ns, Queue: "seen", Ref: j.Ref, Attempt: 2, Verb: job.Nack, Error: strings.Repeat("x", 300)}
	b.run(job.Batch{Settles: []*job.Settle{last}})
	text := "published web, promoted, claimed worker 1, nacked 1, claimed worker 2, written push 2, nacked " + strings.Repeat("x", 256) + " 2, dead nacked"
	b.same("its trace", b.told("seen", id, 8), text)
	again := &job.DeadAct{Namespace: b.ns, Queue: "seen", Verb: job.CountDead, Named: []job.Ref{j.Ref}}
	n, err := b.store.ActOnDead(b.Context(), again)
	b.same("a dry run, which no trace tells", []any{n, err}, []any{1, nil})
	again.Verb = job.RespawnDead
	n, err = b.store.ActOnDead(b.Context(), again)
	b.same("respawned by its id", []any{n, err, b.told("seen", id, 9)}, []any{1, nil, text + ", respawned"})

	short := b.message("seen-too", "y")
	short.Tries = 1
	id = b.store1(short)[0]
	b.claimFor(time.Millisecond, 1, "seen-too")
	b.same("of one whose worker died", b.told("seen-too", id, 4), "published, claimed 1, lapsed, dead lapsed")

	id = b.publish("other", "z")[0]
	ref, _ := b.ns.ParseID("other", id)
	_, err = b.store.Trace(b.Context(), b.ns, "other", ref)
	b.is("of a queue without a rule", err, job.ErrNoTrace)
}

func theOldestTracesMakeRoom(b *bench) {
	b.traceFor(func(p *job.Policy) { p.MaxTraces = 3 })
	var ids []string
	for range 5 {
		ids = append(ids, b.publish("seen", "x")...)
		b.told("seen", ids[len(ids)-1], 1)
	}
	for i, id := range ids {
		ref, _ := b.ns.ParseID("seen", id)
		if _, err := b.store.Trace(b.Context(), b.ns, "seen", ref); (err == nil) != (i >= 2) {
			b.Errorf("job %d of 5: %v", i, err)
		}
	}
}

func ackedJobsAreKept(b *bench) {
	b.open(func(p *job.Policy) {
		p.Rules = []job.Rule{{Match: "kept*", KeepAcked: job.Span(time.Hour)}}
	})
	get := func(queue string, seq job.Ref) (string, error) {
		j, state, err := b.store.Get(b.Context(), b.ns, queue, seq)
		if err == nil && (j.At == 0 || j.At > j.Now || j.Expires != 0) {
			b.Errorf("acked at %d, expires at %d, now is %d", j.At, j.Expires, j.Now)
		}
		return fmt.Sprintf("%s %d %s %s", state, j.Attempt, j.Payload, j.Result), err
	}
	p := b.message("kept-q", "x")
	p.TTL, p.CallerID = time.Hour, "mine"
	b.store1(p)
	b.settle(b.claim(1, "kept-q")[0], job.Nack, 0)
	j := b.claim(1, "kept-q")[0]
	a := &job.Ack{Namespace: b.ns, Queue: "kept-q", Ref: j.Ref, Result: []byte("{\"n\":\n1}")}
	b.run(job.Batch{Acks: []*job.Ack{a}})
	b.same("ack", []any{a.Acked, a.Err}, []any{true, nil})
	text, err := get("kept-q", j.Ref)
	b.same("kept", []any{text, err}, []any{"acked 2 x {\"n\":\n1}", nil})
	b.publish("kept-any", "x")
	said := &job.Ack{Namespace: b.ns, Queue: "kept-any", Ref: b.claim(1, "kept-any")[0].Ref, Result: []byte("!")}
	b.run(job.Batch{Acks: []*job.Ack{said}})
	text, err = get("kept-any", said.Ref)
	b.same("any text of a sink is a result", []any{text, err}, []any{`acked 1 x "!"`, nil})
	b.run(job.Batch{Acks: []*job.Ack{{Namespace: b.ns, Queue: "kept-any", Ref: said.Ref, Delete: true}}})
	_, err = get("kept-q", job.Ref{Shard: j.Shard, Seq: j.Seq, CallerID: "other"})
	b.is("under another id", err, job.ErrNoJob)
	b.same("its id is free", len(b.store1(p)), 1)
	b.same("repeated", b.ack(j).Acked, false)
	b.ledger(job.Ledger{Published: 3, Acked: 2, Ready: 1, Kept: 1})

	large := strings.Repeat("x", 600<<10) // a call keeps two of them
	b.publish("kept-large", large, large, large, large, large)
	var acks []*job.Ack
	for _, j := range b.claim(5, "kept-large") {
		acks = append(acks, &job.Ack{Namespace: b.ns, Queue: "kept-large", Ref: j.Ref})
	}
	b.run(job.Batch{Acks: acks})
	for _, a := range acks {
		_, state, err := b.store.Get(b.Context(), b.ns, "kept-large", a.Ref)
		b.same("a large one", []any{a.Acked, a.Err, state, err}, []any{true, nil, job.Acked, nil})
	}
	b.publish("kept-few", "1", "2", "3", "4")
	for _, j := range b.claim(3, "kept-few") {
		b.ack(j)
	}
	list, next, err := b.store.List(b.Context(), b.ns, job.List{Queue: "kept-few", State: job.Acked, Limit: 1, Data: true})
	b.same("the first page", []any{payloads(list), next != "", err}, []any{[]string{"1"}, true, nil})
	list, _, err = b.store.List(b.Context(), b.ns, job.List{Queue: "kept-few", State: job.Acked, Limit: 5, After: next, Data: true})
	b.same("the next page", []any{payloads(list), err}, []any{[]string{"2", "3"}, nil})
	b.publish("other", "x")
	j = b.claim(1, "other")[0]
	b.ack(j)
	_, err = get("other", j.Ref)
	b.is("no rule keeps it", err, job.ErrNoJob)
	n, err := b.store.Purge(b.Context(), b.ns, "kept-few", true)
	b.same("a purge forgets them", []any{n, err}, []any{int64(1), nil})
	b.ledger(job.Ledger{Published: 13, Acked: 11, Ready: 1, Deleted: 1, Kept: 6})
	leased := b.claim(1, "kept-q")[0]
	for _, ref := range []job.Ref{a.Ref, leased.Ref} {
		b.run(job.Batch{Acks: []*job.Ack{{Namespace: b.ns, Queue: "kept-q", Ref: ref, Delete: true}}})
		_, err = get("kept-q", ref)
		b.is("deleted", err, job.ErrNoJob)
	}
	b.ledger(job.Ledger{Published: 13, Acked: 12, Deleted: 1, Kept: 5})

	b.open(func(p *job.Policy) {
		p.MaxJobs, p.Rules = 10, []job.Rule{{Match: "*", KeepAcked: job.Span(time.Hour)}}
	})
	kept := func(queue string, jobs int) (n int) {
		for i := range jobs {
			b.publish(queue, fmt.Sprint(i))
			b.ack(b.claim(1, queue)[0])
		}
		list, _, err := b.store.List(b.Context(), b.ns, job.List{Queue: queue, State: job.Acked, Limit: 20, Data: true})
		b.is("list", err, nil)
		if jobs > 1 {
			b.same("the newest", payloads(list)[len(list)-1], fmt.Sprint(jobs-1))
		}
		return len(list)
	}
	named, err := b.real.KeptQueues(b.Context(), b.ns)
	b.same("queues without other jobs", []any{len(named), err}, []any{0, nil})
	b.same("a queue leaves places to others", []int{kept("greedy", 20), kept("other", 1), kept("greedy", 0), kept("greedy", 1)}, []int{8, 1, 8, 7})
	named, err = b.real.KeptQueues(b.Context(), b.ns)
	counts, failed := b.real.Kept(b.Context(), b.ns, []string{"greedy", "none", "other"})
	b.same("queues that keep some", []any{named, err, *counts[0], *counts[1], *counts[2], failed}, []any{[]string{"greedy", "other"}, nil, int64(7), int64(0), int64(1), nil})
}

func aPublishIsUniqueForAWhile(b *bench) {
	b.open(func(p *job.Policy) { p.Shards, p.Spread = 3, map[string]int{"wide": 3} })
	unique := func(queue, key string, window time.Duration) *job.Publish {
		p := b.message(queue, "x")
		p.Unique, p.UniqueKey = window, key
		return p
	}
	for _, queue := range []string{"q", "wide"} {
		first, twin := unique(queue, "k", time.Hour), unique(queue, "k", time.Hour)
		first.Shard, twin.Shard = b.ns.HomeOf(first, 1), b.ns.HomeOf(twin, 2)
		b.run(job.Batch{Publishes: []*job.Publish{first, twin}})
		b.same("the second of a batch", []any{first.Exists, first.Err, twin.Exists, twin.Err, twin.First}, []any{false, nil, true, nil, first.First})
		b.ack(job.Job{Queue: queue, Ref: job.Ref{Shard: first.Shard, Seq: first.First}})
		again := unique(queue, "k", time.Hour)
		again.Shard = b.ns.HomeOf(again, 3)
		b.run(job.Batch{Publishes: []*job.Publish{again}})
		b.same("after the ack", []any{again.Exists, again.Err, again.First}, []any{true, nil, first.First})
	}
	keyed := unique("q", "idempotent", time.Hour)
	keyed.Key, keyed.OnEnd = "k", "done"
	b.store1(keyed)
	b.store1(keyed)
	b.same("repeated, not a double", []bool{keyed.Repeated, keyed.Exists}, []bool{true, false})
	short := unique("q", "short", time.Millisecond)
	b.until("the window ends", func() bool {
		b.run(job.Batch{Publishes: []*job.Publish{short}})
		return short.Err == nil && !short.Exists
	})
	bad := unique("q", "", time.Hour)
	two := unique("q", "k", time.Hour)
	two.Messages = append(two.Messages, two.Messages...)
	b.run(job.Batch{Publishes: []*job.Publish{bad, two}})
	b.same("bad ones", []error{bad.Err, two.Err}, []error{job.ErrBadArgument, job.ErrBadArgument})
}
