package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/partition"
)

// report is what one scenario measured and which promises held.
type report struct {
	Scenario string           `json:"scenario"`
	Load     bench.Result     `json:"load"`
	Ledger   partition.Ledger `json:"ledger"`
	Residual int64            `json:"residual"` // entries found in Redis beyond the ledger's buffered

	Drained          time.Duration `json:"drained_ns"`         // from the last answer to an empty buffer
	ServerCPU        float64       `json:"server_cpu_us"`      // an entry, from its request to its settling
	RedisCPU         float64       `json:"redis_cpu_us"`       // the same
	ServerRSSPeak    int64         `json:"server_rss_bytes"`   // since the process began
	RedisMemoryPeak  int64         `json:"redis_peak_bytes"`   // used_memory_peak
	RedisMemoryGrown int64         `json:"redis_growth_bytes"` // used_memory after minus before
	checks
}

// outcome is what a scenario ends with.
type outcome interface {
	print(out io.Writer) error
	held() bool
}

// checks are the promises of one scenario.
type checks struct {
	Checks []check `json:"checks"`
}

// check is a promise that must hold.
type check struct {
	Promise string `json:"promise"`
	Held    bool   `json:"held"`
	Got     string `json:"got"`
}

func (r *checks) must(held bool, promise, format string, args ...any) {
	r.Checks = append(r.Checks, check{Promise: promise, Held: held, Got: fmt.Sprintf(format, args...)})
}

func (r *checks) held() bool {
	for _, c := range r.Checks {
		if !c.Held {
			return false
		}
	}
	return true
}

// print writes the report for people.
func (r *report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	row("scenario", "%s, %d CPUs, %s", r.Scenario, runtime.NumCPU(), runtime.Version())
	row("acknowledged", "%d entries in %d requests, %.0f entries/s over %v", r.Load.Acked, r.Load.Requests, r.Load.Rate(), r.Load.Elapsed.Round(time.Millisecond))
	row("latency from due time", "%s", quantiles(r.Load.Latency))
	row("of it before sending", "%s", quantiles(r.Load.Lag))
	if r.Drained > 0 {
		row("drained after", "%v", r.Drained.Round(time.Millisecond))
	}
	row("CPU an entry", "server %.1f µs, redis %.1f µs", r.ServerCPU, r.RedisCPU)
	row("memory", "server peak %.1f MB, redis peak %.1f MB, redis growth %.1f MB",
		float64(r.ServerRSSPeak)/1e6, float64(r.RedisMemoryPeak)/1e6, float64(r.RedisMemoryGrown)/1e6)
	r.rows(row)
	_, _ = fmt.Fprintln(w)
	return w.Flush()
}

// rows prints each promise.
func (r *checks) rows(row func(name, format string, args ...any)) {
	for _, c := range r.Checks {
		status := "held"
		if !c.Held {
			status = "DID NOT HOLD"
		}
		row(status, "%s: %s", c.Promise, c.Got)
	}
}

func quantiles(q bench.Quantiles) string {
	return fmt.Sprintf("p50 %.2f  p99 %.2f  p99.9 %.2f  max %.2f ms", milliseconds(q.P50), milliseconds(q.P99), milliseconds(q.P999), milliseconds(q.Max))
}
