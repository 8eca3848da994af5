package job_test

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// move runs a mover until the case ends.
func (b *bench) move() {
	b.Helper()
	m := job.NewMover(b.real)
	if err := m.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Stop(context.Background()) })
}

func anEndHasAFollowUp(b *bench) {
	b.open(func(p *job.Policy) { p.Shards, p.Spread = 4, map[string]int{"done": 3} })
	b.move()
	named := b.message("work", "one")
	named.OnEnd, named.CallerID = "done", "order-1"
	others := b.message("work", "two", "three", "four", "given up")
	others.OnEnd = "done"
	unheard := b.message("work", "five")
	ids := slices.Concat(b.store1(named), b.store1(others), b.store1(unheard))
	jobs := b.claim(6, "work")
	ack := func(j job.Job, result string) *job.Ack {
		return &job.Ack{Namespace: b.ns, Queue: "work", Ref: j.Ref, Result: []byte(result)}
	}
	b.run(job.Batch{Acks: []*job.Ack{ack(jobs[0], `{"paid":true}`), ack(jobs[1], "not JSON"), ack(jobs[5], `1`)}})
	removed := ack(jobs[4], "")
	removed.Delete, removed.Undone = true, true
	b.run(job.Batch{Acks: []*job.Ack{removed}})
	b.settle(jobs[2], job.Bury, 0)
	b.settle(jobs[3], job.Requeue, 0)
	b.run(job.Batch{Acks: []*job.Ack{ack(jobs[3], "")}}) // it is not claimed: deleted

	var got []job.FollowUp
	b.until("five follow-ups", func() bool {
		for _, shard := range b.ns.Shards("done") {
			c := &job.Claim{Namespace: b.ns, Shard: shard, Queues: []string{"done"}, TTR: time.Minute, Count: 10}
			b.run(job.Batch{Claims: []*job.Claim{c}})
			for _, j := range c.Jobs {
				var f job.FollowUp
				b.is("a follow-up is JSON", json.Unmarshal(j.Payload, &f), nil)
				got = append(got, f)
			}
		}
		return len(got) >= 5
	})
	slices.SortFunc(got, func(x, y job.FollowUp) int { return cmp.Compare(slices.Index(ids, x.ID), slices.Index(ids, y.ID)) })
	for i, want := range []job.FollowUp{
		{Event: "acked", Result: json.RawMessage(`{"paid":true}`)}, {Event: "acked", Result: json.RawMessage(`"not JSON"`)},
		{Event: "dead"}, {Event: "deleted"}, {Event: "deleted"},
	} {
		if now, _ := b.store.Now(); got[i].AtMS > now || got[i].AtMS < now-most.Milliseconds() {
			b.Errorf("follow-up %d is of %d", i, got[i].AtMS)
		}
		want.Queue, want.ID, want.AtMS = "work", ids[i], got[i].AtMS
		b.same("follow-up", got[i], want)
	}
	names, err := b.store.Queues(b.Context(), b.ns)
	b.is("queues", err, nil)
	b.same("the outbox is not listed", strings.Join(names, " "), "done work")
	b.until("the outbox is empty", func() bool {
		l, err := b.store.Ledger(b.Context(), b.ns)
		return err == nil && l.Acked == 4+5
	})
	b.ledger(job.Ledger{Published: 6 + 5 + 5, Acked: 4 + 5, Deleted: 1, Dead: 1, Died: 1, Leased: 5, Keys: 5})
}

func aDeferredJobIsLeased(b *bench) {
	b.open(nil)
	b.promote()
	b.publish("work", "one")
	j := b.claim(1, "work")[0]
	b.same("defer", b.settle(j, job.Defer, time.Minute), job.Leased)
	shown, state, err := b.store.Get(b.Context(), b.ns, "work", j.Ref)
	b.is("get", err, nil)
	b.same("a deferred job", []any{state, shown.Deferred}, []any{job.Leased, true})
	b.same("defer of an earlier attempt", b.settle(job.Job{Queue: "work", Ref: j.Ref, Attempt: 7}, job.Defer, time.Minute), job.Gone)
	b.settle(j, job.Touch, 20*time.Millisecond)
	again := b.claimSome(1, "work")[0]
	b.same("the attempt after it lapsed", again.Attempt, 2)
	shown, _, err = b.store.Get(b.Context(), b.ns, "work", j.Ref)
	b.is("get", err, nil)
	b.same("a job of the next claim", shown.Deferred, false)
	b.ack(again)
	b.ledger(job.Ledger{Published: 1, Acked: 1})
}

// prepared stores jobs of the queue work that wait for their publisher, who is asked once.
func (b *bench) prepared(after time.Duration, change func(*job.Publish), payloads ...string) []string {
	b.Helper()
	p := b.message("work", payloads...)
	p.Prepare = &job.Prepare{Check: "checks", After: after, Checks: 1}
	change(p)
	return b.store1(p)
}

func (b *bench) decide(id string, rollback bool) (*job.Decision, error) {
	ref, _ := b.ns.ParseID("work", id)
	d := &job.Decision{Namespace: b.ns, Queue: "work", Ref: ref, Rollback: rollback}
	return d, b.store.Decide(b.Context(), d)
}

func aPreparedJobWaitsForItsPublisher(b *bench) {
	b.open(nil)
	b.promote()
	b.move()
	ids := b.prepared(time.Hour, func(p *job.Publish) { p.OnEnd = "done" }, "kept", "dropped")
	later := b.prepared(time.Hour, func(p *job.Publish) { p.Delay, p.CallerID = time.Hour, "x-1" }, "later")[0]
	b.ledger(job.Ledger{Published: 3, Prepared: 3})
	b.same("none to claim", len(b.claim(9, "work")), 0)
	ref, _ := b.ns.ParseID("work", later)
	shown, state, err := b.store.Get(b.Context(), b.ns, "work", ref)
	b.is("get", err, nil)
	b.same("state", []any{state, shown.At - shown.Published}, []any{job.Prepared, time.Hour.Milliseconds()})
	listed := func() (refs []job.Ref) {
		for l := (job.List{Queue: "work", State: job.Prepared, Limit: 1}); len(refs) == 0 || l.After != ""; {
			page, next, err := b.store.List(b.Context(), b.ns, l)
			if err != nil || len(page) == 0 && next == "" {
				b.is("list", err, nil)
				break
			}
			for _, j := range page {
				refs = append(refs, j.Ref)
			}
			l.After = next
		}
		return refs
	}
	b.same("listed", []any{len(listed()), slices.Contains(listed(), ref)}, []any{3, true})
	ack := &job.Ack{Namespace: b.ns, Queue: "work", Ref: ref}
	b.run(job.Batch{Acks: []*job.Ack{ack}})
	b.is("ack", ack.Err, job.ErrPrepared)

	d, err := b.decide(ids[0], false)
	b.is("commit", err, nil)
	b.same("committed", d.State, job.Ready)
	b.same("claimed", string(b.claimSome(1, "work")[0].Payload), "kept")
	_, err = b.decide(ids[0], false)
	b.is("commit again", err, nil)
	_, err = b.decide(ids[0], true)
	b.is("rollback of it", err, job.ErrDecided)
	_, err = b.decide(ids[1], true)
	b.is("rollback", err, nil)
	d, err = b.decide(later, false)
	b.is("commit", err, nil)
	b.same("delayed", []any{d.State, d.Due}, []any{job.Delayed, shown.Published + time.Hour.Milliseconds()})

	var told job.FollowUp
	b.is("follow-up", json.Unmarshal(b.claimSome(1, "done")[0].Payload, &told), nil)
	b.same("told", []any{told.Event, told.ID}, []any{"deleted", ids[1]})
	b.same("no delayed one among them", len(listed()), 0)
	for what, p := range map[string]*job.Prepare{
		"a short pause":        {After: time.Millisecond},
		"a long one":           {After: 25 * time.Hour},
		"checks without queue": {After: time.Minute, Checks: 1},
		"a queue, no checks":   {After: time.Minute, Check: "checks"},
		"too many checks":      {After: time.Minute, Check: "checks", Checks: 101},
		"a bad queue":          {After: time.Minute, Check: "a b", Checks: 1},
	} {
		bad := b.message("work", "x")
		bad.Prepare = p
		b.run(job.Batch{Publishes: []*job.Publish{bad}})
		b.is(what, bad.Err, job.ErrBadArgument)
	}
}

func aSilentPublisherIsAsked(b *bench) {
	b.open(nil)
	b.promote()
	b.move()
	forgotten := b.prepared(time.Second, func(*job.Publish) {}, "forgotten")[0]
	var asked job.FollowUp
	b.is("question", json.Unmarshal(b.claimSome(1, "checks")[0].Payload, &asked), nil)
	b.same("asked", asked, job.FollowUp{Event: "prepared", Queue: "work", ID: forgotten, AtMS: asked.AtMS, PublishedMS: asked.PublishedMS})
	if wait := asked.AtMS - asked.PublishedMS; wait < 1000 || wait > most.Milliseconds() {
		b.Errorf("it was asked after %d ms", wait)
	}
	b.until("nobody decided", func() bool {
		dead, _, err := b.store.Dead(b.Context(), b.ns, "work", 0, 9)
		return err == nil && len(dead) == 1 && dead[0].ID == forgotten && dead[0].Reason == job.Undecided
	})
	_, err := b.decide(forgotten, false)
	b.is("too late", err, job.ErrNotPrepared)
}
