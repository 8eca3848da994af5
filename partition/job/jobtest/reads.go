package jobtest

import (
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
)

var errIncompatible = backend.ErrIncompatible

func readsDescribeJobs(b *bench) {
	b.open(nil)
	_, err := b.store.Peek(b.Context(), b.ns, "q")
	b.is("peek of nothing", err, job.ErrNoJob)
	ids := b.publish("q", "x", "y")
	j, err := b.store.Peek(b.Context(), b.ns, "q")
	b.same("peek", []any{string(j.Payload), j.ID, j.Attempt, err}, []any{"x", ids[0], 0, nil})
	get := func(id string) (job.Job, job.State, error) {
		ref, _ := b.ns.ParseID("q", id)
		return b.store.Get(b.Context(), b.ns, "q", ref)
	}
	j, state, err := get(ids[1])
	b.same("ready", []any{string(j.Payload), j.ID, state, err}, []any{"y", ids[1], job.Ready, nil})
	held := b.claim(1, "q")[0]
	j, state, err = get(ids[0])
	b.same("leased", []any{j.Attempt, state, err, j.At > j.Now}, []any{1, job.Leased, nil, true})
	b.settle(held, job.Nack, time.Hour)
	j, state, err = get(ids[0])
	b.same("delayed", []any{j.Attempt, state, err, j.At > j.Now}, []any{1, job.Delayed, nil, true})
	b.settle(b.claim(1, "q")[0], job.Bury, 0)
	j, state, err = get(ids[1])
	b.same("dead", []any{state, err, j.At > 0 && j.At <= j.Now}, []any{job.Dead, nil, true})
	ref, _ := b.ns.ParseID("q", ids[1])
	b.ack(job.Job{Queue: "q", Ref: ref})
	_, _, err = get(ids[1])
	b.is("gone", err, job.ErrNoJob)
}

func countsDescribeAQueue(b *bench) {
	b.open(nil)
	first := b.publish("q", "1", "2", "3", "4")
	b.publish("other", "1")
	late := b.message("q", "late")
	late.Delay = time.Hour
	b.store1(late)
	jobs := b.claim(2, "q")
	b.settle(jobs[0], job.Bury, 0)
	c, err := b.store.Counts(b.Context(), b.ns, "q")
	b.is("counts", err, nil)
	if ref, _ := b.ns.ParseID("q", first[2]); c.OldestReady != ref.Seq/1000 {
		b.Errorf("the oldest is of %d, want %d", c.OldestReady, ref.Seq/1000)
	}
	c.OldestReady = 0
	b.same("counts", c, job.Counts{Ready: 2, Delayed: 1, Leased: 1, Dead: 1, Pending: 2})
	c, err = b.store.Counts(b.Context(), b.ns, "nobody")
	b.same("of nothing", []any{c, err}, []any{job.Counts{}, nil})
	queues, err := b.store.Queues(b.Context(), b.ns)
	b.same("queues", []any{queues, err}, []any{[]string{"other", "q"}, nil})
}

func aForecastCountsWhatComesDue(b *bench) {
	b.open(nil)
	for i, delay := range []time.Duration{30 * time.Second, 90 * time.Second, 100 * time.Second, 10 * time.Minute} {
		p := b.message([]string{"q", "other"}[i%2], "x")
		p.Delay = delay
		b.store1(p)
	}
	all, err := b.store.Forecast(b.Context(), b.ns, "", time.Minute, 3)
	b.same("all", []any{all, err}, []any{[]int64{1, 2, 0}, nil})
	one, err := b.store.Forecast(b.Context(), b.ns, "q", time.Minute, 3)
	b.same("one queue", []any{one, err}, []any{[]int64{1, 1, 0}, nil})
	_, err = b.store.Forecast(b.Context(), b.ns, "q", 0, 3)
	b.is("no step", err, job.ErrBadArgument)
}

func aPurgeDeletesJobs(b *bench) {
	b.open(nil)
	var texts []string
	for i := range 700 {
		texts = append(texts, fmt.Sprint(i))
	}
	b.publish("q", texts...)
	b.settle(b.claim(1, "q")[0], job.Bury, 0)
	b.claim(1, "q")
	late := b.message("q", "late")
	late.Delay = time.Hour
	b.store1(late)
	n, err := b.store.Purge(b.Context(), b.ns, "q", false)
	b.same("ready", []any{n, err}, []any{int64(698), nil})
	b.ledger(job.Ledger{Published: 701, Deleted: 698, Dead: 1, Died: 1, Delayed: 1, Leased: 1})
	n, err = b.store.Purge(b.Context(), b.ns, "q", true)
	b.same("all", []any{n, err}, []any{int64(3), nil})
	b.ledger(job.Ledger{Published: 701, Deleted: 701, Died: 1})
}

func deadLettersAreListed(b *bench) {
	b.open(func(p *job.Policy) { p.Shards, p.Spread = 3, map[string]int{"q": 2} })
	want := []string{}
	for _, shard := range b.ns.Shards("q") {
		p := b.message("q", "a", "b", "c")
		p.Shard = shard
		b.store1(p)
		c := &job.Claim{Namespace: b.ns, Shard: shard, Queues: []string{"q"}, TTR: time.Minute, Count: 3}
		b.run(job.Batch{Claims: []*job.Claim{c}})
		for _, j := range c.Jobs {
			b.settle(j, job.Bury, 0)
			want = append(want, j.ID)
		}
	}
	var got []string
	for len(got) < 6 {
		list, total, err := b.store.Dead(b.Context(), b.ns, "q", len(got), 4)
		b.same("page", []any{total, err, len(list) > 0}, []any{int64(6), nil, true})
		for _, j := range list {
			got = append(got, j.ID)
		}
		if len(list) == 0 {
			break
		}
	}
	b.same("letters", got, want)
	n, err := b.store.Respawn(b.Context(), b.ns, "q", 2, time.Hour)
	b.same("respawned", []any{n, err}, []any{2, nil})
	n, err = b.store.DeleteDead(b.Context(), b.ns, "q", 100)
	b.same("deleted", []any{n, err}, []any{4, nil})
	b.ledger(job.Ledger{Published: 6, Deleted: 4, Ready: 2, Died: 6, Respawned: 2})
	j := b.claim(1, "q")[0]
	b.same("one try more", []any{j.Tries, j.Attempt, b.settle(j, job.Nack, 0)}, []any{4, 4, job.Dead})
}
