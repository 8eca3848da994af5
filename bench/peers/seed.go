package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench/rig"
)

// seed is the way Spillway's predecessors did it: an atomic script an event, a
// plain set of active partitions, and a consumer that reads and trims.
type seed struct {
	*store
	capacity int
	lists    []string // of each partition
	names    []string
}

const activeSet = "active"

// seedPut: KEYS list, active set; ARGV capacity, partition, event.
var seedPut = redis.NewScript(`
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[1]) then redis.call('LPOP', KEYS[1]) end
redis.call('SADD', KEYS[2], ARGV[2])
return redis.call('RPUSH', KEYS[1], ARGV[3])`)

// seedTake: KEYS list, active set; ARGV most events, partition.
var seedTake = redis.NewScript(`
local events = redis.call('LRANGE', KEYS[1], 0, ARGV[1] - 1)
redis.call('LTRIM', KEYS[1], #events, -1)
if redis.call('LLEN', KEYS[1]) == 0 then redis.call('SREM', KEYS[2], ARGV[2]) end
return events`)

const seedTakers = 4 // partitions the consumer reads at once

func openSeed(ctx context.Context, c conditions) (side, error) {
	st, err := openStore(ctx, c, c.senders+seedTakers)
	if err != nil {
		return nil, err
	}
	s := &seed{store: st, capacity: c.capacity, names: partitionNames(c.partitions)}
	for _, name := range s.names {
		s.lists = append(s.lists, "list:"+name)
	}
	return s, nil
}

func (s *seed) send(ctx context.Context, events []event) error {
	for _, e := range events {
		keys := []string{s.lists[e.partition], activeSet}
		if err := seedPut.Run(ctx, s.client, keys, s.capacity, s.names[e.partition], e.payload).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (s *seed) deliver(ctx context.Context, t *tally) error {
	for ctx.Err() == nil {
		full, err := s.sweep(ctx, t)
		if err != nil {
			return ended(ctx, "sweep", err)
		}
		if !full {
			rig.Sleep(ctx, pause)
		}
	}
	return nil
}

// sweep empties every active partition and says whether any had a full batch.
func (s *seed) sweep(ctx context.Context, t *tally) (bool, error) {
	active, err := s.client.SMembers(ctx, activeSet).Result()
	if err != nil {
		return false, err
	}
	var full atomic.Bool
	var failure atomic.Pointer[error]
	var takers sync.WaitGroup
	for first := range seedTakers {
		takers.Go(func() {
			for i := first; i < len(active); i += seedTakers {
				keys := []string{"list:" + active[i], activeSet}
				for {
					events, err := seedTake.Run(ctx, s.client, keys, batch, active[i]).StringSlice()
					if err != nil {
						failure.Store(&err)
						return
					}
					tallyStrings(t, events)
					if len(events) < batch {
						break
					}
					full.Store(true)
				}
			}
		})
	}
	takers.Wait()
	if err := failure.Load(); err != nil {
		return false, *err
	}
	return full.Load(), nil
}

func tallyStrings(t *tally, events []string) {
	if len(events) == 0 {
		return
	}
	payloads := make([][]byte, len(events))
	for i, e := range events {
		payloads[i] = []byte(e)
	}
	t.batch(payloads...)
}
