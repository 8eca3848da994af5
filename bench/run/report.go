package main

import (
	"fmt"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/partition"
)

// report is what one scenario measured and which promises held.
type report struct {
	Scenario string           `json:"scenario"`
	Machine  proc.Machine     `json:"machine"`
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

// scenarioReport is what a scenario ends with.
type scenarioReport interface {
	// sheet is its printed form; colour says that it goes to a terminal.
	sheet(colour bool) *sheet
	held() bool // false fails the command
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

func (r *report) sheet(bool) *sheet {
	s := &sheet{name: r.Scenario, machine: r.Machine, head: []string{"measure", "value"}, checks: r.Checks}
	s.row("acknowledged", fmt.Sprintf("%d entries in %d requests, %.0f entries/s over %v", r.Load.Acked, r.Load.Requests, r.Load.Rate(),
		r.Load.Elapsed.Round(time.Millisecond)))
	s.row("latency from due time", quantiles(r.Load.Latency))
	s.row("of it before sending", quantiles(r.Load.Lag))
	if r.Drained > 0 {
		s.row("drained after", r.Drained.Round(time.Millisecond).String())
	}
	s.row("CPU an entry", fmt.Sprintf("server %.1f µs, redis %.1f µs", r.ServerCPU, r.RedisCPU))
	s.row("memory", fmt.Sprintf("server peak %.1f MB, redis peak %.1f MB, redis growth %.1f MB",
		float64(r.ServerRSSPeak)/1e6, float64(r.RedisMemoryPeak)/1e6, float64(r.RedisMemoryGrown)/1e6))
	return s
}

func quantiles(q bench.Quantiles) string {
	return fmt.Sprintf("p50 %.2f  p99 %.2f  p99.9 %.2f  max %.2f ms", milliseconds(q.P50), milliseconds(q.P99), milliseconds(q.P999), milliseconds(q.Max))
}
