package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

// service stands for a real one: the examples are run as tests.
func service() *clienttest.Transport { return clienttest.NewTransport() }

// Three lines: NewReporter, Report, Close.
func Example() {
	c, err := spillway.NewReporter("http://127.0.0.1:8080", spillway.ReporterConfig{Transport: service()})
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
func ExampleReporter_ReportEvent() {
	network := service()
	c, err := spillway.NewReporter("http://127.0.0.1:8080", spillway.ReporterConfig{Transport: network})
	if err != nil {
		fmt.Println(err)
		return
	}
	happened := time.Now().Add(-2 * time.Second)
	_ = c.ReportEvent(spillway.Event{
		Partition: "com.acme.kart",
		Payload:   []byte(`{"event":"buy"}`),
		Time:      happened,
		ID:        "order-7",
	})
	_ = c.Close(context.Background())
	for _, e := range network.Stored() {
		fmt.Println(e.Partition, e.ID, e.Data, e.TS == happened.UnixMilli())
	}
	// Output: com.acme.kart order-7 {"event":"buy"} true
}

// Flush waits until what was reported is stored, such as at the end of a match.
func ExampleReporter_Flush() {
	c, err := spillway.NewReporter("http://127.0.0.1:8080", spillway.ReporterConfig{Transport: service(), Linger: time.Hour})
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
func ExampleReporterConfig() {
	c, err := spillway.NewReporter("https://events.example.com", spillway.ReporterConfig{
		Namespace: "kart",
		Token:     "secret",
		OnDrop:    func(why spillway.Reason, n int64) { fmt.Println("dropped", n, why) },
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
func ExampleReporter_Stats() {
	c, err := spillway.NewReporter("http://127.0.0.1:8080", spillway.ReporterConfig{Transport: service(), MaxEntry: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = c.Report("kart", []byte(`{"n":1}`))
	fmt.Println(c.Report("kart", []byte(`{"text":"far too much of it"}`)))
	_ = c.Close(context.Background())
	s := c.Stats()
	fmt.Println(s.Reported, s.Acked, s.Pending, s.Dropped[spillway.TooLarge])
	// Output:
	// spillway: the payload is larger than MaxEntry
	// 2 1 0 1
}

// mail opens the queues of the namespace mail.
func mail() *spillway.Queues {
	j, err := spillway.NewQueues("http://127.0.0.1:8080", spillway.QueuesConfig{Namespace: "mail", Transport: clienttest.NewQueues()})
	if err != nil {
		panic(err)
	}
	return j
}

// A job for later, under a name of your own: while it exists it is not stored again.
func ExampleQueues_Publish() {
	j, ctx := mail(), context.Background()
	o := spillway.PublishOptions{Delay: time.Hour, TTL: 24 * time.Hour, Tries: 5, ID: "invoice-7"}
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
func ExampleQueues_PublishMany() {
	j, ctx := mail(), context.Background()
	for range 2 {
		p, err := j.PublishMany(ctx, "welcome", [][]byte{[]byte("ada"), []byte("bob")}, spillway.PublishOptions{Key: "import-3/line-1"})
		fmt.Println(len(p.IDs), p.Repeated, err)
	}
	// Output:
	// 2 false <nil>
	// 2 true <nil>
}

// A job that workers of a Laravel application run.
func ExampleQueues_PublishPHP() {
	shop, ctx := mail(), context.Background() // of a namespace of kind php
	_, err := shop.PublishPHP(ctx, "default", []spillway.PHPJob{
		{Job: `App\Jobs\Welcome@fire`, Data: map[string]string{"to": "ada"}, Tries: 3},
	}, spillway.PublishOptions{Delay: time.Minute})
	fmt.Println(err)
	// Output: <nil>
}

// Jobs of several queues, the most wanted first; each is acked when it is done.
func ExampleQueues_Claim() {
	j, ctx := mail(), context.Background()
	_, _ = j.Publish(ctx, "newsletter", []byte("n"), spillway.PublishOptions{})
	_, _ = j.Publish(ctx, "password", []byte("p"), spillway.PublishOptions{})
	jobs, err := j.Claim(ctx, []string{"password", "newsletter"}, spillway.ClaimOptions{Count: 10, TTR: time.Minute, Wait: 30 * time.Second})
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
func ExampleQueues_Nack() {
	j, ctx := mail(), context.Background()
	_, _ = j.Publish(ctx, "welcome", []byte("ada"), spillway.PublishOptions{Tries: 1})
	jobs, _ := j.Claim(ctx, []string{"welcome"}, spillway.ClaimOptions{})
	fmt.Println(j.Nack(ctx, jobs[0], time.Minute, nil))
	job, err := j.Get(ctx, "welcome", jobs[0].ID)
	fmt.Println(job.State, err, j.Delete(ctx, "welcome", job.ID))
	// Output:
	// <nil>
	// dead <nil> <nil>
}

// How many jobs a queue has.
func ExampleQueues_Counts() {
	j, ctx := mail(), context.Background()
	_, _ = j.Publish(ctx, "welcome", []byte("ada"), spillway.PublishOptions{})
	_, _ = j.Publish(ctx, "welcome", []byte("bob"), spillway.PublishOptions{Delay: time.Hour})
	n, err := j.Counts(ctx, "welcome")
	fmt.Println(n.Ready, n.Delayed, n.Leased, n.Dead, err)
	next, err := j.Peek(ctx, "welcome")
	fmt.Println(string(next.Payload), err)
	_, err = j.Peek(ctx, "other")
	fmt.Println(errors.Is(err, spillway.ErrNoJob))
	// Output:
	// 1 1 0 0 <nil>
	// ada <nil>
	// true
}

// A worker: what the handler returns decides what becomes of the job.
func ExampleQueues_Work() {
	j := mail()
	ctx, stop := context.WithCancel(context.Background())
	for _, to := range []string{"ada", "nobody", "bob"} {
		_, _ = j.Publish(ctx, "welcome", []byte(to), spillway.PublishOptions{})
	}
	left := 3
	err := j.Work(ctx, []string{"welcome"}, func(ctx context.Context, job spillway.Job) error {
		if left--; left == 0 {
			stop() // Work returns when this handler has
		}
		if string(job.Payload) == "nobody" {
			return spillway.Permanent(errors.New("no such user"))
		}
		fmt.Println("welcome", string(job.Payload))
		return nil
	}, spillway.WorkerConfig{Concurrency: 1, TTR: time.Minute})
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
	_, _ = j.Publish(ctx, "welcome", []byte("ada"), spillway.PublishOptions{})
	err := j.Work(ctx, []string{"welcome"}, func(ctx context.Context, job spillway.Job) error {
		defer stop()
		fmt.Println("welcome", string(job.Payload))
		return nil
	}, spillway.WorkerConfig{Concurrency: spillway.Auto(1, 64, 300*time.Millisecond)})
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
		ended <- j.Work(ctx, []string{"double"}, func(ctx context.Context, job spillway.Job) error {
			_, err := j.Publish(ctx, job.ID, append(job.Payload, job.Payload...), spillway.PublishOptions{Key: "reply"})
			return err
		}, spillway.WorkerConfig{})
	}()
	request, err := j.Publish(ctx, "double", []byte("kart "), spillway.PublishOptions{TTL: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	replies, err := j.Claim(ctx, request.IDs, spillway.ClaimOptions{Wait: 30 * time.Second})
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
	spec := spillway.Spec{Cron: "30 2 * * *", Zone: "Europe/Berlin", Payload: []byte(`{"report":"daily"}`), Missed: "skip"}
	if _, err := j.Schedules().Put(ctx, "reports", "daily", spec, spillway.PutOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	for s, err := range j.Schedules().List(ctx, "reports") {
		fmt.Println(s.Name, s.State, s.Spec.Cron, err)
	}
	_, _ = j.Schedules().Trigger(ctx, "reports", "daily", spillway.TriggerOptions{})
	jobs, _ := j.Claim(ctx, []string{"reports"}, spillway.ClaimOptions{})
	fmt.Println(string(jobs[0].Payload), jobs[0].Attributes["schedule"], jobs[0].Attributes["cause"])
	fmt.Println(j.Schedules().Delete(ctx, "reports", "weekly"))
	// Output:
	// daily active 30 2 * * * <nil>
	// {"report":"daily"} daily triggered
	// spillway: there is no such schedule: no_such_schedule: m
}

// Who waits for the end of a job reads what its handler says as its result, where a rule keeps acked jobs.
func ExampleResult() {
	j := mail()
	ctx, stop := context.WithCancel(context.Background())
	p, _ := j.Publish(ctx, "sums", []byte("1+1"), spillway.PublishOptions{})
	err := j.Work(ctx, []string{"sums"}, func(context.Context, spillway.Job) error {
		stop()
		return spillway.Result(map[string]int{"sum": 2})
	}, spillway.WorkerConfig{})
	done, _ := j.Wait(context.Background(), "sums", p.IDs[0], time.Minute)
	fmt.Println(err, done.State, string(done.Result))
	// Output: <nil> acked {"sum":2}
}

// A job if and only if a transaction of your own ends well.
func ExampleQueues_Prepare() {
	j, ctx := mail(), context.Background()
	p, err := j.Prepare(ctx, "orders", []byte(`{"order":7}`), spillway.PrepareOptions{Check: "orders-check"})
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
	// spillway: the opposite was decided before: already_decided: m
}

// A handler for each queue. One leaves the work to somebody else, who acks the job later.
func ExampleMux() {
	j := mail()
	ctx, stop := context.WithCancel(context.Background())
	for _, queue := range []string{"render", "welcome"} {
		_, _ = j.Publish(ctx, queue, []byte("ada"), spillway.PublishOptions{})
	}
	var render spillway.Job
	m := spillway.Mux{
		"render": func(_ context.Context, job spillway.Job) error {
			render = job // its queue, id and attempt go to the renderer
			return spillway.Deferred(time.Hour)
		},
		"welcome": func(_ context.Context, job spillway.Job) error {
			stop()
			return nil
		},
	}
	fmt.Println(j.Work(ctx, []string{"render", "welcome"}, m.Handle, spillway.WorkerConfig{}))
	left, _ := j.Get(context.Background(), "render", render.ID)
	fmt.Println(left.State, j.Ack(context.Background(), spillway.Job{Queue: "render", ID: render.ID, Attempt: render.Attempt}))
	// Output:
	// <nil>
	// leased <nil>
}
