package backend

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
)

// A client that only ever sends transactions hears of no MOVED: the old master is gone.
func TestEachClientFollowsAFailoverOfACluster(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "frozen": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const key = "{k}"
			servers := redistest.StartCluster(t)
			b, err := Open(Config{URL: servers.URL()}, prometheus.NewRegistry(), zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			all := func(what string, begin func(redis.UniversalClient) redis.Pipeliner) {
				for name, client := range map[string]redis.UniversalClient{"in": b.In, "out": b.Out, "background": b.Background} {
					redistest.Until(t, 20*time.Second, name+" reads in "+what, func() bool {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						pipe := begin(client)
						pipe.Exists(ctx, key)
						_, err := pipe.Exec(ctx)
						return err == nil
					})
				}
			}
			all("a pipeline", redis.UniversalClient.Pipeline)
			servers.Masters[servers.MasterOf(key)].Signal(signal)
			all("a transaction after the failover", redis.UniversalClient.TxPipeline)
			all("a pipeline after the failover", redis.UniversalClient.Pipeline)
		})
	}
}
