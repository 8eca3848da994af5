package php

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
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
	mu    sync.Mutex
	list  []string
	at    time.Time
	scans map[string]*scan // under way, by the address of their server
	told  bool             // that there are queues which are not served
}

// scan is how far one server was looked at.
type scan struct {
	cursor uint64
	list   []string
	other  string // a queue that a pattern matches, and that is not served for its name
	ended  bool
}

// queues are those of a namespace: those that its rules name, and those that exist now, or did at most
// ten seconds ago, and match a pattern. Up to 100,000.
func (s *Store) queues(ctx context.Context, n *namespace) (list []string, err error) {
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

// found are the queues that exist and match a pattern. A scan that outlasts ctx goes on with the next
// call; until it has ended, the names of the last one hold.
func (s *Store) found(ctx context.Context, n *namespace) ([]string, error) {
	n.names.mu.Lock() // one scan at a time: others want what it finds
	defer n.names.mu.Unlock()
	if time.Since(n.names.at) < namesEvery {
		return n.names.list, nil
	}
	if n.names.scans == nil {
		n.names.scans = map[string]*scan{}
	}
	var mu sync.Mutex // of scans: the masters of a cluster are scanned together
	err := backend.EachMaster(ctx, s.backend.Background, func(ctx context.Context,
		c *redis.Client) error {
		mu.Lock()
		of := n.names.scans[c.Options().Addr]
		if of == nil {
			of = &scan{}
			n.names.scans[c.Options().Addr] = of
		}
		mu.Unlock()
		return n.goOn(ctx, c, of)
	})
	switch {
	case err != nil && ctx.Err() != nil && !n.names.at.IsZero():
		return n.names.list, nil
	case err != nil:
		return nil, err
	}
	var list []string
	for _, of := range n.names.scans {
		list = append(list, of.list...)
		if of.other != "" && !n.names.told {
			n.names.told = true
			s.log.Warn("queues are not served: names have letters, digits, '.', '_' and '-'",
				zap.String("namespace", n.Name), zap.String("queue", of.other))
		}
	}
	slices.Sort(list)
	n.names.list, n.names.at, n.names.scans = slices.Compact(list), time.Now(), nil
	return n.names.list, nil
}

// goOn scans a server to its end, or until ctx ends.
func (n *namespace) goOn(ctx context.Context, c *redis.Client, of *scan) error {
	for !of.ended {
		keys, next, err := c.Scan(ctx, of.cursor, n.KeyPrefix+"*queues:*", scanStep).Result()
		if err != nil {
			return backend.Classify(err)
		}
		for _, key := range keys {
			switch name := n.Flavor.queueOf(key[len(n.KeyPrefix):], n.cluster); {
			case name == "" || !n.Serves(name):
			case !partition.ValidOwnName(name):
				of.other = name
			case len(of.list) < maxNames:
				of.list = append(of.list, name)
			}
		}
		of.cursor, of.ended = next, next == 0
		if of.ended {
			break
		}
		select {
		case <-time.After(scanRest):
		case <-ctx.Done():
			return backend.Classify(ctx.Err())
		}
	}
	return nil
}
