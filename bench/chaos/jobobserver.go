package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/partition/backend"
)

// A jobObserver reads what Redis holds of the queues, past the proxy and past the code
// under test: the keys are those of lua/job/DESIGN.md, spelled here once more.
type jobObserver struct {
	client  redis.UniversalClient
	queues  []string
	samples []check.JobSample
}

func newJobObserver(r *setup) *jobObserver {
	return &jobObserver{client: r.newStoreClient(), queues: r.plan.queues}
}

func (o *jobObserver) key(shard int, name string) string {
	return backend.ShardPrefix("sw", queueNamespace, shard, queueShards) + name
}

// run samples until ctx ends. While Redis is away there is nothing to see.
func (o *jobObserver) run(ctx context.Context) {
	for ctx.Err() == nil {
		if samples, err := o.read(ctx); err == nil {
			o.samples = append(o.samples, samples...)
		}
		rig.Sleep(ctx, sampleEvery)
	}
}

// read samples all shards.
func (o *jobObserver) read(ctx context.Context) (samples []check.JobSample, err error) {
	for shard := range queueShards {
		s, err := o.sample(ctx, shard)
		if err != nil {
			return nil, fmt.Errorf("read the queues: %w", err)
		}
		samples = append(samples, s)
	}
	return samples, nil
}

// sample reads one shard in one transaction.
func (o *jobObserver) sample(ctx context.Context, shard int) (check.JobSample, error) {
	type reads struct {
		jobs, references, dead *redis.IntCmd
		tombstones, head       *redis.StringCmd
	}
	all := make([]reads, len(o.queues))
	s := check.JobSample{At: time.Now(), Shard: shard, Ledger: map[string]int64{}}
	tx := o.client.TxPipeline()
	ledger := tx.HGetAll(ctx, o.key(shard, "ledger"))
	delayed, leased := tx.ZCard(ctx, o.key(shard, "delay")), tx.ZCard(ctx, o.key(shard, "lease"))
	leases := tx.ZRange(ctx, o.key(shard, "lease"), 0, -1)
	now := tx.Time(ctx)
	first := []*redis.ZSliceCmd{tx.ZRangeWithScores(ctx, o.key(shard, "delay"), 0, 0), tx.ZRangeWithScores(ctx, o.key(shard, "lease"), 0, 0)}
	for i, name := range o.queues {
		all[i] = reads{
			tx.HLen(ctx, o.key(shard, "j:"+name)), tx.LLen(ctx, o.key(shard, "r:"+name)), tx.ZCard(ctx, o.key(shard, "d:"+name)),
			tx.HGet(ctx, o.key(shard, "tombstones"), name), tx.LIndex(ctx, o.key(shard, "r:"+name), 0),
		}
	}
	if _, err := tx.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) { // Nil is a field that is not there
		return s, err
	}
	for name, text := range ledger.Val() {
		s.Ledger[name], _ = strconv.ParseInt(text, 10, 64)
	}
	s.Delayed, s.Leased = delayed.Val(), leased.Val()
	for _, list := range first {
		for _, z := range list.Val() {
			s.Overdue = max(s.Overdue, now.Val().Sub(time.UnixMilli(int64(z.Score))))
		}
	}
	for i, name := range o.queues {
		q := check.QueueDepth{Queue: name, Jobs: all[i].jobs.Val(), References: all[i].references.Val(), Dead: all[i].dead.Val(), Head: all[i].head.Val()}
		q.Tombstones, _ = strconv.ParseInt(all[i].tombstones.Val(), 10, 64)
		for _, member := range leases.Val() {
			if _, queue, _ := strings.Cut(member, " "); queue == name {
				q.Leases++
			}
		}
		s.Queues = append(s.Queues, q)
	}
	return s, nil
}

// dead reads the uids of the dead jobs.
func (o *jobObserver) dead(ctx context.Context) (uids []uint64, err error) {
	for shard := range queueShards {
		for _, name := range o.queues {
			seqs, err := o.client.ZRange(ctx, o.key(shard, "d:"+name), 0, -1).Result()
			if err != nil {
				return nil, fmt.Errorf("read the dead of %s: %w", name, err)
			}
			for _, seq := range seqs {
				record, err := o.client.HGet(ctx, o.key(shard, "j:"+name), seq).Result()
				if err != nil {
					return nil, fmt.Errorf("read job %s of %s: %w", seq, name, err)
				}
				payload := record[max(0, strings.LastIndex(record, "{")):] // behind attributes
				uids = append(uids, check.ParsePayload([]byte(payload)).UID)
			}
		}
	}
	return uids, nil
}
