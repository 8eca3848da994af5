package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench/rig"
)

// streams is a Redis Stream a partition, one consumer group on all of them.
type streams struct {
	*store
	capacity int
	keys     []string             // of each partition
	auto     *redis.AutoPipeliner // nil sends every XADD on its own, or a lot as a pipeline
}

const (
	streamGroup   = "sinks"
	streamField   = "e"
	streamReaders = 4 // consumers of the group, each with its share of the streams
)

func openStreams(ctx context.Context, c conditions) (side, error) { return newStreams(ctx, c) }

// openStreamsAuto lets go-redis merge commands of concurrent senders into
// pipelines, which it calls experimental.
func openStreamsAuto(ctx context.Context, c conditions) (side, error) {
	s, err := newStreams(ctx, c)
	if err != nil {
		return nil, err
	}
	if s.auto, err = s.client.AutoPipeline(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func newStreams(ctx context.Context, c conditions) (*streams, error) {
	st, err := openStore(ctx, c, c.senders+streamReaders)
	if err != nil {
		return nil, err
	}
	s := &streams{store: st, capacity: c.capacity}
	for _, name := range partitionNames(c.partitions) {
		key := "stream:" + name
		if err := s.client.XGroupCreateMkStream(ctx, key, streamGroup, "0").Err(); err != nil {
			s.close()
			return nil, err
		}
		s.keys = append(s.keys, key)
	}
	return s, nil
}

func (s *streams) send(ctx context.Context, events []event) error {
	switch {
	case s.auto != nil:
		return s.add(ctx, s.auto, events[0])
	case len(events) == 1:
		return s.add(ctx, s.client, events[0])
	}
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, e := range events {
			_ = s.add(ctx, p, e) // its error is the pipeline's
		}
		return nil
	})
	return err
}

func (s *streams) add(ctx context.Context, on redis.Cmdable, e event) error {
	return on.XAdd(ctx, &redis.XAddArgs{
		Stream: s.keys[e.partition], MaxLen: int64(s.capacity), Approx: true, Values: []any{streamField, e.payload},
	}).Err()
}

func (s *streams) deliver(ctx context.Context, t *tally) error {
	var readers sync.WaitGroup
	errs := make([]error, streamReaders)
	for i := range streamReaders {
		var mine []string
		for k := i; k < len(s.keys); k += streamReaders {
			mine = append(mine, s.keys[k])
		}
		if len(mine) > 0 {
			readers.Go(func() { errs[i] = s.read(ctx, t, fmt.Sprint("reader-", i), mine) })
		}
	}
	readers.Wait()
	return errors.Join(errs...)
}

// read takes up to a batch of each of its streams with one command, and
// acknowledges them with one round trip.
func (s *streams) read(ctx context.Context, t *tally, consumer string, keys []string) error {
	args := &redis.XReadGroupArgs{Group: streamGroup, Consumer: consumer, Streams: keys, Count: batch, Block: time.Second}
	for range keys {
		args.Streams = append(args.Streams, ">")
	}
	for ctx.Err() == nil {
		got, err := s.client.XReadGroup(ctx, args).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return ended(ctx, "read", err)
		}
		full := false
		_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, stream := range got {
				ids, events := make([]string, len(stream.Messages)), make([]string, len(stream.Messages))
				for i, m := range stream.Messages {
					ids[i] = m.ID
					events[i], _ = m.Values[streamField].(string) // anything else is tallied as damaged
				}
				tallyStrings(t, events)
				p.XAck(ctx, stream.Stream, streamGroup, ids...)
				full = full || len(ids) == batch
			}
			return nil
		})
		if err != nil {
			return ended(ctx, "acknowledge", err)
		}
		if !full {
			rig.Sleep(ctx, pause)
		}
	}
	return nil
}

func (s *streams) close() {
	if s.auto != nil {
		_ = s.auto.Close() // nothing is in flight any more
	}
	s.store.close()
}
