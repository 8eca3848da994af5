package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
)

// sampleEvery is how often the observer reads.
const sampleEvery = 30 * time.Millisecond

// An observer reads what Redis holds, past the proxy and past the code under test:
// the keys are those that lua/DESIGN.md lists, spelled here once more.
type observer struct {
	setup      *setup
	client     redis.UniversalClient
	shards     []string // their prefixes
	partitions []string
	samples    []check.Sample
}

func newObserver(r *setup) *observer {
	return &observer{setup: r, client: r.newStoreClient(), shards: r.shards(bufferNamespace), partitions: r.plan.partitions}
}

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DisableIdentity: true,
		DialTimeout: time.Second, ReadTimeout: 2 * time.Second,
	})
}

func (w *observer) key(shard int, name string) string { return w.shards[shard] + name }

// run samples until ctx ends. While Redis is away there is nothing to see.
func (w *observer) run(ctx context.Context) {
	for ctx.Err() == nil {
		for shard := range w.shards {
			if s, err := w.sample(ctx, shard); err == nil {
				w.samples = append(w.samples, s)
			}
		}
		rig.Sleep(ctx, sampleEvery)
	}
}

// sample reads one shard in one transaction.
func (w *observer) sample(ctx context.Context, shard int) (check.Sample, error) {
	type reads struct {
		length *redis.IntCmd
		meta   *redis.SliceCmd
		due    *redis.FloatCmd
	}
	all := make([]reads, len(w.partitions))
	s := check.Sample{At: time.Now(), Shard: shard, Ledger: map[string]int64{}}
	tx := w.client.TxPipeline()
	ledger := tx.HGetAll(ctx, w.key(shard, "ledger"))
	for i, name := range w.partitions {
		all[i] = reads{
			tx.LLen(ctx, w.key(shard, "q:"+name)), tx.HMGet(ctx, w.key(shard, "m:"+name), "head", "tail"),
			tx.ZScore(ctx, w.key(shard, "ready"), name),
		}
	}
	if _, err := tx.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) { // Nil is a ZSCORE without a member
		return s, err
	}
	for name, text := range ledger.Val() {
		s.Ledger[name], _ = strconv.ParseInt(text, 10, 64)
	}
	for i, name := range w.partitions {
		d := check.Depth{Partition: name, Length: all[i].length.Val(), Active: all[i].due.Err() == nil}
		head, tail := number(all[i].meta.Val(), 0), number(all[i].meta.Val(), 1)
		if head != nil && tail != nil {
			d.Known, d.Head, d.Tail = true, *head, *tail
		}
		s.Partitions = append(s.Partitions, d)
	}
	return s, nil
}

func number(values []any, i int) *int64 {
	if i >= len(values) {
		return nil
	}
	text, _ := values[i].(string)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// buffered counts what all shards hold, and what they have accepted so far.
func (w *observer) buffered(ctx context.Context) (held, accepted int64, err error) {
	for shard := range w.shards {
		s, err := w.sample(ctx, shard)
		if err != nil {
			return 0, 0, err
		}
		w.samples = append(w.samples, s)
		accepted += s.Ledger["accepted"]
		for _, p := range s.Partitions {
			held += p.Length
		}
	}
	return held, accepted, nil
}

// dead reads the dead letters.
func (w *observer) dead(ctx context.Context) (uids []uint64, err error) {
	for shard := range w.shards {
		letters, err := w.client.LRange(ctx, w.key(shard, "dead"), 0, -1).Result()
		if err != nil {
			return nil, fmt.Errorf("read dead letters: %w", err)
		}
		for _, raw := range letters {
			uids = append(uids, parseLine(bytes.TrimSpace([]byte(raw))).Data.UID)
		}
	}
	return uids, nil
}

// leftover lists the keys of partitions and the members of active sets.
func (w *observer) leftover(ctx context.Context) (left []string, err error) {
	if left, err = w.setup.keys(ctx, "sw:*}:[qm]:*"); err != nil {
		return nil, err
	}
	for shard := range w.shards {
		names, err := w.client.ZRange(ctx, w.key(shard, "ready"), 0, -1).Result()
		if err != nil {
			return nil, fmt.Errorf("list active partitions: %w", err)
		}
		left = append(left, names...)
	}
	return left, nil
}
