package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/partition"
)

// setup is what is measured: a Redis and a server, alone on free ports and in a
// folder of their own.
//
//	load ──HTTP──▶ spillway serve ──▶ redis-server (noeviction)
//	                   │ sink                ▲
//	                   └─ admin port         └─ store: the account, read directly
type setup struct {
	dir, bin      string
	redis, server *proc.Process
	client        *redis.Client
	store         *partition.Store
	redisURL      string
	data, admin   string // base URLs
}

// newSetup starts a Redis alone; serve adds the server. A durable one writes an
// append-only file, synced every second.
func newSetup(ctx context.Context, s settings, durable bool) (_ *setup, err error) {
	bin, err := filepath.Abs(s.bin)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "spillway-bench-")
	if err != nil {
		return nil, err
	}
	r := &setup{dir: dir, bin: bin}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	addr, err := proc.FreeAddr()
	if err != nil {
		return nil, err
	}
	fsync := ""
	if durable {
		fsync = "everysec"
	}
	r.client = redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	if r.redis, err = rig.StartRedis(ctx, dir, fsync, r.client, s.redisServer); err != nil {
		return nil, err
	}
	r.redisURL = "redis://" + addr
	r.store, err = openStore(r.redisURL)
	return r, err
}

// openStore reads and writes as a server with the default settings would, but
// for a capacity that no backlog of a benchmark reaches.
func openStore(url string) (*partition.Store, error) {
	policy := partition.DefaultPolicy()
	policy.Capacity = roomy
	return partition.Open(partition.Config{URL: url, Prefix: "sw", Namespaces: map[string]partition.Policy{"default": policy, "bad": policy}},
		prometheus.NewRegistry(), zap.NewNop())
}

// serve starts a server on the Redis with these further flags and waits
// until it is ready. One that ran before is stopped first.
func (r *setup) serve(ctx context.Context, flags ...string) error {
	if r.server != nil {
		r.server.Stop()
	}
	ports, err := proc.FreeAddrs(2)
	if err != nil {
		return err
	}
	r.data, r.admin = "http://"+ports[0], "http://"+ports[1]
	r.server, err = rig.Start(ctx, r.dir, "spillway", rig.Answers(r.admin+"/readyz"), r.bin, append([]string{"serve",
		"--redis", r.redisURL, "--listen", ports[0], "--admin-listen", ports[1]}, flags...)...)
	return err
}

// close stops the server before its Redis, as an operator would.
func (r *setup) close() {
	if r.server != nil {
		r.server.Stop()
	}
	if r.store != nil {
		_ = r.store.Close()
	}
	if r.client != nil {
		_ = r.client.Close()
	}
	if r.redis != nil {
		r.redis.Stop()
	}
	_ = os.RemoveAll(r.dir) // a temp folder; the system clears what is left
}

// ledger reads the account where it is kept, which costs the server nothing.
func (r *setup) ledger(ctx context.Context) (partition.Ledger, error) {
	o, err := r.store.Overview(ctx, r.store.Namespace("default"))
	return o.Ledger, err
}

// drained waits until nothing is buffered any more and returns when that was.
func (r *setup) drained(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	at, err := bench.AwaitDrained(ctx, r.ledger)
	if err != nil {
		text, _ := os.ReadFile(r.server.Log)
		return at, fmt.Errorf("%w; the end of the server's log:\n%s", err, text[max(0, len(text)-2000):])
	}
	return at, nil
}

// redisMemory is used_memory and used_memory_peak, in bytes.
func (r *setup) redisMemory(ctx context.Context) (used, peak int64, err error) {
	info, err := r.client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, 0, fmt.Errorf("read redis memory: %w", err)
	}
	if used, err = infoField(info, "used_memory"); err != nil {
		return 0, 0, err
	}
	peak, err = infoField(info, "used_memory_peak")
	return used, peak, err
}

func infoField(info, name string) (int64, error) {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("read redis memory: no %s", name)
}
