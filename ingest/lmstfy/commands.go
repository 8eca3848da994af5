package lmstfy

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// Watch counts the commands that a back-end sends from now on.
func (m *Metrics) Watch(b *backend.Backend) {
	hook := commandHook{m, b.Addrs()[0]}
	for _, client := range []redis.UniversalClient{b.In, b.Out, b.Background} {
		client.AddHook(hook)
	}
}

// commandHook counts commands and how long they take.
type commandHook struct {
	metrics *Metrics
	node    string // the address that is configured
}

// DialHook does nothing.
func (h commandHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook counts a command.
func (h commandHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h.count(cmd.Name(), began, err)
		return err
	}
}

// ProcessPipelineHook counts a pipeline.
func (h commandHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		h.count("pipeline", began, err)
		return err
	}
}

func (h commandHook) count(command string, began time.Time, err error) {
	status := "ok"
	if err != nil && !errors.Is(err, redis.Nil) {
		status = "error"
	}
	h.metrics.commands.WithLabelValues(h.node, command, status).Inc()
	h.metrics.commandLatency.WithLabelValues(h.node, command, status).Observe(float64(time.Since(began).Microseconds()) / 1000)
}
