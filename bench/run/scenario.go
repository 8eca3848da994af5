package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/bench"
)

// settings are the command's flags.
type settings struct {
	bin, redisServer string
	rate             float64
	duration         time.Duration
	partitions       int
	payload          int
	connections      int
}

const (
	drainTimeout   = 30 * time.Second
	requestTimeout = 5 * time.Second

	// rateSlack is how far the rate achieved may stay below the one asked for:
	// the last answers arrive after the last request was due.
	rateSlack   = 0.01
	promiseRate = "the rate asked for is achieved"

	// The memory scenario: what 100,000 waiting entries of 200 B, 20 MB of
	// payload, may cost when every partition holds only ten of them.
	memoryPartitions = 10_000
	memoryEntries    = 10
	memoryRequests   = 2_000 // a second, each one partition's ten entries
	maxRedisGrowth   = 60e6
	maxServerRSS     = 150e6
)

// throughput sends one event a request, while the same server drains, and holds
// its ledger against what the loader was told.
func throughput(ctx context.Context, s settings) (*report, error) {
	return run(ctx, s, "throughput", "all", bench.Load{
		Rate: s.rate, Duration: s.duration, Partitions: s.partitions, Entries: 1,
		PayloadBytes: s.payload, Connections: s.connections,
	}, func(rep *report) {
		rep.must(rep.Load.Rate() >= s.rate*(1-rateSlack), promiseRate, "%.0f/s of %.0f/s", rep.Load.Rate(), s.rate)
		rep.must(rep.Ledger.Buffered == 0, "everything is drained", "%d buffered", rep.Ledger.Buffered)
	})
}

// memory fills many small partitions that nobody drains.
func memory(ctx context.Context, s settings) (*report, error) {
	return run(ctx, s, "memory", "ingest", bench.Load{
		Rate: memoryRequests, Duration: memoryPartitions / memoryRequests * time.Second,
		Partitions: memoryPartitions, Entries: memoryEntries,
		PayloadBytes: s.payload, Connections: s.connections,
	}, func(rep *report) {
		rep.must(rep.Ledger.Buffered == memoryPartitions*memoryEntries, "all entries are buffered", "%d", rep.Ledger.Buffered)
		rep.must(rep.RedisMemoryGrown <= maxRedisGrowth, "Redis grows by at most 60 MB", "%.1f MB", float64(rep.RedisMemoryGrown)/1e6)
		rep.must(rep.ServerRSSPeak < maxServerRSS, "the server stays below 150 MB", "%.1f MB", float64(rep.ServerRSSPeak)/1e6)
	})
}

// run is the part all scenarios share: load a fresh rig, let it settle, measure,
// and check the accounting.
func run(ctx context.Context, s settings, name, role string, load bench.Load, checks func(*report)) (_ *report, err error) {
	r, err := newRig(ctx, s.bin, s.redisServer, role)
	if err != nil {
		return nil, err
	}
	defer r.close()

	before, err := r.usage(ctx)
	if err != nil {
		return nil, err
	}
	load.URL, load.Namespace, load.Timeout = r.data, "default", requestTimeout
	rep := &report{Scenario: name}
	if rep.Load, err = bench.Run(ctx, load); err != nil {
		return nil, err
	}
	loaded := time.Now()
	if role == "all" {
		wait, cancel := context.WithTimeout(ctx, drainTimeout)
		defer cancel()
		if err := r.drained(wait); err != nil {
			return nil, err
		}
		rep.Drained = time.Since(loaded)
	}
	after, err := r.usage(ctx)
	if err != nil {
		return nil, err
	}
	acc, err := r.account(ctx, true)
	if err != nil {
		return nil, err
	}
	if acc.Residual == nil {
		return nil, fmt.Errorf("audit: the answer has no residual")
	}
	rep.Ledger, rep.Residual = acc.Ledger, *acc.Residual
	perEntry := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(rep.Load.Acked) }
	rep.ServerCPU = perEntry(after.serverCPU - before.serverCPU)
	rep.RedisCPU = perEntry(after.redisCPU - before.redisCPU)
	rep.ServerRSSPeak, rep.RedisMemoryPeak = after.serverRSS, after.redisPeak
	rep.RedisMemoryGrown = after.redisUsed - before.redisUsed

	l := rep.Ledger
	rep.must(rep.Load.Errors() == 0, "no request fails", "%d unknown, rejected %v", rep.Load.Unknown, rep.Load.Rejected)
	rep.must(l.Accepted == rep.Load.Acked, "accepted = acknowledged", "%d and %d", l.Accepted, rep.Load.Acked)
	sum := l.Delivered + l.Evicted + l.Expired + l.Dead + l.Lost + l.Buffered
	rep.must(l.Accepted == sum, "accepted = delivered + evicted + expired + dead + lost + buffered",
		"%d = %d + %d + %d + %d + %d + %d", l.Accepted, l.Delivered, l.Evicted, l.Expired, l.Dead, l.Lost, l.Buffered)
	rep.must(rep.Residual == 0, "an audit finds what the ledger says", "residual %d", rep.Residual)
	checks(rep)
	return rep, nil
}

// usage is a snapshot of what the rig's processes have used.
type usage struct {
	serverCPU, redisCPU             time.Duration
	serverRSS, redisUsed, redisPeak int64
}

func (r *rig) usage(ctx context.Context) (u usage, err error) {
	if u.serverCPU, err = r.server.cpu(); err != nil {
		return u, err
	}
	if u.redisCPU, err = r.redis.cpu(); err != nil {
		return u, err
	}
	if u.serverRSS, err = r.server.rssPeak(); err != nil {
		return u, err
	}
	u.redisUsed, u.redisPeak, err = r.redisMemory(ctx)
	return u, err
}
