package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench"
)

const (
	// roomy is a capacity that no backlog of a benchmark reaches: evicting is
	// work that the other side of a ratio would not do.
	roomy      = 1_000_000
	roomyFlag  = "--capacity=1000000"
	warmUp     = 500 * time.Millisecond
	manyConns  = 512 // one-event requests
	batchConns = 64  // 128-entry requests
	linger     = time.Second
)

// groups are the rows in order of worth.
var groups = append([]group{
	{"one-event requests", func() []*row {
		return []*row{
			{Key: "a", Measure: "one-event confirmed requests/s ÷ no-op handler, 512 connections", Goal: 0.66,
				Note: "both by wrk, two threads; role all, draining to null:; the no-op is a fasthttp server with the same settings that answers the same bytes"},
			{Key: "a", Measure: "Redis CPU µs an event of it, in and out", Unit: "µs", Goal: 4.5, AtMost: true},
		}
	}, confirmed},
	{"sparse partitions", func() []*row {
		return []*row{
			{Key: "sparse", Measure: "Redis CPU µs an entry of mixed requests over 100,000 partitions ÷ bare RPUSH + LRANGE + LTRIM", Goal: 3, AtMost: true,
				Note: "requests of 100 entries at 85,000 entries/s (-sparse-rate), 64 connections; role all, drained to null: meanwhile; bare: a " +
					"process that does RPUSH for each partition of a request, 16 requests a pipeline, and LRANGE and LTRIM after the linger (1 s), at the " +
					"pace that ours had in this round"},
			{Key: "sparse", Measure: "the same, entries/s in and out", Unit: "/s", Goal: 80_000,
				Note: "entries/s in when the drain keeps that pace; else less, for it counts until the buffer is empty, less the linger of the last entries"},
			{Key: "sparse", Measure: "buffered when the load ends ÷ what lingers (a second of entries)", Goal: sparseBuffer, AtMost: true,
				Note: "by the ledger, at the last answer; more would mean that the drain does not keep pace"},
		}
	}, sparse},
	{"one-event requests, end to end", func() []*row {
		return []*row{{Key: "e", Measure: "end to end, one-event requests", Unit: "/s", Goal: 45_000,
			Note: "our loader, 512 connections, closed loop; until the buffer is empty, less the linger (1 s) that the last entries have to wait"}}
	}, oneEvent},
	{"128-entry requests", func() []*row {
		return []*row{
			{Key: "b", Measure: "128-entry NDJSON confirmed entries/s ÷ raw produce script", Goal: 0.75,
				Note: "role ingest, 64 connections, closed loop; raw: partition.Store.Produce in one process, 3 workers × pipelines of 16 scripts of 128 encoded entries"},
			{Key: "c", Measure: "drained entries/s to null: ÷ raw claim+commit scripts", Goal: 0.80,
				Note: "role drain, a backlog of equal size filled beforehand; raw: Store.Claim and Settle, 3 workers × pipelines of 4 leases of 8 × 128"},
			{Key: "d", Measure: "end to end, 128-entry requests ÷ serial bound of the raw sides", Goal: 0.55,
				Note: "role all, until the buffer is empty; bound = 1/(1/raw produce + 1/raw claim+commit) of the same round"},
			{Key: "d", Measure: "the same, absolute", Unit: "/s", Goal: 300_000},
		}
	}, batches},
	{"adapters", func() []*row {
		return []*row{{Key: "adapters", Measure: "events/s in Segment batches of 100 ÷ NDJSON on the mixed route, the same sizes", Goal: 0.5,
			Note: "role ingest, 64 connections, closed loop, 100 partitions, entries of 400 bytes as the sink gets them; Segment's name the " +
				"partition in properties.game"}}
	}, adapters},
	{"sinks", func() []*row {
		return []*row{
			{Key: "sinks", Measure: "drained entries/s to file: ÷ to null:", Goal: 0.5,
				Note: "role drain, a backlog of 768,000 entries in 100 partitions each; the receiver of the webhook (fasthttp) and the second " +
					"redis-server are processes on the same machine, whose counts must agree; the stream keeps 100,000 entries"},
			{Key: "sinks", Measure: "to a webhook ÷ to null:", Goal: 0.4},
			{Key: "sinks", Measure: "to redis-stream: ÷ to null:", Goal: 0.25},
		}
	}, sinks},
	{"another namespace's dead sink", func() []*row {
		return []*row{
			{Key: "isolation", Measure: "entries/s in and out, alone ÷ beside a namespace whose webhook refuses connections", Goal: 1.1, AtMost: true,
				Note: "as d, one process with two namespaces, each with its sink; 128,000 entries in 100 partitions of the other wait for the webhook " +
					"for 2 s before the load; server and redis have the cost of both"},
			{Key: "isolation", Measure: "the same, the webhook never answers", Goal: 1.1, AtMost: true},
			{Key: "isolation", Measure: "the same, the webhook answers 429, Retry-After: 1", Goal: 1.1, AtMost: true},
			{Key: "isolation", Measure: "the same, the webhook answers every second partition 500", Goal: 1.1, AtMost: true},
			{Key: "isolation", Measure: "CPU µs an entry of server and Redis, the worst of these ÷ alone", Goal: 1.1, AtMost: true},
		}
	}, isolation},
	{"hostile tenants", hostileRows, hostileTenants},
	{"confirm latency at 10 k/s", func() []*row {
		return []*row{{Key: "f", Measure: "confirm latency p99 at 10 k one-event requests/s", Unit: "ms", Goal: 5, AtMost: true,
			Note: "open loop, from the moment a request was due; 256 connections, role all, null:"}}
	}, confirmLatency},
	{"sink lag at 10 k/s", func() []*row {
		return []*row{{Key: "g", Measure: "sink lag p99 beyond the linger at 10 k/s", Unit: "ms", Goal: 20, AtMost: true,
			Note: "age of a batch's oldest entry when a webhook on loopback receives it, by the timestamp in it, less 1 s of linger"}}
	}, sinkLag},
	{"active partitions", func() []*row {
		return []*row{{Key: "h", Measure: "CPU µs per entry, 100,000 active partitions ÷ 1,000", Goal: 1.3, AtMost: true,
			Note: "server and Redis; 1,000,000 entries in requests of 10 to role ingest, then role drain, batches of 10 on both sides"}}
	}, activePartitions},
	{"idle partitions", func() []*row {
		return []*row{{Key: "i", Measure: "Redis commands/s, 100,000 not-yet-due partitions ÷ 100", Goal: 1.2, AtMost: true,
			Note: "role all, one entry each, linger 2 m, nothing sent meanwhile"}}
	}, idlePartitions},
	{"a noisy neighbour", func() []*row {
		return []*row{{Key: "j", Measure: "victim partition's p99 lag, neighbour at 100 × ÷ alone", Goal: 2, AtMost: true,
			Note: "ms; 100 events/s beside 10,000/s of one other partition; webhook, linger 20 ms, lag as in g"}}
	}, noisyNeighbour},
	{"Redis stalled", func() []*row {
		return []*row{{Key: "k", Measure: "server RSS growth while Redis is stopped ÷ the configured bound", Goal: 1, AtMost: true,
			Note: "SIGSTOP for 5 s, 512 connections go on; bound = 2 × max_inflight_bytes (16 MiB) + connections × 64 KiB as ingest.Config says; " +
				"503 past it, and the account holds after SIGCONT"}}
	}, stalled},
}, slices.Concat(scaleGroups, jobGroups)...)

// rowKeys are the keys of all rows, as a usage error lists them.
func rowKeys() string {
	var keys []string
	for _, g := range groups {
		for _, r := range g.rows() {
			keys = append(keys, r.Key)
		}
	}
	return strings.Join(slices.Compact(keys), ", ")
}

// segment is what one loaded stretch of one server showed.
type segment struct {
	load     bench.Result
	buffered int64   // when the load ended
	endToEnd float64 // entries a second until the buffer was empty
	costs    costs
}

// load warms the server up, loads it, waits until it has drained if it drains,
// and holds the account against what the loader was told.
//
// begin, unless nil, is told when the warm-up is over.
func (m *measurement) load(ctx context.Context, r *setup, l bench.Load, drains bool, begin func()) (seg segment, err error) {
	l.URL, l.Namespace, l.PayloadBytes = r.data, "default", m.payload
	if l.Timeout == 0 {
		l.Timeout = requestTimeout
	}
	warm := l
	warm.Rate, warm.Duration = 0, warmUp
	before, err := bench.Run(ctx, warm)
	if err != nil {
		return seg, err
	}
	if drains {
		if _, err := r.drained(ctx); err != nil {
			return seg, err
		}
	}
	if begin != nil {
		begin()
	}
	used, err := r.usage(ctx)
	if err != nil {
		return seg, err
	}
	start := time.Now()
	if seg.load, err = bench.Run(ctx, l); err != nil {
		return seg, err
	}
	end := time.Now()
	if drains {
		account, err := r.ledger(ctx)
		if err != nil {
			return seg, err
		}
		seg.buffered = account.Buffered
		empty, err := r.drained(ctx)
		if err != nil {
			return seg, err
		}
		if l.Entries < partitionBatch { // the last batches are not full
			empty = empty.Add(-linger)
		}
		end = later(end, empty)
	}
	seg.endToEnd = float64(seg.load.Acked) / end.Sub(start).Seconds()
	now, err := r.usage(ctx)
	if err != nil {
		return seg, err
	}
	seg.costs = now.since(used, seg.load.Acked)
	if n := before.Errors() + seg.load.Errors(); n > 0 {
		m.fault("%d entries not confirmed: %d unknown, rejected %v", n, before.Unknown+seg.load.Unknown, seg.load.Rejected)
	}
	seg.costs.Residual, err = m.audit(ctx, r, before.Acked+seg.load.Acked)
	return seg, err
}

const partitionBatch = 128

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// audit checks that all of accepted is there, was delivered and nothing else.
func (m *measurement) audit(ctx context.Context, r *setup, accepted int64) (residual int64, err error) {
	a, err := bench.ReadAccount(ctx, r.admin, "default", true)
	if err != nil {
		return 0, err
	}
	if l := a.Ledger; *a.Residual != 0 || l.Accepted != accepted || l.Delivered+l.Buffered != accepted {
		m.fault("residual %d; confirmed %d; ledger %+v", *a.Residual, accepted, l)
	}
	return *a.Residual, nil
}

// since is what was used an entry.
func (u usage) since(before usage, entries int64) costs {
	n := float64(max(entries, 1))
	c := costs{
		Server: float64((u.serverCPU - before.serverCPU).Microseconds()) / n, Redis: float64((u.redisCPU - before.redisCPU).Microseconds()) / n,
		Loader: float64((u.loaderCPU - before.loaderCPU).Microseconds()) / n,
		Calls:  float64(u.commands-before.commands) / n, Scripts: float64(u.scripts-before.scripts) / n,
	}
	if batches := u.batches - before.batches; batches > 0 {
		c.Fill = (u.batched - before.batched) / batches / partitionBatch
	}
	return c
}

// fresh is a new Redis with a new server on it.
func (m *measurement) fresh(ctx context.Context, flags ...string) (*setup, error) {
	r, err := newSetup(ctx, m.settings, false)
	if err != nil {
		return nil, err
	}
	if err := r.serve(ctx, flags...); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}
