package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/partition"
)

const (
	sparseEntries = 100 // a mixed request
	// A buffer that does not grow holds what lingers, and what is on its way in
	// and out: a quarter of it at most.
	sparseBuffer = 1.25
)

// sparse measures the rows of that name: many partitions with an entry or two
// each, taken in and drained at the same time, and then the bare commands for
// the same entries at the same pace.
func sparse(ctx context.Context, m *measurement) error {
	ours, err := m.sparseOurs(ctx)
	if err != nil {
		return err
	}
	bare, err := m.sparseBare(ctx, ours.load.Rate())
	if err != nil {
		return err
	}
	m.rows[0].add(ours.costs.Redis, bare, &ours.costs)
	m.rows[1].add(ours.endToEnd, 0, nil)
	m.rows[2].add(float64(ours.buffered), ours.load.Rate()*linger.Seconds(), nil)
	return nil
}

func (m *measurement) sparseOurs(ctx context.Context) (segment, error) {
	// A server that is slower than the rate gets the same requests, later.
	return m.segmentOf(ctx, bench.Load{
		Timeout: drainTimeout, Rate: m.sparseRate / sparseEntries, Duration: 2 * m.segment, Partitions: manyPartitions, Entries: sparseEntries,
		Mixed: true, Connections: batchConns,
	}, true, "--role=all", "--sink=null:", roomyFlag, morePartitions)
}

// sparseBare is the Redis CPU µs that an entry takes with bare commands.
func (m *measurement) sparseBare(ctx context.Context, rate float64) (us float64, err error) {
	r, err := newSetup(ctx, m.settings, false)
	if err != nil {
		return 0, err
	}
	defer r.close()
	l := bareLoad{Redis: r.redisURL, Rate: rate, Payload: m.payload, Duration: warmUp}
	if _, err := l.start(ctx, r); err != nil {
		return 0, err
	}
	before, err := r.redis.CPU()
	if err != nil {
		return 0, err
	}
	l.Duration = 2 * m.segment
	res, err := l.start(ctx, r)
	if err != nil {
		return 0, err
	}
	after, err := r.redis.CPU()
	if err != nil {
		return 0, err
	}
	if left, err := r.client.DBSize(ctx).Result(); err != nil || left != 0 {
		return 0, fmt.Errorf("bare commands: %d lists left (%w)", left, err)
	}
	return float64((after - before).Microseconds()) / float64(res.Entries), nil
}

// bareLoad is what the bare side does: the entries of mixed requests at a rate,
// each list read and trimmed when its first entry has lingered.
type bareLoad struct {
	Redis    string
	Rate     float64 // entries a second; as fast as it can when that is more
	Payload  int
	Duration time.Duration
}

func (l bareLoad) start(ctx context.Context, r *setup) (rawResult, error) {
	return r.side(ctx, "bare", "-redis", l.Redis, "-rate", fmt.Sprint(l.Rate), "-payload", fmt.Sprint(l.Payload), "-duration", l.Duration.String())
}

// bareRequests is how many requests share a pipeline, about as many as one of
// our flushes holds.
const bareRequests = 16

// bareCommands is the side "bare": RPUSH for each partition of a request, and
// LRANGE 0 127 and LTRIM of what was read when the list has lingered. Nothing is
// counted, bounded, leased or checked.
func bareCommands(ctx context.Context, args []string, out io.Writer) error {
	var l bareLoad
	flags := flag.NewFlagSet("bare", flag.ContinueOnError)
	flags.StringVar(&l.Redis, "redis", "", "URL")
	flags.Float64Var(&l.Rate, "rate", 0, "entries a second")
	flags.IntVar(&l.Payload, "payload", 0, "bytes")
	flags.DurationVar(&l.Duration, "duration", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	options, err := redis.ParseURL(l.Redis)
	if err != nil {
		return err
	}
	options.MaxRetries = -1
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()

	entry := partition.AppendEntry(nil, time.Now().UnixMilli(), nil, []byte(strings.Repeat("x", l.Payload)))
	var total atomic.Int64
	errs := make([]error, rawWorkers)
	start := time.Now()
	var workers sync.WaitGroup
	for i := range rawWorkers {
		workers.Go(func() {
			w := &bareWorker{client: client, entry: entry, number: int64(i), waits: map[int64]bool{}}
			n, err := w.run(ctx, start, l)
			total.Add(n)
			errs[i] = err
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return json.NewEncoder(out).Encode(rawResult{Entries: total.Load(), Elapsed: time.Since(start)})
}

// bareWorker has the partitions whose number leaves its own when divided by the
// number of workers, so that no other worker reads its lists.
type bareWorker struct {
	client *redis.Client
	entry  []byte
	number int64
	sent   int64
	due    []lingering
	waits  map[int64]bool // partitions in due
}

type lingering struct {
	partition int64
	since     time.Time
}

func bareKey(partition int64) string { return fmt.Sprintf("sw:{bare.0}:q:bench-%010d", partition) }

func (w *bareWorker) run(ctx context.Context, start time.Time, l bareLoad) (read int64, err error) {
	pace := time.Duration(float64(bareRequests*sparseEntries*rawWorkers) / l.Rate * float64(time.Second))
	for turn := range int64(l.Duration/pace) + 1 {
		rig.Sleep(ctx, time.Until(start.Add(time.Duration(turn)*pace)))
		if err := w.push(ctx); err != nil {
			return read, err
		}
		n, err := w.drain(ctx, time.Now().Add(-linger))
		if read += n; err != nil {
			return read, err
		}
	}
	for len(w.due) > 0 { // in turns, as their time comes
		rig.Sleep(ctx, min(pace, 10*time.Millisecond))
		n, err := w.drain(ctx, time.Now().Add(-linger))
		if read += n; err != nil {
			return read, err
		}
	}
	if read != w.sent {
		return read, fmt.Errorf("bare commands: read %d entries of %d", read, w.sent)
	}
	return read, nil
}

// push sends the entries of some requests, grouped by partition in each.
func (w *bareWorker) push(ctx context.Context) error {
	pipe, now := w.client.Pipeline(), time.Now()
	for range bareRequests {
		groups := map[int64][]any{}
		for range sparseEntries {
			p := bench.Scatter(w.sent, manyPartitions/rawWorkers)*rawWorkers + w.number
			w.sent++
			groups[p] = append(groups[p], w.entry)
		}
		for p, entries := range groups {
			pipe.RPush(ctx, bareKey(p), entries...)
			if !w.waits[p] {
				w.waits[p] = true
				w.due = append(w.due, lingering{p, now})
			}
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// drain reads and trims the lists that have waited since before.
func (w *bareWorker) drain(ctx context.Context, before time.Time) (read int64, err error) {
	n := 0
	for n < len(w.due) && w.due[n].since.Before(before) {
		n++
	}
	if n == 0 {
		return 0, ctx.Err()
	}
	turn := w.due[:n]
	w.due = w.due[n:]
	reads := w.client.Pipeline()
	found := make([]*redis.StringSliceCmd, n)
	for i, p := range turn {
		found[i] = reads.LRange(ctx, bareKey(p.partition), 0, partitionBatch-1)
	}
	if _, err := reads.Exec(ctx); err != nil {
		return 0, err
	}
	trims := w.client.Pipeline()
	for i, p := range turn {
		read += int64(len(found[i].Val()))
		trims.LTrim(ctx, bareKey(p.partition), int64(len(found[i].Val())), -1)
		delete(w.waits, p.partition)
	}
	_, err = trims.Exec(ctx)
	return read, err
}
