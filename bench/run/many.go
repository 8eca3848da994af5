package main

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
)

const (
	manyPartitions = 100_000
	manyBatch      = 10
	manyEntries    = 1_000_000
	someActive     = 1_000
	someIdle       = 100
	idleLinger     = "2m"
	idleSettle     = 2 * time.Second // pipelines of the fill and the first looks of the drain end in it
	idleWatched    = 5 * time.Second
	morePartitions = "--max-partitions=200000"
)

// activePartitions measures row h.
func activePartitions(ctx context.Context, m *measurement) error {
	many, c, err := m.cpuOver(ctx, manyPartitions)
	if err != nil {
		return err
	}
	some, _, err := m.cpuOver(ctx, someActive)
	if err == nil {
		m.rows[0].add(many, some, &c)
	}
	return err
}

// cpuOver is the CPU µs that server and Redis spend on an entry, in and out,
// when all of them wait in this many partitions. Requests carry as many entries
// as batches do, so the calls are alike for any number of partitions.
func (m *measurement) cpuOver(ctx context.Context, partitions int) (us float64, c costs, err error) {
	flags := []string{"--batch=10", "--sink=null:", roomyFlag, morePartitions}
	r, err := m.fresh(ctx, append(flags, "--role=ingest")...)
	if err != nil {
		return 0, c, err
	}
	defer r.close()
	start, err := r.usage(ctx)
	if err != nil {
		return 0, c, err
	}
	res, err := bench.Run(ctx, bench.Load{
		URL: r.data, Namespace: "default", Timeout: requestTimeout, PayloadBytes: m.payload,
		Duration: time.Minute, Requests: manyEntries / manyBatch, Entries: manyBatch, Partitions: partitions, Connections: batchConns,
	})
	if err != nil {
		return 0, c, err
	}
	filled, err := r.usage(ctx)
	if err != nil {
		return 0, c, err
	}
	if res.Acked != manyEntries {
		m.fault("%d of %d entries confirmed, rejected %v", res.Acked, manyEntries, res.Rejected)
	}
	if err := r.serve(ctx, append(flags, "--role=drain")...); err != nil {
		return 0, c, err
	}
	if _, err := r.drained(ctx); err != nil {
		return 0, c, err
	}
	end, err := r.usage(ctx)
	if err != nil {
		return 0, c, err
	}
	end.serverCPU += filled.serverCPU // the drainer is another process
	c = end.since(start, res.Acked)
	c.Residual, err = m.audit(ctx, r, res.Acked)
	return c.Server + c.Redis, c, err
}

// idlePartitions measures row i.
func idlePartitions(ctx context.Context, m *measurement) error {
	many, err := m.commandsAt(ctx, manyPartitions)
	if err != nil {
		return err
	}
	some, err := m.commandsAt(ctx, someIdle)
	if err == nil {
		m.rows[0].add(many, some, nil)
	}
	return err
}

// commandsAt is the Redis commands a second, those inside scripts included,
// while this many partitions wait for their linger.
func (m *measurement) commandsAt(ctx context.Context, partitions int64) (float64, error) {
	r, err := m.fresh(ctx, "--role=all", "--sink=null:", "--linger="+idleLinger, morePartitions)
	if err != nil {
		return 0, err
	}
	defer r.close()
	res, err := bench.Run(ctx, bench.Load{
		URL: r.data, Namespace: "default", Timeout: requestTimeout, PayloadBytes: m.payload,
		Duration: time.Minute, Requests: partitions, Entries: 1, Partitions: int(partitions), Connections: batchConns,
	})
	if err != nil {
		return 0, err
	}
	if res.Acked != partitions {
		m.fault("%d of %d events confirmed, rejected %v", res.Acked, partitions, res.Rejected)
	}
	rig.Sleep(ctx, idleSettle)
	before, _, err := r.redisCalls(ctx)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	rig.Sleep(ctx, idleWatched)
	after, _, err := r.redisCalls(ctx)
	if err != nil {
		return 0, err
	}
	perSecond := float64(after-before) / time.Since(start).Seconds()
	if _, err := m.audit(ctx, r, res.Acked); err != nil {
		return 0, err
	}
	return perSecond, ctx.Err()
}
