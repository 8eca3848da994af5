package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/lua/proc"
)

// settings are the command's flags.
type settings struct {
	bin, redisServer string
	wrkPath          string
	lmstfyServer     string
	jobs             jobSizes
	rate             float64
	duration         time.Duration
	rows             string        // table: those to measure, by their keys; empty measures all
	rounds           int           // table: pairs a row
	segment          time.Duration // table: how long one side of a pair is loaded
	sparseRate       float64       // table: entries a second of the sparse row
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
func throughput(ctx context.Context, s settings) (scenarioReport, error) {
	return run(ctx, s, "throughput", "all", bench.Load{
		Rate: s.rate, Duration: s.duration, Partitions: s.partitions, Entries: 1,
		PayloadBytes: s.payload, Connections: s.connections,
	}, func(rep *report) {
		rep.must(rep.Load.Rate() >= s.rate*(1-rateSlack), promiseRate, "%.0f/s of %.0f/s", rep.Load.Rate(), s.rate)
		rep.must(rep.Ledger.Buffered == 0, "everything is drained", "%d buffered", rep.Ledger.Buffered)
	})
}

// memory fills many small partitions that are not drained.
func memory(ctx context.Context, s settings) (scenarioReport, error) {
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

// run is the part all scenarios share: load a fresh setup, let it settle, measure,
// and check the accounting.
func run(ctx context.Context, s settings, name, role string, load bench.Load, promises func(*report)) (_ scenarioReport, err error) {
	r, err := newSetup(ctx, s, true)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.serve(ctx, "--sink", "null:", "--role", role); err != nil {
		return nil, err
	}

	before, err := r.usage(ctx)
	if err != nil {
		return nil, err
	}
	load.URL, load.Namespace, load.Timeout = r.data, "default", requestTimeout
	rep := &report{Scenario: name, Machine: proc.ThisMachine(ctx, s.redisServer, s.bin)}
	if rep.Load, err = bench.Run(ctx, load); err != nil {
		return nil, err
	}
	loaded := time.Now()
	if role == "all" {
		empty, err := r.drained(ctx)
		if err != nil {
			return nil, err
		}
		rep.Drained = empty.Sub(loaded)
	}
	after, err := r.usage(ctx)
	if err != nil {
		return nil, err
	}
	acc, err := bench.ReadAccount(ctx, r.admin, "default", true)
	if err != nil {
		return nil, err
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
	promises(rep)
	return rep, nil
}

// usage is a snapshot of what its processes have used.
type usage struct {
	serverCPU, redisCPU, loaderCPU  time.Duration
	serverRSS, redisUsed, redisPeak int64
	commands, scripts               int64 // Redis calls, those that scripts make included; script calls
	batches, batched                float64
}

func (r *setup) usage(ctx context.Context) (u usage, err error) {
	if u.serverCPU, err = r.server.CPU(); err != nil {
		return u, err
	}
	if u.redisCPU, err = r.redis.CPU(); err != nil {
		return u, err
	}
	if u.loaderCPU, err = (&proc.Process{PID: os.Getpid()}).CPU(); err != nil {
		return u, err
	}
	if u.serverRSS, err = r.server.RSSPeak(); err != nil {
		return u, err
	}
	if u.redisUsed, u.redisPeak, err = r.redisMemory(ctx); err != nil {
		return u, err
	}
	if u.commands, u.scripts, err = r.redisCalls(ctx); err != nil {
		return u, err
	}
	metrics, err := bench.Get(ctx, r.admin+"/metrics")
	if err != nil {
		return u, err
	}
	// Absent under role ingest, and then 0.
	u.batches = bench.Metric(metrics, `spillway_drain_batch_entries_count{namespace="default"}`)
	u.batched = bench.Metric(metrics, `spillway_drain_batch_entries_sum{namespace="default"}`)
	return u, nil
}

// redisCalls counts commands so far, those inside scripts too, and scripts.
func (r *setup) redisCalls(ctx context.Context) (commands, scripts int64, err error) {
	info, err := r.client.Info(ctx, "stats", "commandstats").Result()
	if err != nil {
		return 0, 0, fmt.Errorf("read redis calls: %w", err)
	}
	if commands, err = infoField(info, "total_commands_processed"); err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(info) {
		if rest, found := strings.CutPrefix(line, "cmdstat_evalsha:calls="); found {
			calls, _, _ := strings.Cut(rest, ",")
			scripts, err = strconv.ParseInt(calls, 10, 64)
		}
	}
	return commands, scripts, err
}
