package main

import (
	"bytes"
	"context"

	"github.com/hibiken/asynq"
)

// groups is asynq: every event a task of its partition's group, which its
// aggregator joins into one task of up to 128 events for the handler.
type groups struct {
	*store
	producer *asynq.Client
	names    []string
}

const asynqHandlers = 8 // tasks handled at once

func openAsynq(ctx context.Context, c conditions) (side, error) {
	st, err := openStore(ctx, c, 1)
	if err != nil {
		return nil, err
	}
	return &groups{
		store:    st,
		producer: asynq.NewClient(asynq.RedisClientOpt{Addr: st.addr, PoolSize: c.senders}),
		names:    partitionNames(c.partitions),
	}, nil
}

func (g *groups) send(ctx context.Context, events []event) error {
	for _, e := range events {
		task := asynq.NewTask("event", e.payload) // encoded before the call returns
		if _, err := g.producer.EnqueueContext(ctx, task, asynq.Group(g.names[e.partition])); err != nil {
			return err
		}
	}
	return nil
}

func (g *groups) deliver(ctx context.Context, t *tally) error {
	// The aggregator looks at each group once per grace period and takes one
	// batch of it, so the shortest period it accepts is its best.
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: g.addr}, asynq.Config{
		Concurrency:      asynqHandlers,
		GroupGracePeriod: linger,
		GroupMaxDelay:    linger,
		GroupMaxSize:     batch,
		GroupAggregator:  asynq.GroupAggregatorFunc(join),
		LogLevel:         asynq.FatalLevel, // a turn's end interrupts it, which is no news
	})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		t.batch(bytes.Split(task.Payload(), []byte{'\n'})...)
		return nil
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

func join(group string, tasks []*asynq.Task) *asynq.Task {
	payloads := make([][]byte, len(tasks))
	for i, task := range tasks {
		payloads[i] = task.Payload()
	}
	return asynq.NewTask("batch", bytes.Join(payloads, []byte{'\n'}))
}

func (g *groups) close() {
	_ = g.producer.Close() // nothing is in flight any more
	g.store.close()
}
