package job_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

func aJobIsPublishedClaimedAndAcked(b *bench) {
	b.open(nil)
	p := b.message("out", "hello")
	p.Messages[0].Attributes = []byte(`{"a":"b"}`)
	id := b.store1(p)[0]
	b.ledger(job.Ledger{Published: 1, Ready: 1})
	jobs := b.claim(10, "out")
	b.same("jobs", payloads(jobs), []string{"hello"})
	j := jobs[0]
	b.same("job", []any{j.ID, j.Queue, string(j.Attributes), j.Attempt, j.Tries}, []any{id, "out", `{"a":"b"}`, 1, 3})
	if now, _ := b.store.Now(); j.Published < now-most.Milliseconds() || j.Published > now+1000 || j.Expires-j.Published < 3590_000 || j.Expires-j.Published > 3610_000 {
		b.Errorf("published %d, expires %d, now %d", j.Published, j.Expires, now)
	}
	ref, ok := b.ns.ParseID("out", j.ID)
	b.same("its reference", []any{ref, ok}, []any{j.Ref, true})
	b.ledger(job.Ledger{Published: 1, Leased: 1})
	b.same("nobody else gets it", len(b.claim(10, "out")), 0)
	b.same("acked", b.ack(j).Acked, true)
	again := b.ack(j)
	b.same("acked again", again.Acked || again.Deleted, false)
	b.ledger(job.Ledger{Published: 1, Acked: 1})
	queues, err := b.store.Queues(b.Context(), b.ns)
	b.same("queues", []any{len(queues), err}, []any{0, nil})
}

func aJobSaysWhyItsAttemptsFailed(b *bench) {
	b.open(nil)
	p := b.message("q", "hello")
	p.Tries = 5
	id := b.store1(p)[0]
	ref, _ := b.ns.ParseID("q", id)
	texts := func(list []job.Failure) (texts []string) {
		for _, f := range list {
			texts = append(texts, fmt.Sprint(f.Attempt, " ", f.Error))
		}
		return texts
	}
	for i := range 5 {
		b.claim(1, "q")
		verb, text := job.Nack, fmt.Sprint("no ", i)
		if i == 1 {
			text = ""
		}
		x := job.Settle{Namespace: b.ns, Queue: "q", Ref: ref, Verb: verb, Error: text}
		b.run(job.Batch{Settles: []*job.Settle{&x}})
		b.is("settle", x.Err, nil)
	}
	want := []string{"5 no 4", "4 no 3", "3 no 2"}
	j, state, err := b.store.Get(b.Context(), b.ns, "q", ref)
	b.same("get", []any{texts(j.Errors), state, err}, []any{want, job.Dead, nil})
	list, _, err := b.store.Dead(b.Context(), b.ns, "q", 0, 10)
	b.is("dead", err, nil)
	b.same("dead", []any{len(list), texts(list[0].Errors)}, []any{1, want})
	n, err := b.store.ActOnDead(b.Context(), &job.DeadAct{Namespace: b.ns, Queue: "q", Verb: job.RespawnDead, Limit: 1})
	b.same("respawned", []any{n, err}, []any{1, nil})
	again := b.claim(1, "q")[0]
	j, _, _ = b.store.Get(b.Context(), b.ns, "q", ref)
	b.same("after a respawn", texts(j.Errors), want)
	b.same("acked", b.ack(again).Acked, true)
}

func aJobSaysHowFarItGot(b *bench) {
	b.open(nil)
	p := b.message("q", "hello")
	p.Tries = 9
	ref, _ := b.ns.ParseID("q", b.store1(p)[0])
	settle := func(x job.Settle) {
		b.Helper()
		x.Namespace, x.Queue, x.Ref = b.ns, "q", ref
		b.run(job.Batch{Settles: []*job.Settle{&x}})
		b.is("settle", x.Err, nil)
	}
	touch := func(percent int, note string) {
		settle(job.Settle{Verb: job.Touch, After: time.Minute, Progress: &job.Progress{Percent: percent, Note: note}})
	}
	shows := func(want *job.Progress) {
		b.Helper()
		j, state, err := b.store.Get(b.Context(), b.ns, "q", ref)
		b.same("get", []any{j.Progress, string(j.Payload), err}, []any{want, "hello", nil})
		look, at, err := b.store.Await(b.Context(), b.ns, "q", ref)
		b.same("look", []any{look.ID, look.Attempt, look.Progress, at, len(look.Payload) + len(look.Attributes), err}, []any{j.ID, j.Attempt, want, state, 0, nil})
		list, _, err := b.store.List(b.Context(), b.ns, job.List{Queue: "q", State: state, Limit: 9})
		b.same("list", []any{len(list), list[0].Progress, err}, []any{1, want, nil})
	}
	b.claim(1, "q")
	touch(0, "")
	shows(&job.Progress{})
	touch(40, "row \n\x00 7\xff"+strings.Repeat("é", 200))
	shows(&job.Progress{Percent: 40, Note: "row    7\ufffd" + strings.Repeat("é", 94)})
	settle(job.Settle{Verb: job.Touch, After: time.Minute})
	settle(job.Settle{Verb: job.Nack, Error: "no"})
	shows(&job.Progress{Percent: 40, Note: "row    7\ufffd" + strings.Repeat("é", 94)})
	b.claim(1, "q")
	shows(nil) // this attempt has said nothing
	touch(7, "again")
	settle(job.Settle{Verb: job.Bury, Error: "never"})
	shows(&job.Progress{Percent: 7, Note: "again"})
	_, err := b.store.ActOnDead(b.Context(), &job.DeadAct{Namespace: b.ns, Queue: "q", Verb: job.DeleteDead, Limit: 1})
	b.is("delete", err, nil)

	ref, _ = b.ns.ParseID("q", b.store1(p)[0])
	b.claim(1, "q")
	touch(90, "nearly")
	settle(job.Settle{Verb: job.Requeue})
	shows(nil)
	again := b.claim(1, "q")[0]
	b.same("attempt", again.Attempt, 1)
	touch(100, "")
	settle(job.Settle{Verb: job.Nack})
	b.claim(1, "q")
	touch(50, "half")
	settle(job.Settle{Verb: job.Requeue})
	shows(nil)
	b.claim(1, "q") // the same attempt
	shows(nil)
	b.same("acked", b.ack(again).Acked, true)
}

func aPausedQueueGivesNoJob(b *bench) {
	b.open(func(p *job.Policy) { p.Shards, p.Spread = 3, map[string]int{"wide": 3} })
	store := b.store.(*job.Store)
	for _, queue := range []string{"q", "wide"} {
		b.publish(queue, "a")
		b.is("pause", store.Pause(b.Context(), b.ns, queue, partition.Pause{By: "ops", Reason: "no mail"}), nil)
		b.publish(queue, "b")
		b.same("claimed", len(b.claim(10, queue)), 0)
		b.is("pause again", store.Pause(b.Context(), b.ns, queue, partition.Pause{By: "dev"}), nil)
		list, err := store.Pauses(b.Context(), b.ns)
		b.same("pauses", []any{len(list), err}, []any{1, nil})
		b.same("pause", []any{list[0].Queue, list[0].By, list[0].Reason, list[0].Since.IsZero()}, []any{queue, "dev", "", false})
		was, err := store.Resume(b.Context(), b.ns, queue)
		b.same("resumed", []any{was, err}, []any{true, nil})
		was, err = store.Resume(b.Context(), b.ns, queue)
		b.same("resumed again", []any{was, err}, []any{false, nil})
		b.same("claimed after it", len(b.claim(10, queue)), 2)
	}
	var field *partition.FieldError
	if err := store.Pause(b.Context(), b.ns, "q", partition.Pause{Reason: strings.Repeat("x", 513)}); !errors.As(err, &field) {
		b.Errorf("a reason too long: %v", err)
	}
}

func jobsAreListedInPages(b *bench) {
	b.open(func(p *job.Policy) { p.Shards, p.Spread = 3, map[string]int{"wide": 3} })
	pages := func(queue string, state job.State, between func()) (list []string) {
		for l := (job.List{Queue: queue, State: state, Limit: 2, Data: true}); ; between() {
			page, next, err := b.store.List(b.Context(), b.ns, l)
			b.is("list", err, nil)
			for _, j := range page {
				list = append(list, string(j.Payload))
			}
			if l.After = next; next == "" {
				return list
			}
		}
	}
	none := func() {}
	b.publish("q", "1", "2", "3", "4", "5", "6", "7")
	b.same("ready", pages("q", job.Ready, none), []string{"1", "2", "3", "4", "5", "6", "7"})
	taken := 0
	b.same("while they are taken", pages("q", job.Ready, func() { taken += len(b.claim(1, "q")) }), []string{"1", "2", "3", "4", "5", "6", "7"})
	b.same("leased", len(pages("q", job.Leased, none)), taken)
	for range 5 {
		b.publish("wide", "a", "b")
	}
	b.same("of three shards", len(pages("wide", job.Ready, none)), 10)
	late := b.message("q", "late")
	late.Delay = time.Hour
	b.store1(late)
	b.same("delayed", pages("q", job.Delayed, none), []string{"late"})
	b.same("dead", len(pages("q", job.Dead, none)), 0)

	page, next, err := b.store.List(b.Context(), b.ns, job.List{Queue: "q", State: job.Ready, Limit: 1})
	b.same("without payloads", []any{len(page), page[0].Bytes, len(page[0].Payload), err}, []any{1, 1, 0, nil})
	for _, l := range []job.List{
		{Queue: "wide", State: job.Ready, Limit: 1, After: next},
		{Queue: "q", State: job.Dead, Limit: 1, After: next},
		{Queue: "q", State: job.Ready, Limit: 1, After: next + "A"},
		{Queue: "q", State: job.Ready, Limit: 1, After: "nonsense"},
	} {
		_, _, err := b.store.List(b.Context(), b.ns, l)
		b.is("after of another list", err, job.ErrBadAfter)
	}
}

func jobsAreInOrder(b *bench) {
	b.open(nil)
	b.publish("q", "1", "2", "3")
	b.publish("q", "4")
	b.same("two", payloads(b.claim(2, "q")), []string{"1", "2"})
	b.publish("q", "5")
	b.same("the rest", payloads(b.claim(100, "q")), []string{"3", "4", "5"})
}

func aBatchRunsAllVerbsAtOnce(b *bench) {
	b.open(func(p *job.Policy) { p.Shards = 3 })
	for i := range 6 {
		b.publish(fmt.Sprint("q", i), "a", "b")
	}
	var batch job.Batch
	for i := range 6 {
		q := fmt.Sprint("q", i)
		got := b.claim(2, q)
		batch.Acks = append(batch.Acks, &job.Ack{Namespace: b.ns, Queue: q, Ref: got[0].Ref})
		batch.Settles = append(batch.Settles, &job.Settle{Namespace: b.ns, Queue: q, Ref: got[1].Ref, Attempt: 1, Verb: job.Nack})
		batch.Publishes = append(batch.Publishes, b.message(q, "c"))
		batch.Claims = append(batch.Claims, &job.Claim{Namespace: b.ns, Shard: b.ns.Shards(q)[0], Queues: []string{q}, TTR: time.Minute, Count: 5, ReportLeft: true})
	}
	want := []string{"b", "c"}
	if b.target.Replicas > 0 {
		// They run beside the others, because they wait for replicas.
		b.run(job.Batch{Publishes: batch.Publishes})
		batch.Publishes, want = nil, []string{"c", "b"}
	}
	b.run(batch)
	for i := range 6 {
		b.same("ack", []any{batch.Acks[i].Acked, batch.Acks[i].Err}, []any{true, nil})
		b.same("settle", []any{batch.Settles[i].State, batch.Settles[i].Err}, []any{job.Ready, nil})
		b.same("claim", []any{payloads(batch.Claims[i].Jobs), batch.Claims[i].Left, batch.Claims[i].Err}, []any{want, []int{0}, nil})
	}
	for _, p := range batch.Publishes {
		b.is("publish", p.Err, nil)
	}
	b.ledger(job.Ledger{Published: 18, Acked: 6, Leased: 12})
}

func alikeRequestsAreSharedOut(b *bench) {
	b.open(nil)
	var batch job.Batch
	for i := range 5 {
		batch.Publishes = append(batch.Publishes, b.message("q", fmt.Sprint(i, "a"), fmt.Sprint(i, "b")))
	}
	late := b.message("q", "late")
	late.Delay = time.Hour
	batch.Publishes = append(batch.Publishes, late)
	b.run(batch)
	seqs := map[int64]bool{}
	for _, p := range batch.Publishes {
		b.is("publish", p.Err, nil)
		for i := range p.Count {
			seqs[p.First+int64(i)] = true
		}
	}
	b.same("sequences", len(seqs), 11)
	var claims job.Batch
	for _, count := range []int{1, 4, 2, 100, 7} {
		claims.Claims = append(claims.Claims, &job.Claim{Namespace: b.ns, Shard: 0, Queues: []string{"q"}, TTR: time.Minute, Count: count})
	}
	b.run(claims)
	var got []string
	for _, c := range claims.Claims {
		b.is("claim", c.Err, nil)
		got = append(got, strings.Join(payloads(c.Jobs), " "))
	}
	b.same("shares", got, []string{"0a", "0b 1a 1b 2a", "2b 3a", "3b 4a 4b", ""})
	b.ledger(job.Ledger{Published: 11, Leased: 10, Delayed: 1})
}

func manyRequestsTakeSeveralCalls(b *bench) {
	b.open(func(p *job.Policy) { p.Shards = 2 })
	var batch, claims job.Batch
	const queues = 200
	for i := range queues {
		q := fmt.Sprint("q", i)
		batch.Publishes = append(batch.Publishes, b.message(q, "x", strings.Repeat("y", 20_000)), b.message(q, "z"))
		claims.Claims = append(claims.Claims, &job.Claim{Namespace: b.ns, Shard: b.ns.Shards(q)[0], Queues: []string{q}, TTR: time.Minute, Count: 9})
	}
	b.run(batch)
	for _, p := range batch.Publishes {
		b.is("publish", p.Err, nil)
	}
	b.run(claims)
	var acks job.Batch
	for i, c := range claims.Claims {
		b.is("claim", c.Err, nil)
		b.same(fmt.Sprint("jobs of q", i), len(c.Jobs), 3)
		for _, j := range c.Jobs {
			acks.Acks = append(acks.Acks, &job.Ack{Namespace: b.ns, Queue: j.Queue, Ref: j.Ref})
		}
	}
	b.run(acks)
	for _, a := range acks.Acks {
		b.same("ack", []any{a.Acked, a.Err}, []any{true, nil})
	}
	b.ledger(job.Ledger{Published: 3 * queues, Acked: 3 * queues})
}

func aClaimPrefersTheFirstQueue(b *bench) {
	b.open(nil)
	b.publish("low", "l1", "l2")
	b.publish("high", "h1")
	c := &job.Claim{Namespace: b.ns, Queues: []string{"high", "none", "low"}, TTR: time.Minute, Count: 2, ReportLeft: true}
	b.run(job.Batch{Claims: []*job.Claim{c}})
	b.same("jobs", []any{payloads(c.Jobs), c.Left, c.Err}, []any{[]string{"h1", "l1"}, []int{0, 0, 1}, nil})
}

func aClaimIsBoundedInBytes(b *bench) {
	b.open(nil)
	large := strings.Repeat("x", 100_000)
	b.publish("q", large, large, large, large)
	c := &job.Claim{Namespace: b.ns, Queues: []string{"q"}, TTR: time.Minute, Count: 4, MaxBytes: 150_000, ReportLeft: true}
	b.run(job.Batch{Claims: []*job.Claim{c}})
	b.same("jobs", []any{len(c.Jobs), c.Left, c.More, c.Err}, []any{2, []int{2}, true, nil})
	c.MaxBytes = 1
	b.run(job.Batch{Claims: []*job.Claim{c}})
	b.same("one at least", []any{len(c.Jobs), c.Left, c.Err}, []any{1, []int{1}, nil})
}

func aDelayedJobWaits(b *bench) {
	b.open(nil)
	b.promote()
	p := b.message("q", "later")
	p.Delay = 150 * time.Millisecond
	began := time.Now()
	b.store1(p)
	b.same("job", payloads(b.claimSome(1, "q")), []string{"later"})
	if took := time.Since(began); took < 149*time.Millisecond {
		b.Errorf("it came after %v", took)
	}
	b.ledger(job.Ledger{Published: 1, Leased: 1})
}

func aLeaseLapses(b *bench) {
	b.open(nil)
	b.promote()
	b.publish("q", "x")
	first := b.claimFor(30*time.Millisecond, 1, "q")[0]
	second := b.claimSome(1, "q")[0]
	b.same("attempts", []int{first.Attempt, second.Attempt}, []int{1, 2})
	b.same("id", second.ID, first.ID)
	b.same("the first holder is late", b.settle(first, job.Nack, 0), job.Gone)
	b.same("but its ack counts", b.ack(first).Acked, true)
	b.ledger(job.Ledger{Published: 1, Acked: 1})
}

func theLastTryEndsAsADeadLetter(b *bench) {
	b.open(nil)
	b.promote()
	p := b.message("q", "lapses", "is nacked", "is buried", "says why")
	p.Tries = 1
	b.store1(p)
	b.claimFor(time.Millisecond, 1, "q")
	b.same("nack", b.settle(b.claim(1, "q")[0], job.Nack, time.Hour), job.Dead)
	b.same("bury", b.settle(b.claim(1, "q")[0], job.Bury, 0), job.Dead)
	why := &job.Settle{Namespace: b.ns, Queue: "q", Ref: b.claim(1, "q")[0].Ref, Verb: job.Bury, Error: "no such card"}
	b.run(job.Batch{Settles: []*job.Settle{why}})
	b.until("the first is dead, too", func() bool {
		l, err := b.store.Ledger(b.Context(), b.ns)
		return err == nil && l.Dead == 4
	})
	b.ledger(job.Ledger{Published: 4, Dead: 4, Died: 4})
	list, _, err := b.store.Dead(b.Context(), b.ns, "q", 0, 4)
	b.is("list", err, nil)
	for _, j := range list {
		got, state, err := b.store.Get(b.Context(), b.ns, "q", j.Ref)
		b.same("get", []any{state, err, got.Reason, got.Attempt, got.At}, []any{job.Dead, nil, j.Reason, j.Attempt, j.At})
		why := map[string]string{"lapses": "lapsed", "is nacked": "nacked", "is buried": "buried", "says why": "buried"}[string(j.Payload)]
		attempt := 1 // all its tries, or that of its error
		if string(j.Payload) == "is buried" {
			attempt = -1
		}
		b.same("why", []any{j.Reason.String(), j.Attempt, j.At <= j.Now && j.At > j.Now-600_000}, []any{why, attempt, true})
	}
}

func deadLettersAreDropped(b *bench) {
	b.open(func(p *job.Policy) { p.DropDead = true })
	b.publish("q", "x")
	b.same("bury", b.settle(b.claim(1, "q")[0], job.Bury, 0), job.Expired)
	b.ledger(job.Ledger{Published: 1, Expired: 1})
}

func settlesNeedTheAttempt(b *bench) {
	b.open(nil)
	b.publish("q", "x")
	j := b.claim(1, "q")[0]
	j.Attempt = 2
	b.same("another attempt", b.settle(j, job.Bury, 0), job.Gone)
	j.Attempt = 0
	b.same("any attempt", b.settle(j, job.Nack, time.Hour), job.Delayed)
	b.same("no lease", b.settle(j, job.Nack, 0), job.Gone)
	b.ledger(job.Ledger{Published: 1, Delayed: 1})
}

func aRequeuedJobIsAtTheHead(b *bench) {
	b.open(nil)
	b.publish("q", "1", "2")
	j := b.claim(1, "q")[0]
	b.same("requeue", b.settle(j, job.Requeue, 0), job.Ready)
	again := b.claim(2, "q")
	b.same("order", payloads(again), []string{"1", "2"})
	b.same("attempt", again[0].Attempt, 1)
	b.publish("q", "3")
	var both job.Batch
	for _, j := range again {
		both.Settles = append(both.Settles, &job.Settle{Namespace: b.ns, Queue: "q", Ref: j.Ref, Attempt: 1, Verb: job.Requeue})
	}
	b.run(both)
	b.same("those of a batch keep their order", payloads(b.claim(9, "q")), []string{"1", "2", "3"})
}

func aTouchedLeaseIsLonger(b *bench) {
	b.open(nil)
	b.promote()
	b.publish("q", "x")
	j := b.claimFor(time.Minute, 1, "q")[0]
	b.same("touch", b.settle(j, job.Touch, time.Hour), job.Leased)
	_, state, err := b.store.Get(b.Context(), b.ns, "q", j.Ref)
	b.same("state", []any{state, err}, []any{job.Leased, nil})
	b.same("a short one", b.settle(j, job.Touch, time.Millisecond), job.Leased)
	b.same("attempt", b.claimSome(1, "q")[0].Attempt, 2)
}

func aJobWithoutAClaimIsDeleted(b *bench) {
	b.open(nil)
	id := b.publish("q", "x", "y")[0]
	ref, _ := b.ns.ParseID("q", id)
	a := b.ack(job.Job{Queue: "q", Ref: ref})
	b.same("deleted", []bool{a.Acked, a.Deleted}, []bool{false, true})
	b.ledger(job.Ledger{Published: 2, Deleted: 1, Ready: 1})
	b.same("the rest", payloads(b.claim(5, "q")), []string{"y"})
}

func aRepeatedRequeueTakesNothing(b *bench) {
	b.open(nil)
	b.publish("q", "1")
	first := b.claim(1, "q")[0]
	requeue := func() job.State {
		r := &job.Settle{Namespace: b.ns, Queue: "q", Ref: first.Ref, Attempt: 1, Verb: job.Requeue, Deadline: first.At}
		b.store.Run(b.Context(), b.lane, &job.Batch{Settles: []*job.Settle{r}})
		if r.Err != nil {
			b.Fatal(r.Err)
		}
		return r.State
	}
	b.same("requeue", requeue(), job.Ready)
	var next job.Job
	for next = b.claim(1, "q")[0]; next.At == first.At; next = b.claim(1, "q")[0] { // in the same ms
		b.settle(next, job.Requeue, 0)
	}
	b.same("attempt", next.Attempt, 1)
	b.same("repeated", requeue(), job.Gone)
	b.same("the next holder acks", b.ack(next).Acked, true)
}

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

func aFullNamespaceRejects(b *bench) {
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

func aFurtherQueueIsRejected(b *bench) {
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
		func(p *job.Publish) { p.Shard = -1 },
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
	batch.Acks = []*job.Ack{{Namespace: b.ns, Queue: "q", Ref: job.Ref{Shard: 1024, Seq: 1}}, {Namespace: b.ns, Queue: "q"}}
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
	b.is("change", b.real.SetNamespaces(b.Context(), map[string]job.Policy{"mail": p, "other": job.DefaultPolicy()}), nil)
	b.ns = b.store.Namespace("mail")
	full := b.message("q", "y")
	b.run(job.Batch{Publishes: []*job.Publish{full}})
	b.is("the new limit", full.Err, job.ErrTooManyJobs)
	j := b.claim(1, "q")[0]
	b.ns = before
	b.same("who has the old one may go on", b.ack(j).Acked, true)
	b.ns = b.store.Namespace("other")
	b.publish("q", "x")
	b.is("a namespace less", b.real.SetNamespaces(b.Context(), map[string]job.Policy{"mail": p}), nil)
	b.same("the one not named is gone", b.store.Namespace("other") == nil, true)
	p.Shards = 2
	if err := b.real.SetNamespaces(b.Context(), map[string]job.Policy{"mail": p}); err == nil {
		b.Error("another number of shards is taken")
	}
}

func aDelayedJobIsRescheduled(b *bench) {
	b.open(nil)
	b.promote()
	p := b.message("q", "before")
	p.Delay = time.Hour
	ids := b.store1(p)
	ref, _ := b.ns.ParseID("q", ids[0])
	soon := 50 * time.Millisecond
	for what, r := range map[string]*job.Reschedule{
		"no namespace":  {Queue: "q", Ref: ref},
		"a bad queue":   {Namespace: b.ns, Queue: "a b", Ref: ref},
		"no shard":      {Namespace: b.ns, Queue: "q", Ref: job.Ref{Shard: 1024, Seq: 1}},
		"a delay of -1": {Namespace: b.ns, Queue: "q", Ref: ref, Delay: new(time.Duration(-1))},
	} {
		b.is(what, b.store.Reschedule(b.Context(), r), job.ErrBadArgument)
	}
	b.is("none", b.store.Reschedule(b.Context(), &job.Reschedule{Namespace: b.ns, Queue: "q", Ref: job.Ref{Seq: 7}}), job.ErrNoJob)
	r := &job.Reschedule{Namespace: b.ns, Queue: "q", Ref: ref, Delay: &soon, Payload: []byte{}}
	b.is("reschedule", b.store.Reschedule(b.Context(), r), nil)
	got := b.claimSome(1, "q")
	b.same("got", []any{got[0].ID, string(got[0].Payload), got[0].Attempt, got[0].Now >= r.Due}, []any{ids[0], "", 1, true})
	b.is("claimed", b.store.Reschedule(b.Context(), r), job.ErrNotDelayed)
	b.settle(got[0], job.Nack, time.Hour)
	b.is("claimed, and delayed", b.store.Reschedule(b.Context(), r), job.ErrNotDelayed)
	b.is("promote", b.store.Reschedule(b.Context(), &job.Reschedule{Namespace: b.ns, Queue: "q", Ref: ref, Promote: true}), nil)
	b.ledger(job.Ledger{Published: 1, Ready: 1})
	got = b.claim(1, "q")
	b.same("promoted", []any{got[0].ID, got[0].Attempt}, []any{ids[0], 2})
	b.is("promote a leased one", b.store.Reschedule(b.Context(), &job.Reschedule{Namespace: b.ns, Queue: "q", Ref: ref, Promote: true}), job.ErrNotDelayed)
	b.ack(got[0])
	b.ledger(job.Ledger{Published: 1, Acked: 1})
}

func TestAWindowThatBeginsAnewOutlivesTheFirst(t *testing.T) {
	t.Parallel()
	server := redistest.StartWithClock(t)
	b := &bench{T: t, target: target{URL: server.URL()}}
	b.open(nil)
	once := func(payload string, window time.Duration) *job.Publish {
		p := b.message("q", payload)
		p.Delay, p.TTL, p.Unique, p.UniqueKey = time.Hour, 0, window, "k"
		b.run(job.Batch{Publishes: []*job.Publish{p}})
		b.is(payload, p.Err, nil)
		return p
	}
	unique := once("first", time.Minute)
	for i := range 3 {
		double := once(fmt.Sprint("double ", i), 5*time.Minute)
		again := &job.Reschedule{Namespace: b.ns, Queue: "q", Ref: job.Ref{Shard: unique.Shard, Seq: unique.First}, Delay: &double.Delay, Unique: double}
		b.same("the window begins anew", []any{double.Exists, b.store.Reschedule(b.Context(), again)}, []any{true, nil})
	}
	server.Advance(2 * time.Minute)
	b.same("still a double", once("later", time.Second).Exists, true)
	l, err := b.store.Ledger(b.Context(), b.ns)
	b.same("three changes and one key: one more for each second that began meanwhile", []any{l.Keys >= 1 && l.Keys <= 4, err}, []any{true, nil})
	server.Advance(3 * time.Minute)
	b.same("after it", once("last", time.Minute).Exists, false)
}

// The waits are those of workers and of push, at the middle of their jitter.
func TestAJobOfAQueueWithoutRulesOutlivesAnHourOfFailures(t *testing.T) {
	t.Parallel()
	server := redistest.StartWithClock(t)
	b := &bench{T: t, target: target{URL: server.URL()}}
	b.open(nil)
	b.promote()
	p := b.message("q", "x")
	p.Tries, p.TTL = b.ns.Tries("q"), 0
	b.store1(p)
	failing := time.Duration(0)
	for n := 1; ; n++ {
		j := b.claimSome(1, "q")[0]
		b.same("attempt", []int{j.Attempt, j.Tries}, []int{n, 25})
		rest := min(time.Second<<(n-1), 10*time.Minute) / 2
		if b.settle(j, job.Nack, rest) == job.Dead {
			break
		}
		server.Advance(rest)
		failing += rest
		b.claim(1, "none") // the store learns the time
		b.real.ScheduleComesDue(job.DueShard{Namespace: b.ns, Shard: p.Shard}, 0)
	}
	if failing < time.Hour {
		t.Errorf("dead after %v", failing)
	}
	b.ledger(job.Ledger{Published: 1, Dead: 1, Died: 1})
}
