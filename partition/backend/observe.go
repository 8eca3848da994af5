package backend

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Observe calls f after each command that the clients send from now on. A pipeline is one,
// called "pipeline". Call it before the Backend is used.
func (b *Backend) Observe(f func(command string, took time.Duration, failed bool)) {
	for _, client := range []redis.UniversalClient{b.In, b.Out, b.Background} {
		client.AddHook(commandHook(f))
	}
}

// commandHook is a hook of go-redis.
type commandHook func(command string, took time.Duration, failed bool)

func (h commandHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network,
		addr string) (net.Conn, error) {
		return next(ctx, network, addr)
	}
}

func (h commandHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h(cmd.Name(), time.Since(began), err != nil && !errors.Is(err, redis.Nil))
		return err
	}
}

func (h commandHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		h("pipeline", time.Since(began), err != nil && !errors.Is(err, redis.Nil))
		return err
	}
}

// Figures are the numbers in the INFO of all masters, added up, by field. Those of the
// databases, such as keys and expires, are sums over all of them.
func (b *Backend) Figures(ctx context.Context) (map[string]float64, error) {
	var mu sync.Mutex
	sums := map[string]float64{}
	err := EachMaster(ctx, b.Background, func(ctx context.Context, c *redis.Client) error {
		text, err := c.Info(ctx).Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(text) {
			field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if n, err := strconv.ParseFloat(value, 64); err == nil {
				sums[field] += n
			} else if strings.HasPrefix(field, "db") { // db0:keys=1,expires=0
				for part := range strings.SplitSeq(value, ",") {
					name, number, _ := strings.Cut(part, "=")
					if n, err := strconv.ParseFloat(number, 64); err == nil {
						sums[name] += n
					}
				}
			}
		}
		return nil
	})
	return sums, Classify(err)
}
