// Command request-reply shows request and reply over queues: a worker publishes its answer to
// the queue that is named as the job's id, and the caller waits at that queue.
//
//	go run ./deploy/examples/request-reply -url http://127.0.0.1:8080 -namespace mail worker
//	go run ./deploy/examples/request-reply -url http://127.0.0.1:8080 -namespace mail request "hello there"
//
// The service knows such a queue by its name: its jobs live for reply_ttl at most (default
// 10m), so a reply that nobody waits for any more goes away by itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
)

// queue is where requests go.
const queue = "capitals"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], nil, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, cfg *spillway.QueuesConfig, out io.Writer) error {
	flags := flag.NewFlagSet("request-reply", flag.ContinueOnError)
	url := flags.String("url", "http://127.0.0.1:8080", "URL of the service")
	namespace := flags.String("namespace", "mail", "a namespace of kind queue")
	wait := flags.Duration("wait", 30*time.Second, "how long to wait for the reply")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if cfg == nil {
		cfg = &spillway.QueuesConfig{Token: os.Getenv("SPILLWAY_TOKEN")}
	}
	cfg.Namespace = *namespace
	jobs, err := spillway.NewQueues(*url, *cfg)
	if err != nil {
		return err
	}
	switch flags.Arg(0) {
	case "worker":
		return work(ctx, jobs, out)
	case "request":
		reply, err := request(ctx, jobs, []byte(flags.Arg(1)), *wait)
		if err == nil {
			fmt.Fprintf(out, "%s\n", reply)
		}
		return err
	}
	return errors.New(`want "worker" or "request TEXT"`)
}

// work answers requests until ctx ends.
func work(ctx context.Context, jobs *spillway.Queues, out io.Writer) error {
	return jobs.Work(ctx, []string{queue}, func(ctx context.Context, job spillway.Job) error {
		fmt.Fprintf(out, "attempt %d of %s\n", job.Attempt, job.ID)
		reply := []byte(strings.ToUpper(string(job.Payload)))
		// With the same key a request that is delivered twice is answered once.
		_, err := jobs.Publish(ctx, job.ID, reply, spillway.PublishOptions{Key: "reply"})
		return err
	}, spillway.WorkerConfig{Concurrency: 8})
}

var errNoReply = errors.New("no reply in time")

// request publishes a request and waits for its reply.
func request(ctx context.Context, jobs *spillway.Queues, payload []byte,
	wait time.Duration) ([]byte, error) {
	// A request that nobody waits for any more need not be answered.
	published, err := jobs.Publish(ctx, queue, payload, spillway.PublishOptions{TTL: wait})
	if err != nil {
		return nil, err
	}
	replies, err := jobs.Claim(ctx, published.IDs, spillway.ClaimOptions{Wait: wait})
	if err != nil {
		return nil, err
	}
	if len(replies) == 0 {
		return nil, errNoReply
	}
	// The reply expires by itself, too: an ack that fails is no reason to drop it.
	_ = jobs.Ack(ctx, replies[0])
	return replies[0].Payload, nil
}
