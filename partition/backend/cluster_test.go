package backend

import (
	"context"
	"errors"
	"strings"
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
	signals := map[string]syscall.Signal{"frozen": syscall.SIGSTOP}
	if !testing.Short() {
		signals["killed"] = syscall.SIGKILL
	}
	for name, signal := range signals {
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
			servers.Hasty(t)
			servers.Masters[servers.MasterOf(key)].Signal(signal)
			all("a transaction after the failover", redis.UniversalClient.TxPipeline)
			all("a pipeline after the failover", redis.UniversalClient.Pipeline)
		})
	}
}

func TestCheckPersistenceWantsAnAppendOnlyFile(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		url  string
		want error
	}{
		"on":         {redistest.Start(t, "--appendonly", "yes").URL(), nil},
		"off":        {redistest.Start(t, "--appendonly", "no").URL(), ErrIncompatible},
		"embedded":   {"embedded:", nil},
		"not there":  {"redis://" + redistest.FreeAddr(t), ErrUnavailable},
		"no cluster": {"redis-cluster://" + redistest.Start(t).Addr, ErrBroken},
	} {
		b, err := Open(Config{URL: row.url}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		err = b.CheckPersistence(t.Context())
		if !errors.Is(err, row.want) {
			t.Errorf("%s: got %v, want %v", name, err, row.want)
		}
		if row.want == ErrIncompatible && errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if row.want == ErrIncompatible && !strings.Contains(err.Error(), "CONFIG SET appendonly yes") {
			t.Errorf("%s: %v does not say what to do", name, err)
		}
	}
}
