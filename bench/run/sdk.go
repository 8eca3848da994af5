package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/lua/proc"
)

const (
	// sdkAhead is how many entries may be pending, half of the client's queue. So it
	// never has to drop one.
	sdkAhead = 5_000
	// sdkPause is how long the reporting side waits when so many are.
	sdkPause = 100 * time.Microsecond
)

// sdk measures a process that reports with the Go client, and then our loader.
func sdk(ctx context.Context, m *measurement) error {
	zipped, c, err := m.reporting(ctx, "")
	if err != nil {
		return err
	}
	plain, plainCosts, err := m.reporting(ctx, "-plain")
	if err != nil {
		return err
	}
	l := bench.Load{Duration: m.segment, Partitions: m.partitions, Entries: partitionBatch, Connections: batchConns}
	seg, err := m.segmentOf(ctx, l, false, "--role=ingest", roomyFlag)
	if err != nil {
		return err
	}
	m.rows[0].add(zipped, seg.load.Rate(), &c)
	m.rows[1].add(plain, seg.load.Rate(), &plainCosts)
	return nil
}

// reporting is the entries a second that one client's process gets stored.
func (m *measurement) reporting(ctx context.Context, option string) (rate float64, c costs, err error) {
	r, err := m.fresh(ctx, "--role=ingest", roomyFlag)
	if err != nil {
		return 0, c, err
	}
	defer r.close()
	report := func(d time.Duration) (rawResult, error) {
		args := []string{"-url", r.data, "-partitions", fmt.Sprint(m.partitions), "-payload", fmt.Sprint(m.payload), "-duration", d.String()}
		if option != "" {
			args = append(args, option)
		}
		return r.side(ctx, "report", args...)
	}
	warm, err := report(warmUp)
	if err != nil {
		return 0, c, err
	}
	before, err := r.usage(ctx)
	if err != nil {
		return 0, c, err
	}
	res, err := report(m.segment)
	if err != nil {
		return 0, c, err
	}
	now, err := r.usage(ctx)
	if err != nil {
		return 0, c, err
	}
	c = now.since(before, res.Entries)
	c.Loader = float64(res.CPU.Microseconds()) / float64(max(res.Entries, 1))
	c.Residual, err = m.audit(ctx, r, warm.Entries+res.Entries)
	return res.rate(), c, err
}

// reportEvents is the side "report": the Go client reports as fast as the service takes it, until
// everything is acknowledged. A drop, or Stats that do not add up, are an error.
func reportEvents(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	url := flags.String("url", "", "URL")
	partitions := flags.Int("partitions", 0, "")
	size := flags.Int("payload", 0, "bytes")
	duration := flags.Duration("duration", 0, "")
	plain := flags.Bool("plain", false, "no gzip")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var cfg spillway.ReporterConfig
	if *plain {
		cfg.CompressFrom = -1
	}
	c, err := spillway.NewReporter(*url, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	names := make([]string, *partitions)
	for i := range names {
		names[i] = fmt.Sprint("bench-", i)
	}
	padding := bench.Padding(max(*size, bench.MinPayload))
	var payload []byte
	start := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		if n%partitionBatch == 0 {
			if time.Since(start) >= *duration {
				break
			}
			for c.Stats().Pending > sdkAhead-partitionBatch {
				rig.Sleep(ctx, sdkPause)
			}
		}
		payload = bench.AppendPayload(payload[:0], int64(n), padding)
		if err := c.Report(names[n%len(names)], payload); err != nil {
			return err
		}
	}
	if err := c.Flush(ctx); err != nil {
		return err
	}
	s, elapsed := c.Stats(), time.Since(start)
	cpu, err := (&proc.Process{PID: os.Getpid()}).CPU()
	if err != nil {
		return err
	}
	if len(s.Dropped) > 0 || s.Pending != 0 || s.Reported != s.Acked {
		return fmt.Errorf("reported %d, acknowledged %d, pending %d, dropped for %v", s.Reported, s.Acked, s.Pending, slices.Collect(maps.Keys(s.Dropped)))
	}
	return json.NewEncoder(out).Encode(rawResult{Entries: s.Acked, Elapsed: elapsed, CPU: cpu})
}
