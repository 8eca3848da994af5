package backend

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
)

// heap is what is alive, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) // #nosec G115 -- far below
}

// Partitions and idempotency keys come and go; a third of them are there at once.
// Not parallel: it measures the heap, which other tests use too.
func TestTheEmbeddedStoreDropsUnusedNames(t *testing.T) {
	partitions, stay := 60_000, 100
	if testing.Short() {
		partitions = 30_000
	}
	atOnce := partitions / 3
	server, _, err := startEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	db := server.DB(0)
	name := func(i int) string { return fmt.Sprint("partition-", i) }
	list := func(i int) string { return "sw:{default.0}:q:" + name(i) }
	meta := func(i int) string { return "sw:{default.0}:m:" + name(i) }
	seen := func(i int) string { return "sw:{default.0}:dd:" + name(i) + ":0123456789abcdef0123456789abcdef" }
	begin := func(i int) {
		_, _ = db.Push(list(i), "x")
		db.HSet(meta(i), "head", "1")
		_ = db.Set(seen(i), "1 0 1")
		db.SetTTL(seen(i), time.Hour)
	}
	before := heap()
	for i := range partitions + atOnce {
		if i < partitions {
			begin(i)
		}
		if gone := i - atOnce; gone >= stay {
			db.Del(list(gone))
			db.Del(meta(gone))
			db.Del(seen(gone))
		}
	}
	defer expireEmbeddedKeys(server)() // only now, so that it does not depend on the time how many names are left
	var grown int64
	redistest.Until(t, time.Minute, "the names are forgotten", func() bool {
		grown = heap() - before
		return grown < 4<<20
	})
	t.Logf("%d names left %d bytes", 3*partitions, grown)

	for i := range stay {
		entries, _ := db.List(list(i))
		result, _ := db.Get(seen(i))
		if ttl := db.TTL(seen(i)); len(entries) != 1 || db.HGet(meta(i), "head") != "1" || result == "" || ttl <= 0 {
			t.Fatalf("%s, which is in use: list %q, result %q for %v", name(i), entries, result, ttl)
		}
	}
	if n := len(server.Keys()); n != 3*stay {
		t.Errorf("%d keys are left, want %d", n, 3*stay)
	}
}

// Without these maps the store would grow for ever.
func TestTheMapsOfMiniredisAreWhereTheStoreLooks(t *testing.T) {
	t.Parallel()
	if !dropUnusedNames(miniredis.NewMiniRedis()) {
		t.Error("this version of miniredis keeps its names elsewhere: see dropUnusedNames")
	}
}

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
