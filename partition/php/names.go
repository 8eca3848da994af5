package php

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
)

// How names are found: by SCAN of all keys, at most so often, in steps with a rest between them, so
// that a large cache beside the queues costs little.
const (
	namesEvery = 10 * time.Second
	scanStep   = 1000
	scanRest   = 5 * time.Millisecond
	maxNames   = 100_000
)

// names are the queues that were found for the patterns of a namespace.
type names struct {
	mu   sync.Mutex
	list []string
	at   time.Time
}

// Queues returns the queues of a namespace: those that its rules name, and those that exist now, or
// did at most ten seconds ago, and match a pattern. Up to 100,000.
func (s *Store) Queues(ctx context.Context, ns *job.Namespace) ([]string, error) {
	n := s.named(ns.Name)
	if n == nil {
		return nil, job.ErrNoQueue
	}
	var list []string
	wild := false
	for _, r := range n.Rules {
		if r.Match.Wild() {
			wild = true
		} else {
			list = append(list, string(r.Match))
		}
	}
	if wild {
		found, err := s.found(ctx, n)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// found are the queues that exist and match a pattern.
func (s *Store) found(ctx context.Context, n *namespace) ([]string, error) {
	n.names.mu.Lock() // one scan at a time: others want what it finds
	defer n.names.mu.Unlock()
	if time.Since(n.names.at) < namesEvery {
		return n.names.list, nil
	}
	var list []string
	var mu sync.Mutex // of list: the masters of a cluster are scanned together
	scan := func(ctx context.Context, c *redis.Client) error {
		for cursor, first := uint64(0), true; first || cursor != 0; first = false {
			keys, next, err := c.Scan(ctx, cursor, n.KeyPrefix+"*queues:*", scanStep).Result()
			if err != nil {
				return backend.Classify(err)
			}
			mu.Lock()
			for _, key := range keys {
				if name := n.Flavor.queueOf(key[len(n.KeyPrefix):],
					n.cluster); job.ValidOwnName(name) && n.Serves(name) && len(list) < maxNames {
					list = append(list, name)
				}
			}
			mu.Unlock()
			if cursor = next; cursor != 0 {
				select {
				case <-time.After(scanRest):
				case <-ctx.Done():
					return backend.Classify(ctx.Err())
				}
			}
		}
		return nil
	}
	if err := backend.EachMaster(ctx, s.backend.Background, scan); err != nil {
		return nil, err
	}
	slices.Sort(list)
	n.names.list, n.names.at = slices.Compact(list), time.Now()
	return n.names.list, nil
}
