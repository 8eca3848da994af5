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
			words = append(words, strings.Join(strings.Fields(fmt.Sprint(e.Event, " ", e.By, " ", e.Reason)), " "))
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
	j.Attempt = 2
	b.settle(j, job.Nack, 0)
	b.same("its trace", b.told("seen", id, 8), "published web, promoted, claimed worker 1, nacked 1, claimed worker 2, written push 2, nacked 2, dead nacked")

	short := b.message("seen-too", "y")
	short.Tries = 1
	id = b.store1(short)[0]
	b.claimFor(time.Millisecond, 1, "seen-too")
	b.same("of one whose worker died", b.told("seen-too", id, 4), "published, claimed 1, lapsed, dead lapsed")

	id = b.publish("other", "z")[0]
	ref, _ := b.ns.ParseID("other", id)
	_, err := b.store.Trace(b.Context(), b.ns, "other", ref)
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
