package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
)

// store is a redis-server of a side's own, in a folder of its own, with the
// durability that all sides have: the log is synced once a second.
type store struct {
	addr, dir string
	server    *proc.Process
	client    *redis.Client
}

// openStore starts the server. connections is how many commands may be on the
// wire at once.
func openStore(ctx context.Context, c conditions, connections int) (_ *store, err error) {
	dir, err := os.MkdirTemp("", "spillway-peers-")
	if err != nil {
		return nil, err
	}
	s := &store{dir: dir}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	addrs, err := proc.FreeAddrs(1)
	if err != nil {
		return nil, err
	}
	s.addr = addrs[0]
	s.client = redis.NewClient(&redis.Options{
		Addr: s.addr, PoolSize: connections, DisableIdentity: true,
		MaxRetries: -1, // a repeated command would store an event twice
	})
	s.server, err = rig.StartRedis(ctx, dir, "everysec", s.client, c.redisServer)
	return s, err
}

func (s *store) servers() []*proc.Process { return []*proc.Process{s.server} }

func (s *store) close() {
	if s.client != nil {
		_ = s.client.Close() // nothing is in flight any more
	}
	if s.server != nil {
		s.server.Stop()
	}
	_ = os.RemoveAll(s.dir) // a temp folder; the system clears what is left
}

// ended is nil when err came from the end of ctx, and the wrapped err otherwise.
func ended(ctx context.Context, what string, err error) error {
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
