package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

// noBuffers is a store without namespaces.
type noBuffers struct{}

func (noBuffers) Namespace(string) *partition.Namespace       { return nil }
func (noBuffers) Zones() int                                  { return 1 }
func (noBuffers) NowOf(*partition.Namespace) (int64, bool)    { return 0, true }
func (noBuffers) Produce(context.Context, []*partition.Group) {}
func (noBuffers) Stats(context.Context, *partition.Namespace, string) (partition.Stats, error) {
	return partition.Stats{}, partition.ErrNoPartition
}

// serveQueues serves the queues of the namespace mail, which are in a Redis, and returns a client of it.
func serveQueues(t *testing.T) *spillway.Queues {
	t.Helper()
	return client(t, serve(t, map[string]job.Policy{"mail": job.DefaultPolicy()}), "mail")
}

// client is one of a namespace of a service.
func client(t *testing.T, url, namespace string) *spillway.Queues {
	t.Helper()
	c, err := spillway.NewQueues(url, spillway.QueuesConfig{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serve serves namespaces of a Redis of their own, and returns the URL.
func serve(t *testing.T, policies map[string]job.Policy) string {
	t.Helper()
	log := zap.NewNop()
	reg := prometheus.NewRegistry()
	b := backendtest.Open(t, backend.Config{URL: "redis://" + redistest.Start(t).Addr})
	store, err := job.Open(job.Config{Prefix: "sw", Volatile: true, Namespaces: policies}, b, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, 20*time.Second, "the store can be used", func() bool { _, err := store.Check(t.Context()); return err == nil })
	engine, err := jobs.New(jobs.DefaultConfig(), store, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	promoter, firer, mover := job.NewPromoter(store), schedule.NewFirer(store, reg, log), job.NewMover(store)
	tracer := job.NewTracer(store)
	cfg := ingest.DefaultConfig()
	cfg.Mounts, cfg.Tokens = []ingest.Mount{engine.Mount()}, map[string][]ingest.Token{}
	for name := range policies {
		cfg.Tokens[name] = nil // it needs none
	}
	server, err := ingest.New(cfg, noBuffers{}, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.SetListener(listener)
	for _, start := range []func(context.Context) error{promoter.Start, firer.Start, mover.Start, tracer.Start, engine.Start, server.Start} {
		if err := start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := errors.Join(server.Stop(ctx), engine.Stop(ctx), tracer.Stop(ctx), mover.Stop(ctx), firer.Stop(ctx), promoter.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

// What the conformance suite has no word for, against the real thing: its service is one in memory.
func TestTheGoClientPublishesAndReads(t *testing.T) {
	t.Parallel()
	j, ctx := serveQueues(t), t.Context()
	take := func(o spillway.ClaimOptions, queues ...string) spillway.Job {
		t.Helper()
		list, err := j.Claim(ctx, queues, o)
		if err != nil || len(list) != 1 {
			t.Fatalf("got %v, %v", list, err)
		}
		return list[0]
	}
	check := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	payload := "a\n\x00\xff"
	p, err := j.Publish(ctx, "welcome", []byte(payload), spillway.PublishOptions{Tries: 2, ID: "order-7", TTL: time.Hour})
	check(err, nil)
	again, err := j.Publish(ctx, "welcome", []byte("other"), spillway.PublishOptions{ID: "order-7"})
	if check(err, nil); !again.Exists || !slices.Equal(again.IDs, p.IDs) {
		t.Errorf("got %+v, want %+v", again, p)
	}
	peeked, err := j.Peek(ctx, "welcome")
	if check(err, nil); peeked.ID != p.IDs[0] || peeked.State != "ready" || string(peeked.Payload) != payload {
		t.Errorf("got %+v", peeked)
	}
	got := take(spillway.ClaimOptions{}, "none", "welcome")
	if got.Attempt != 1 || got.Tries != 2 || string(got.Payload) != payload || got.Expires.Sub(got.Published).Round(time.Minute) != time.Hour {
		t.Errorf("got %+v", got)
	}
	check(j.Touch(ctx, got, time.Hour), nil)
	check(j.Progress(ctx, got, time.Hour, 40, "row 7"), nil)
	shown, err := j.Get(ctx, "welcome", got.ID)
	if check(err, nil); shown.Progress == nil || *shown.Progress != 40 || shown.Note != "row 7" {
		t.Errorf("got %+v", shown)
	}
	page, err := j.List(ctx, "welcome", spillway.ListOptions{State: "leased"})
	if check(err, nil); len(page.Jobs) != 1 || page.Jobs[0].Progress == nil || *page.Jobs[0].Progress != 40 || page.Jobs[0].Note != "row 7" {
		t.Errorf("got %+v", page)
	}
	check(j.Requeue(ctx, got), nil)
	if got = take(spillway.ClaimOptions{}, "welcome"); got.Attempt != 1 {
		t.Errorf("a requeued job has attempt %d", got.Attempt)
	}
	check(j.Nack(ctx, got, time.Hour, nil), nil)
	check(j.Nack(ctx, got, 0, nil), spillway.ErrGone)
	check(j.Ack(ctx, got), nil)

	_, err = j.PublishMany(ctx, "bulk", [][]byte{[]byte("1"), []byte("2")}, spillway.PublishOptions{Key: "k", Dedup: time.Minute})
	check(err, nil)
	buried := take(spillway.ClaimOptions{TTR: time.Minute}, "bulk")
	check(j.Bury(ctx, buried, errors.New("no\u202e\xff "+strings.Repeat("é", 1<<19))), nil)
	dead, err := j.Get(ctx, "bulk", buried.ID)
	if check(err, nil); dead.State != "dead" || dead.Reason != "buried" || dead.Attempt != 1 ||
		len(dead.Errors) != 1 || dead.Errors[0].Attempt != 1 || dead.Errors[0].AtMS == 0 || !strings.HasPrefix(dead.Errors[0].Error, "no  éé") || len(dead.Errors[0].Error) < 1000 {
		t.Errorf("got %+v", dead)
	}
	check(j.Delete(ctx, "bulk", buried.ID), nil)
	check(j.Delete(ctx, "bulk", buried.ID), spillway.ErrNoJob)
	_, err = j.Get(ctx, "bulk", "nonsense")
	check(err, spillway.ErrNoJob)

	_, err = j.Publish(ctx, "wide", []byte("x"), spillway.PublishOptions{Shards: 2})
	check(err, nil)
	list, err := j.Claim(ctx, []string{"wide"}, spillway.ClaimOptions{Count: 10})
	if check(err, nil); len(list) != 2 || list[1].Attributes["shard_index"] != "1" || list[1].Attributes["shard_total"] != "2" {
		t.Errorf("got %+v", list)
	}
	_, err = j.Publish(ctx, "welcome", []byte("x"), spillway.PublishOptions{Delay: time.Hour, TTL: time.Minute})
	check(err, spillway.ErrInvalid)
}

func TestTheGoClientChoosesDeadLettersAndPromotes(t *testing.T) {
	t.Parallel()
	j, ctx := serveQueues(t), t.Context()
	died := func(n int, cause string) (ids []string) {
		t.Helper()
		for range n {
			if _, err := j.Publish(ctx, "q", []byte("1"), spillway.PublishOptions{}); err != nil {
				t.Fatal(err)
			}
			list, err := j.Claim(ctx, []string{"q"}, spillway.ClaimOptions{})
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			if err := j.Bury(ctx, list[0], errors.New(cause)); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, list[0].ID)
		}
		return ids
	}
	slow, broken := died(5, "timeout after 3s"), died(3, "no such user")
	did := func(want int) func(n int, err error) {
		return func(n int, err error) {
			t.Helper()
			if n != want || err != nil {
				t.Errorf("got %d, %v, want %d", n, err, want)
			}
		}
	}
	did(2)(j.Respawn(ctx, "q", spillway.DeadLetters{Error: "timeout", Limit: 2}, time.Hour))
	did(0)(j.Respawn(ctx, "q", spillway.DeadLetters{Error: "timeout", Age: time.Hour}, 0))
	did(3)(j.Respawn(ctx, "q", spillway.DeadLetters{Error: "timeout"}, 0))
	did(1)(j.Respawn(ctx, "q", spillway.DeadLetters{IDs: []string{broken[1], broken[1], slow[0], "none"}}, 0))
	did(0)(j.DeleteDead(ctx, "q", spillway.DeadLetters{Reason: "lapsed"}))
	did(2)(j.DeleteDead(ctx, "q", spillway.DeadLetters{}))
	did(0)(j.DeleteDead(ctx, "q", spillway.DeadLetters{IDs: []string{}}))
	if _, err := j.DeleteDead(ctx, "q", spillway.DeadLetters{IDs: broken, Limit: 1}); err == nil {
		t.Error("ids and a limit are no mistake")
	}
	if _, err := j.DeleteDead(ctx, "q", spillway.DeadLetters{Reason: "bored"}); !errors.Is(err, spillway.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	later, err := j.Publish(ctx, "later", []byte("1"), spillway.PublishOptions{Delay: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Promote(ctx, "later", later.IDs[0]); err != nil {
		t.Error(err)
	}
	if err := j.Promote(ctx, "later", later.IDs[0]); !errors.Is(err, spillway.ErrNotDelayed) {
		t.Errorf("got %v", err)
	}
	if c, err := j.Counts(ctx, "later"); err != nil || c.Ready != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
}

// The same of schedules, prepared and deferred jobs.
func TestTheGoClientSchedulesPreparesAndDefers(t *testing.T) {
	t.Parallel()
	j, ctx := serveQueues(t), t.Context()
	check := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	same := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	s, grace := j.Schedules(), time.Duration(0)
	spec := spillway.Spec{
		Cron: "30 2 * * *", Zone: "Europe/Berlin", Jitter: time.Minute, Payload: []byte("a\n\x00\xff"), Attributes: map[string]string{"team": "growth"},
		Tries: 5, TTL: 20 * time.Hour, Overlap: "skip", Missed: "all", Grace: &grace, Window: 12 * time.Hour,
		Until: time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC), MaxRuns: 1000, OnEnd: "done", Track: true,
	}
	next, err := s.Put(ctx, "reports", "daily", spec, spillway.PutOptions{})
	check(err, nil)
	same("next ticks", len(next), 5)
	times, err := s.Times(ctx, spec, next[0].Add(-time.Millisecond), 5)
	check(err, nil)
	same("times", times, next)
	got, err := s.Get(ctx, "reports", "daily")
	check(err, nil)
	if !reflect.DeepEqual(got.Spec, spec) {
		t.Errorf("got %+v, want %+v", got.Spec, spec)
	}
	same("a new schedule", []any{got.Queue, got.Name, got.State, got.Revision, got.Next[0].Equal(next[0]), got.Ticks.Waiting},
		[]any{"reports", "daily", "active", 1, true, 0})
	_, err = s.Put(ctx, "reports", "daily", spec, spillway.PutOptions{Revision: 7})
	check(err, spillway.ErrInvalid)
	_, err = s.Put(ctx, "reports", "bad", spillway.Spec{Cron: "* * *"}, spillway.PutOptions{})
	check(err, spillway.ErrInvalid)
	_, err = s.Put(ctx, "reports", "hourly", spillway.Spec{Every: time.Hour}, spillway.PutOptions{})
	check(err, nil)
	var names []string
	for one, err := range s.List(ctx, "reports") {
		check(err, nil)
		names = append(names, one.Name)
	}
	same("names", names, []string{"daily", "hourly"})

	check(s.Pause(ctx, "reports", "daily"), nil)
	run, err := s.Trigger(ctx, "reports", "daily", spillway.TriggerOptions{Key: "k"})
	check(err, nil)
	again, err := s.Trigger(ctx, "reports", "daily", spillway.TriggerOptions{Key: "k"})
	check(err, nil)
	same("a repeat", []any{again.Repeated, again.IDs}, []any{true, run.IDs})
	_, err = s.Trigger(ctx, "reports", "daily", spillway.TriggerOptions{})
	check(err, spillway.ErrUnfinished)
	_, err = s.Trigger(ctx, "reports", "daily", spillway.TriggerOptions{Force: true})
	check(err, nil)
	jobs, err := j.Claim(ctx, []string{"reports"}, spillway.ClaimOptions{Count: 9})
	check(err, nil)
	same("a run", []any{len(jobs), jobs[0].ID, string(jobs[0].Payload), jobs[0].Attributes["schedule"], jobs[0].Attributes["team"]},
		[]any{2, run.IDs[0], "a\n\x00\xff", "daily", "growth"})
	check(s.Resume(ctx, "reports", "daily"), nil)
	noon := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	filled, err := s.Backfill(ctx, "reports", "hourly", noon, noon.Add(3*time.Hour))
	check(err, nil)
	same("backfilled", filled, 3)
	check(s.Delete(ctx, "reports", "daily"), nil)
	check(s.Delete(ctx, "reports", "daily"), spillway.ErrNoSchedule)
	_, err = s.Get(ctx, "reports", "daily")
	check(err, spillway.ErrNoSchedule)

	prepare := func(o spillway.PrepareOptions) spillway.Prepared {
		t.Helper()
		p, err := j.Prepare(ctx, "orders", []byte("x"), o)
		check(err, nil)
		return p
	}
	kept := prepare(spillway.PrepareOptions{Check: "asked", CheckAfter: time.Minute, Checks: 3, PublishOptions: spillway.PublishOptions{OnEnd: "done"}})
	dropped := prepare(spillway.PrepareOptions{})
	check(j.Delete(ctx, "orders", kept.ID), spillway.ErrPrepared)
	for range 2 {
		check(kept.Commit(ctx), nil)
		check(dropped.Rollback(ctx), nil)
	}
	check(kept.Rollback(ctx), spillway.ErrDecided)
	check(j.Prepared("orders", dropped.ID).Commit(ctx), spillway.ErrDecided)
	check(j.Prepared("reports", run.IDs[0]).Commit(ctx), spillway.ErrNotPrepared)

	at := time.Now().Add(time.Hour)
	later, err := j.Publish(ctx, "later", []byte("before"), spillway.PublishOptions{At: at})
	check(err, nil)
	check(j.Reschedule(ctx, "later", later.IDs[0], spillway.Change{At: at.Add(time.Hour), Payload: []byte("after")}), nil)
	check(j.Reschedule(ctx, "later", later.IDs[0], spillway.Change{Delay: time.Microsecond}), nil)
	jobs, err = j.Claim(ctx, []string{"later"}, spillway.ClaimOptions{Wait: 20 * time.Second})
	check(err, nil)
	same("rescheduled", string(jobs[0].Payload), "after")
	check(j.Reschedule(ctx, "later", later.IDs[0], spillway.Change{Delay: time.Hour}), spillway.ErrNotDelayed)
	check(j.Defer(ctx, jobs[0], time.Hour), nil)
	check(j.Ack(ctx, spillway.Job{Queue: "later", ID: jobs[0].ID, Attempt: jobs[0].Attempt}), nil)
}

func TestTheGoClientRegistersItsSchedules(t *testing.T) {
	t.Parallel()
	s := serveQueues(t).Schedules()
	ended := make(chan error, 3)
	register := func(ctx context.Context, version int64, every time.Duration) {
		go func() {
			ended <- s.Register(ctx, spillway.Registration{
				Owner:     "billing",
				Version:   version,
				TTL:       3 * time.Second,
				Schedules: []spillway.RegisteredSchedule{{Queue: "reports", Name: "a", Spec: spillway.Spec{Every: every}}},
			})
		}()
	}
	until := func(what string, done func(spillway.Schedule) bool) {
		t.Helper()
		redistest.Until(t, 30*time.Second, what, func() bool {
			got, err := s.Get(t.Context(), "reports", "a")
			return err == nil && got.Owner == "billing" && done(got)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	register(ctx, 1, time.Hour)
	until("version 1", func(got spillway.Schedule) bool { return got.Spec.Every == time.Hour })
	register(ctx, 2, time.Second)
	until("version 2", func(got spillway.Schedule) bool { return got.Spec.Every == time.Second })
	if err := <-ended; !errors.Is(err, spillway.ErrOldVersion) {
		t.Errorf("version 1 ended with %v", err)
	}
	if err := s.Register(ctx, spillway.Registration{Owner: "billing", Version: 1}); !errors.Is(err, spillway.ErrOldVersion) {
		t.Errorf("version 1 again: %v", err)
	}
	ticks := int64(5) // beyond a TTL
	if testing.Short() {
		ticks = 1
	}
	until("it fires, beyond a TTL too, as it sends heartbeats", func(got spillway.Schedule) bool { return got.Ticks.Fired >= ticks })
	if err := s.Deregister(ctx, "billing"); err != nil {
		t.Error(err)
	}
	fired := int64(0)
	until("a tick is unregistered", func(got spillway.Schedule) bool { fired = got.Ticks.Fired; return got.Ticks.Unregistered > 0 })
	until("it registers again", func(got spillway.Schedule) bool { return got.Ticks.Fired > fired })
	other := spillway.Registration{Owner: "mailer", Version: 1, Schedules: []spillway.RegisteredSchedule{{Queue: "reports", Name: "a", Spec: spillway.Spec{Every: time.Second}}}}
	if err := s.Register(ctx, other); !errors.Is(err, spillway.ErrOtherOwner) {
		t.Errorf("another owner: %v", err)
	}
	if _, err := s.Put(ctx, "reports", "a", spillway.Spec{Every: time.Hour}, spillway.PutOptions{}); !errors.Is(err, spillway.ErrOtherOwner) {
		t.Errorf("a put by nobody: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("version 2 ended with %v", err)
	}
	if err := s.DeleteOwner(t.Context(), "billing"); err != nil {
		t.Error(err)
	}
	if _, err := s.Get(t.Context(), "reports", "a"); !errors.Is(err, spillway.ErrNoSchedule) {
		t.Error(err)
	}
}
