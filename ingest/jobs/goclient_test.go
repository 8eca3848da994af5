package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
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

// serveQueues serves the queues of the namespace mail, which are in a Redis, and returns a
// client of it.
func serveQueues(t *testing.T) *client.Jobs {
	t.Helper()
	log := zap.NewNop()
	reg := prometheus.NewRegistry()
	b, err := backend.Open(backend.Config{URL: "redis://" + redistest.Start(t).Addr}, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	store, err := job.Open(job.Config{Prefix: "sw", Volatile: true, Namespaces: map[string]job.Policy{"mail": job.DefaultPolicy()}}, b, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	engine, err := jobs.New(jobs.DefaultConfig(), store, func(on func(job.WakeEvent)) jobs.Wakes { return job.NewWakes(store, on) }, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	promoter := job.NewPromoter(store)
	cfg := ingest.DefaultConfig()
	cfg.Mounts, cfg.Tokens = []ingest.Mount{engine.Mount()}, map[string][]ingest.Token{"mail": nil}
	server, err := ingest.New(cfg, noBuffers{}, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.SetListener(listener)
	for _, start := range []func(context.Context) error{promoter.Start, engine.Start, server.Start} {
		if err := start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := errors.Join(server.Stop(ctx), engine.Stop(ctx), promoter.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	c, err := client.NewJobs("http://"+listener.Addr().String(), client.JobsConfig{Namespace: "mail"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Every call of the Go client, against the real thing.
func TestTheGoClientDoesEverythingOnce(t *testing.T) {
	t.Parallel()
	j, ctx := serveQueues(t), t.Context()
	take := func(o client.TakeOptions, queues ...string) client.Job {
		t.Helper()
		list, err := j.Take(ctx, queues, o)
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
	p, err := j.Publish(ctx, "welcome", []byte(payload), client.PublishOptions{Tries: 2, ID: "order-7", TTL: time.Hour})
	check(err, nil)
	again, err := j.Publish(ctx, "welcome", []byte("other"), client.PublishOptions{ID: "order-7"})
	if check(err, nil); !again.Exists || !slices.Equal(again.IDs, p.IDs) {
		t.Errorf("got %+v, want %+v", again, p)
	}
	peeked, err := j.Peek(ctx, "welcome")
	if check(err, nil); peeked.ID != p.IDs[0] || peeked.State != "ready" || string(peeked.Payload) != payload {
		t.Errorf("got %+v", peeked)
	}
	got := take(client.TakeOptions{}, "none", "welcome")
	if got.Attempt != 1 || got.Tries != 2 || string(got.Payload) != payload || got.Expires.Sub(got.Published).Round(time.Minute) != time.Hour {
		t.Errorf("got %+v", got)
	}
	check(j.Touch(ctx, got, time.Hour), nil)
	check(j.Requeue(ctx, got), nil)
	if got = take(client.TakeOptions{}, "welcome"); got.Attempt != 1 {
		t.Errorf("a requeued job has attempt %d", got.Attempt)
	}
	n, err := j.Counts(ctx, "welcome")
	if check(err, nil); n.Leased != 1 || n.Ready != 0 {
		t.Errorf("got %+v", n)
	}
	check(j.Nack(ctx, got, time.Hour), nil)
	check(j.Nack(ctx, got, 0), client.ErrGone)
	check(j.Ack(ctx, got), nil)
	check(j.Ack(ctx, got), client.ErrGone)

	_, err = j.PublishMany(ctx, "bulk", [][]byte{[]byte("1"), []byte("2")}, client.PublishOptions{Key: "k", KeyTTL: time.Minute})
	check(err, nil)
	repeat, err := j.PublishMany(ctx, "bulk", [][]byte{[]byte("1"), []byte("2")}, client.PublishOptions{Key: "k", KeyTTL: time.Minute})
	if check(err, nil); !repeat.Repeated || len(repeat.IDs) != 2 {
		t.Errorf("got %+v", repeat)
	}
	buried := take(client.TakeOptions{TTR: time.Minute}, "bulk")
	check(j.Bury(ctx, buried), nil)
	dead, err := j.Get(ctx, "bulk", buried.ID)
	if check(err, nil); dead.State != "dead" || dead.Reason != "buried" || dead.Attempt != 0 {
		t.Errorf("got %+v", dead)
	}
	check(j.Delete(ctx, "bulk", buried.ID), nil)
	check(j.Delete(ctx, "bulk", buried.ID), client.ErrNoJob)
	_, err = j.Get(ctx, "bulk", "nonsense")
	check(err, client.ErrNoJob)

	_, err = j.Publish(ctx, "wide", []byte("x"), client.PublishOptions{Shards: 2})
	check(err, nil)
	list, err := j.Take(ctx, []string{"wide"}, client.TakeOptions{Count: 10})
	if check(err, nil); len(list) != 2 || list[1].Attributes["shard_index"] != "1" || list[1].Attributes["shard_total"] != "2" {
		t.Errorf("got %+v", list)
	}
	_, err = j.Publish(ctx, "welcome", []byte("x"), client.PublishOptions{Delay: time.Hour, TTL: time.Minute})
	check(err, client.ErrInvalid)
	other, err := client.NewJobs("http://127.0.0.1:1", client.JobsConfig{Attempts: 1})
	check(err, nil)
	_, err = other.Peek(ctx, "x")
	check(err, client.ErrUnavailable)
}

// A worker with two failures in three, and request and reply, over real connections.
func TestTheGoClientWorksAndReplies(t *testing.T) {
	t.Parallel()
	j := serveQueues(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var done, deliveries atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- j.Work(ctx, []string{"double", "welcome"}, func(ctx context.Context, job client.Job) error {
			if job.Queue == "double" {
				_, err := j.Publish(ctx, job.ID, append(job.Payload, job.Payload...), client.PublishOptions{Key: "reply"})
				return err
			}
			if deliveries.Add(1)%3 != 0 {
				return client.RetryIn(errors.New("busy"), time.Millisecond)
			}
			done.Add(1)
			return nil
		}, client.WorkerConfig{Concurrency: 8, TTR: time.Minute, BackoffBase: time.Millisecond})
	}()
	for i := range 50 {
		if _, err := j.Publish(ctx, "welcome", fmt.Append(nil, i), client.PublishOptions{Tries: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	request, err := j.Publish(ctx, "double", []byte("kart "), client.PublishOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := j.Take(ctx, request.IDs, client.TakeOptions{Wait: 20 * time.Second})
	if err != nil || len(reply) != 1 || string(reply[0].Payload) != "kart kart " {
		t.Fatalf("got %v, %v", reply, err)
	}
	redistest.Until(t, 20*time.Second, "all jobs are done", func() bool { return done.Load() == 50 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	n, err := j.Counts(t.Context(), "welcome")
	if err != nil || n != (client.Counts{}) || done.Load() != 50 {
		t.Errorf("%+v, %v, %d done", n, err, done.Load())
	}
}
