package jobs_test

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/move"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
)

// spent are the options of a publish that no ready job has any more: they are about the publish itself, or over.
var spent = []string{"Delay", "At", "Key", "Dedup", "Unique", "UniqueKey", "OnConflict", "Moved"}

func TestAMoveCarriesAllThatAPublishSaid(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Rules = []job.Rule{{Match: "*", KeepAcked: job.Span(time.Hour), KeepTrace: job.Span(time.Hour)}}
	policies := map[string]job.Policy{"mail": policy, "orders": job.DefaultPolicy()}
	here, there := serve(t, policies), serve(t, policies)
	for name, to := range map[string]struct{ url, namespace, queue string }{
		"another queue":     {here, "mail", "moved"},
		"another namespace": {here, "orders", "a"},
		"another server":    {there, "mail", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			from, target := client(t, here, "mail"), client(t, to.url, to.namespace)
			word := strings.ReplaceAll(name, " ", "-")
			queue, done := word, word+"-done"
			if to.queue == "a" {
				to.queue = queue
			}
			o := spillway.PublishOptions{
				Delay:      time.Millisecond,
				TTL:        time.Hour,
				Tries:      7,
				ID:         "order-7",
				Attributes: map[string]string{"kind": "first & <last>", "of": "me"},
				Unique:     time.Hour,
				OnEnd:      done,
				Key:        "k",
				Dedup:      time.Hour,
			}
			checked := map[string]func(spillway.Job) bool{
				"TTL":        func(j spillway.Job) bool { return j.Left > 59*time.Minute && j.Left <= time.Hour },
				"Tries":      func(j spillway.Job) bool { return j.Tries == 7 },
				"ID":         func(j spillway.Job) bool { return strings.HasSuffix(j.ID, "-order-7") },
				"Attributes": func(j spillway.Job) bool { return maps.Equal(j.Attributes, o.Attributes) },
				"OnEnd":      func(j spillway.Job) bool { return j.OnEnd == done },
				"Shards":     nil, // below: with an id there are none
			}
			for _, name := range spent {
				checked[name] = nil
			}
			for f := range reflect.TypeFor[spillway.PublishOptions]().Fields() {
				if _, known := checked[f.Name]; !known {
					t.Errorf("does a move carry %s? Say so here", f.Name)
				}
			}
			first, err := from.Publish(ctx, queue, []byte("a\n\x00\xff"), o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = from.Publish(ctx, queue, []byte("s"), spillway.PublishOptions{Shards: 2}); err != nil {
				t.Fatal(err)
			}
			_, err = from.Schedules().Put(ctx, queue, "tracked", spillway.Spec{Every: 24 * time.Hour, Payload: []byte("1"), Track: true, OnEnd: done}, spillway.PutOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = from.Schedules().Trigger(ctx, queue, "tracked", spillway.TriggerOptions{}); err != nil {
				t.Fatal(err)
			}
			redistest.Until(t, 20*time.Second, "all are ready", func() bool { c, err := from.Counts(ctx, queue); return err == nil && c.Ready == 4 })
			waited := make(chan spillway.Job, 1)
			go func() {
				j, _ := from.Wait(ctx, queue, first.IDs[0], time.Minute)
				waited <- j
			}()

			m := &move.Move{From: from, To: target, Queue: queue, Target: to.queue}
			if err := m.Run(ctx); err != nil || m.Moved.Load() != 4 {
				t.Fatalf("moved %d, %v", m.Moved.Load(), err)
			}

			if j := <-waited; j.State != "gone" && j.State != "" { // "": it began to wait when the job had moved
				t.Errorf("who waits was told %q", j.State)
			}
			if _, err := from.Get(ctx, queue, first.IDs[0]); !errors.Is(err, spillway.ErrNoJob) {
				t.Errorf("the moved job is kept: %v", err)
			}
			if c, err := from.Counts(ctx, done); err != nil || c.Ready+c.Pending > 0 {
				t.Errorf("on_end was told: %+v, %v", c, err)
			}
			if s, err := from.Schedules().Get(ctx, queue, "tracked"); err != nil || s.Jobs.OK != 0 || s.Jobs.Failed != 1 {
				t.Errorf("its schedule was told %+v, %v", s.Jobs, err)
			}
			if again, err := from.Publish(ctx, queue, []byte("x"), spillway.PublishOptions{ID: "order-7"}); err != nil || again.Exists {
				t.Errorf("its id is still taken: %+v, %v", again, err)
			}
			redistest.Until(t, 20*time.Second, "its trace ends", func() bool {
				trace, err := from.Trace(ctx, queue, first.IDs[0])
				return err == nil && trace[len(trace)-1].Event == "moved"
			})

			list, err := target.Claim(ctx, []string{to.queue}, spillway.ClaimOptions{Count: 9, OnEnd: true})
			if err != nil || len(list) != 4 {
				t.Fatalf("got %v, %v", list, err)
			}
			for i, j := range list {
				switch {
				case strings.HasSuffix(j.ID, "-order-7"):
					for field, same := range checked {
						if same != nil && !same(j) {
							t.Errorf("%s is not what the publish said: %+v", field, j)
						}
					}
					if string(j.Payload) != "a\n\x00\xff" {
						t.Errorf("got %q", j.Payload)
					}
					if got, err := target.Get(ctx, to.queue, j.ID); err != nil || got.OnEnd != done {
						t.Errorf("got %+v, %v", got, err)
					}
				case j.Attributes["schedule"] == "tracked":
					if j.Attributes["cause"] != "triggered" || j.Attributes["tick"] == "" || j.OnEnd != done {
						t.Errorf("got %+v", j)
					}
				case j.Attributes["shard_total"] != "2" || j.Attributes["shard_index"] == "" || j.OnEnd != "":
					t.Errorf("job %d: got %+v", i, j)
				}
				if err := target.Ack(ctx, j); err != nil {
					t.Error(err)
				}
			}
			redistest.Until(t, 20*time.Second, "the end is told where the jobs are", func() bool { c, err := target.Counts(ctx, done); return err == nil && c.Ready == 2 })
		})
	}
}

func TestWhatAMoveCannotCarryStaysAsItWas(t *testing.T) {
	t.Parallel()
	from, ctx := serveQueues(t), t.Context()
	for _, queue := range []string{"a", "b"} {
		if _, err := from.Publish(ctx, queue, []byte(queue), spillway.PublishOptions{ID: "one", Tries: 1}); err != nil {
			t.Fatal(err)
		}
	}
	m := &move.Move{From: from, To: from, Queue: "a", Target: "b"}
	if err := m.Run(ctx); err == nil || !strings.Contains(err.Error(), "same id") {
		t.Errorf("got %v", err)
	}
	j, err := from.Peek(ctx, "a")
	if err != nil || string(j.Payload) != "a" || j.Attempt != 0 {
		t.Errorf("got %+v, %v", j, err)
	}
}
