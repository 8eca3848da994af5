package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

// service stands for a real one: the examples are run as tests.
func service() *clienttest.Transport { return clienttest.NewTransport() }

// Three lines: New, Report, Close.
func Example() {
	c, err := client.New("http://127.0.0.1:8080", client.Config{Transport: service()})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = c.Report("com.acme.kart", []byte(`{"event":"lap","ms":63210}`))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	fmt.Println(c.Close(ctx), c.Stats().Acked)
	// Output: <nil> 1
}

// An event with its own time and id: sinks that remove duplicates do so by the id.
func ExampleClient_ReportAt() {
	network := service()
	c, err := client.New("http://127.0.0.1:8080", client.Config{Transport: network})
	if err != nil {
		fmt.Println(err)
		return
	}
	happened := time.Now().Add(-2 * time.Second)
	_ = c.ReportAt("com.acme.kart", []byte(`{"event":"buy"}`), happened, "order-7")
	_ = c.Close(context.Background())
	for _, e := range network.Stored() {
		fmt.Println(e.Partition, e.ID, e.Data, e.TS == happened.UnixMilli())
	}
	// Output: com.acme.kart order-7 {"event":"buy"} true
}

// Flush waits until what was reported is stored, such as at the end of a match.
func ExampleClient_Flush() {
	c, err := client.New("http://127.0.0.1:8080", client.Config{Transport: service(), Linger: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close(context.Background()) }()
	_ = c.Report("match-9", []byte(`{"winner":"red"}`))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	fmt.Println(c.Flush(ctx))
	// Output: <nil>
}

// A namespace with a token, and a word when entries are dropped.
func ExampleConfig() {
	c, err := client.New("https://events.example.com", client.Config{
		Namespace: "kart",
		Token:     "secret",
		OnDrop:    func(why client.Reason, n int64) { fmt.Println("dropped", n, why) },
		Transport: clienttest.NewTransport(clienttest.Step{Status: 401, Code: "unauthorized"}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = c.Report("com.acme.kart", []byte(`{"event":"lap"}`))
	_ = c.Close(context.Background())
	// Output: dropped 1 rejected
}

// Stats adds up at every moment.
func ExampleClient_Stats() {
	c, err := client.New("http://127.0.0.1:8080", client.Config{Transport: service(), MaxEntry: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = c.Report("kart", []byte(`{"n":1}`))
	fmt.Println(c.Report("kart", []byte(`{"text":"far too much of it"}`)))
	_ = c.Close(context.Background())
	s := c.Stats()
	fmt.Println(s.Reported, s.Acked, s.Pending, s.Dropped[client.TooLarge])
	// Output:
	// client: the payload is larger than MaxEntry
	// 2 1 0 1
}

// mail opens the queues of the namespace mail.
func mail() *client.Jobs {
	j, err := client.NewJobs("http://127.0.0.1:8080", client.JobsConfig{Namespace: "mail", Transport: clienttest.NewQueues()})
	if err != nil {
		panic(err)
	}
	return j
}

// A job for later, under a name of your own: while it exists it is not stored again.
func ExampleJobs_Publish() {
	j, ctx := mail(), context.Background()
	o := client.PublishOptions{Delay: time.Hour, TTL: 24 * time.Hour, Tries: 5, ID: "invoice-7"}
	first, err := j.Publish(ctx, "reminder", []byte(`{"to":"ada"}`), o)
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := j.Publish(ctx, "reminder", []byte(`{"to":"ada"}`), o)
	fmt.Println(again.Exists, again.IDs[0] == first.IDs[0], err)
	// Output: true true <nil>
}

// Many jobs in one request, all or none. With a Key of your own a repeat, also by another
// process, stores nothing.
func ExampleJobs_PublishMany() {
	j, ctx := mail(), context.Background()
	for range 2 {
		p, err := j.PublishMany(ctx, "welcome", [][]byte{[]byte("ada"), []byte("bob")}, client.PublishOptions{Key: "import-3/line-1"})
		fmt.Println(len(p.IDs), p.Repeated, err)
	}
	// Output:
	// 2 false <nil>
	// 2 true <nil>
}

// A job that workers of a Laravel application run.
func ExampleJobs_PublishPHP() {
	shop, ctx := mail(), context.Background() // of a namespace of kind php
	_, err := shop.PublishPHP(ctx, "default", []client.PHPJob{
		{Job: `App\Jobs\Welcome@fire`, Data: map[string]string{"to": "ada"}, Tries: 3},
	}, client.PublishOptions{Delay: time.Minute})
	fmt.Println(err)
	// Output: <nil>
}

// Jobs of several queues, the most wanted first; each is acked when it is done.
func ExampleJobs_Take() {
	j, ctx := mail(), context.Background()
	_, _ = j.Publish(ctx, "newsletter", []byte("n"), client.PublishOptions{})
	_, _ = j.Publish(ctx, "password", []byte("p"), client.PublishOptions{})
	jobs, err := j.Take(ctx, []string{"password", "newsletter"}, client.TakeOptions{Count: 10, TTR: time.Minute, Wait: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, job := range jobs {
		fmt.Println(job.Queue, string(job.Payload), j.Ack(ctx, job))
	}
	// Output:
	// password p <nil>
	// newsletter n <nil>
}

// A job that fails is given back; when its tries are used up it is dead.
func ExampleJobs_Nack() {
	j, ctx := mail(), context.Background()
	_, _ = j.Publish(ctx, "welcome", []byte("ada"), client.PublishOptions{Tries: 1})
	jobs, _ := j.Take(ctx, []string{"welcome"}, client.TakeOptions{})
	fmt.Println(j.Nack(ctx, jobs[0], time.Minute, nil))
	job, err := j.Get(ctx, "welcome", jobs[0].ID)
	fmt.Println(job.State, err, j.Delete(ctx, "welcome", job.ID))
	// Output:
	// <nil>
	// dead <nil> <nil>
}

// How many jobs a queue has.
func ExampleJobs_Counts() {
	j, ctx := mail(), context.Background()
	_, _ = j.Publish(ctx, "welcome", []byte("ada"), client.PublishOptions{})
	_, _ = j.Publish(ctx, "welcome", []byte("bob"), client.PublishOptions{Delay: time.Hour})
	n, err := j.Counts(ctx, "welcome")
	fmt.Println(n.Ready, n.Delayed, n.Leased, n.Dead, err)
	next, err := j.Peek(ctx, "welcome")
	fmt.Println(string(next.Payload), err)
	_, err = j.Peek(ctx, "other")
	fmt.Println(errors.Is(err, client.ErrNoJob))
	// Output:
	// 1 1 0 0 <nil>
	// ada <nil>
	// true
}

// A worker: what the handler returns decides what becomes of the job.
func ExampleJobs_Work() {
	j := mail()
	ctx, stop := context.WithCancel(context.Background())
	for _, to := range []string{"ada", "nobody", "bob"} {
		_, _ = j.Publish(ctx, "welcome", []byte(to), client.PublishOptions{})
	}
	left := 3
	err := j.Work(ctx, []string{"welcome"}, func(ctx context.Context, job client.Job) error {
		if left--; left == 0 {
			stop() // Work returns when this handler has
		}
		if string(job.Payload) == "nobody" {
			return client.Permanent(errors.New("no such user"))
		}
		fmt.Println("welcome", string(job.Payload))
		return nil
	}, client.WorkerConfig{Concurrency: 1, TTR: time.Minute})
	n, _ := j.Counts(context.Background(), "welcome")
	fmt.Println(err, n.Dead)
	// Output:
	// welcome ada
	// welcome bob
	// <nil> 1
}

// As many handlers at once as the service that they call answers in time, from 1 to 64.
func ExampleAuto() {
	j := mail()
	ctx, stop := context.WithCancel(context.Background())
	_, _ = j.Publish(ctx, "welcome", []byte("ada"), client.PublishOptions{})
	err := j.Work(ctx, []string{"welcome"}, func(ctx context.Context, job client.Job) error {
		defer stop()
		fmt.Println("welcome", string(job.Payload))
		return nil
	}, client.WorkerConfig{Concurrency: client.Auto(1, 64, 300*time.Millisecond)})
	fmt.Println(err)
	// Output:
	// welcome ada
	// <nil>
}

// Request and reply: the worker publishes its answer to the queue that is named as the job's
// id, and the caller waits there.
func Example_requestAndReply() {
	j := mail()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() {
		ended <- j.Work(ctx, []string{"double"}, func(ctx context.Context, job client.Job) error {
			_, err := j.Publish(ctx, job.ID, append(job.Payload, job.Payload...), client.PublishOptions{Key: "reply"})
			return err
		}, client.WorkerConfig{})
	}()
	request, err := j.Publish(ctx, "double", []byte("kart "), client.PublishOptions{TTL: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	replies, err := j.Take(ctx, request.IDs, client.TakeOptions{Wait: 30 * time.Second})
	if err != nil || len(replies) == 0 {
		fmt.Println("no reply", err)
		return
	}
	fmt.Printf("%q %v\n", replies[0].Payload, j.Ack(ctx, replies[0]))
	stop()
	fmt.Println(<-ended)
	// Output:
	// "kart kart " <nil>
	// <nil>
}

// A schedule publishes a job at each tick. A run beside the ticks is triggered.
func ExampleSchedules() {
	j, ctx := mail(), context.Background()
	spec := client.Spec{Cron: "30 2 * * *", Zone: "Europe/Berlin", Payload: []byte(`{"report":"daily"}`), Missed: "skip"}
	if _, err := j.Schedules().Put(ctx, "reports", "daily", spec, client.PutOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	for s, err := range j.Schedules().List(ctx, "reports") {
		fmt.Println(s.Name, s.State, s.Spec.Cron, err)
	}
	_, _ = j.Schedules().Trigger(ctx, "reports", "daily", client.TriggerOptions{})
	jobs, _ := j.Take(ctx, []string{"reports"}, client.TakeOptions{})
	fmt.Println(string(jobs[0].Payload), jobs[0].Attributes["schedule"], jobs[0].Attributes["cause"])
	fmt.Println(j.Schedules().Delete(ctx, "reports", "weekly"))
	// Output:
	// daily active 30 2 * * * <nil>
	// {"report":"daily"} daily triggered
	// client: there is no such schedule: no_such_schedule: m
}

// A job if and only if a transaction of your own ends well.
func ExampleJobs_Prepare() {
	j, ctx := mail(), context.Background()
	p, err := j.Prepare(ctx, "orders", []byte(`{"order":7}`), client.PrepareOptions{Check: "orders-check"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if transaction := errors.New("no stock"); transaction != nil {
		fmt.Println(p.Rollback(ctx))
	}
	fmt.Println(p.Commit(ctx))
	// Output:
	// <nil>
	// client: the opposite was decided before: already_decided: m
}

// A handler for each queue. One leaves the work to somebody else, who acks the job later.
func ExampleMux() {
	j := mail()
	ctx, stop := context.WithCancel(context.Background())
	for _, queue := range []string{"render", "welcome"} {
		_, _ = j.Publish(ctx, queue, []byte("ada"), client.PublishOptions{})
	}
	var render client.Job
	m := client.Mux{
		"render": func(_ context.Context, job client.Job) error {
			render = job // its queue, id and attempt go to the renderer
			return client.Deferred(time.Hour)
		},
		"welcome": func(_ context.Context, job client.Job) error {
			stop()
			return nil
		},
	}
	fmt.Println(j.Work(ctx, []string{"render", "welcome"}, m.Handle, client.WorkerConfig{}))
	left, _ := j.Get(context.Background(), "render", render.ID)
	fmt.Println(left.State, j.Ack(context.Background(), client.Job{Queue: "render", ID: render.ID, Attempt: render.Attempt}))
	// Output:
	// <nil>
	// leased <nil>
}
