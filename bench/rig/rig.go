// Package rig is what the harnesses of bench share: it starts the programs that they measure
// and break, on loopback, reads their metrics, and runs a harness as a command.
package rig

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/lua/proc"
)

// startTimeout is how long a program may take to be ready. With others on the machine, or
// faults about, that is longer than it sounds.
const startTimeout = 30 * time.Second

// Main runs a harness as the process: it ends with the code that command returns, and ctx ends
// with SIGINT and SIGTERM.
func Main(command func(ctx context.Context, args []string, out, progress io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Start runs a program as proc.Start does and waits until ready returns nil, at most 30 s. A
// program that is not ready then is stopped.
func Start(ctx context.Context, dir, name string, ready func(context.Context) error, path string,
	args ...string) (*proc.Process, error) {
	p, err := proc.Start(dir, name, path, args...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := p.Await(ctx, name, ready); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// Answers is a ready for Start: the URL answers 200.
func Answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := bench.Get(ctx, url)
		return err
	}
}

// StartRedis starts a redis-server at the client's address, with its password, that keeps its
// files in dir and evicts nothing. fsync is its appendfsync; empty: it has no append-only file.
// command is the program, and what stands before it.
func StartRedis(ctx context.Context, dir, fsync string, client *redis.Client, command ...string) (*proc.Process, error) {
	o := client.Options()
	command = append(command, "--port", proc.Port(o.Addr), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--maxmemory-policy", "noeviction")
	if fsync != "" {
		command = append(command, "--appendonly", "yes", "--appendfsync", fsync)
	}
	if o.Password != "" {
		command = append(command, "--requirepass", o.Password)
	}
	ready := func(ctx context.Context) error { return client.Ping(ctx).Err() }
	return Start(ctx, dir, "redis", ready, command[0], command[1:]...)
}

// Metrics are the series in Prometheus's text, such as x_total{namespace="default"}, without
// the buckets of histograms.
func Metrics(text []byte) (map[string]float64, error) {
	series := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || strings.Contains(line, "_bucket{") {
			continue
		}
		at := max(strings.LastIndexByte(line, ' '), 0)
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			return nil, fmt.Errorf("read metric %q: %w", line, err)
		}
		series[line[:at]] = value
	}
	return series, nil
}

// Sleep lets d pass on purpose. It is false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
