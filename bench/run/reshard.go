package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
)

const (
	growRate   = 3000 // one-event requests a second while shards change
	growFor    = 4 * time.Second
	deadMaxAge = 10 * time.Second
	awayFor    = 6 * time.Second
)

// growRows are those of shardsChange.
func growRows() []*row {
	return []*row{
		{Key: "scale", Measure: "requests rejected while 6 shards become 24, at 3,000/s", Goal: 0, AtMost: true,
			Note: "a cluster of three masters, one-event requests over 1,000 partitions to one process, the command to another; null:"},
		{Key: "scale", Measure: "their p99 in these 4 s, beyond that of the 4 s before", Unit: "ms", Goal: 50, AtMost: true},
		{Key: "scale", Measure: "until the older layout is empty, linger 1 s", Unit: "s", Goal: 3, AtMost: true},
		{Key: "scale", Measure: "the same with a sink that refuses connections, beyond max_age (10 s)", Unit: "s", Goal: 2, AtMost: true},
		{Key: "scale", Measure: "busiest ÷ mean master, 12 shards on 3", Goal: 1.05, AtMost: true},
		{Key: "scale", Measure: "longest time without an accepted entry, one of three masters stopped", Unit: "s", Goal: 1, AtMost: true,
			Note: "12 shards, 512 connections, each of which waits for its answer; by the counter of accepted entries, read every 20 ms"},
	}
}

// shardsChange measures growRows.
func shardsChange(ctx context.Context, m *measurement) error {
	r, masters, err := onCluster(ctx, m.settings)
	defer func() {
		r.close()
		for _, p := range masters {
			p.Stop()
		}
	}()
	if err != nil {
		return err
	}
	peers, err := m.growable(ctx, r, "--sink=null:", "--shards=6")
	defer func() { stopAll(peers) }()
	if err != nil {
		return err
	}
	var before bench.Result
	for range 2 { // the first one warms up
		if before, err = bench.Run(ctx, m.growLoad(r)); err != nil {
			return err
		}
	}
	during, empty, err := m.grow(ctx, r, peers[0], 24)
	if err != nil {
		return err
	}
	m.rows[0].add(float64(during.Errors()), 0, nil)
	m.rows[1].add(float64(during.Latency.P99-before.Latency.P99)/1e6, 0, nil)
	m.rows[2].add(empty.Seconds(), 0, nil)

	if _, _, err := m.grow(ctx, r, peers[0], 12); err != nil {
		return err
	}
	rig.Sleep(ctx, 2*time.Second) // the metric is read once a second
	text, err := bench.Get(ctx, r.admin+"/metrics")
	if err != nil {
		return err
	}
	m.rows[4].add(bench.Metric(text, `spillway_layout_busiest_ratio{namespace="default"}`), 0, nil)
	longest, err := m.withoutMaster(ctx, r, masters[1])
	if err != nil {
		return err
	}
	m.rows[5].add(longest.Seconds(), 0, nil)

	stopAll(peers)
	peers, err = m.growable(ctx, r, "--sink=http://127.0.0.1:1/", "--shards=6", "--prefix=dead", fmt.Sprint("--max-age=", deadMaxAge))
	if err != nil {
		return err
	}
	if _, empty, err = m.grow(ctx, r, peers[0], 24); err == nil {
		m.rows[3].add((empty - deadMaxAge).Seconds(), 0, nil)
	}
	return err
}

// onCluster is a setup on three masters without replicas, still without a server.
func onCluster(ctx context.Context, s settings) (r *setup, masters []*proc.Process, err error) {
	if r, err = newSetup(ctx, s, false); err != nil {
		return &setup{}, nil, err
	}
	addrs, err := proc.FreeAddrs(3)
	if err != nil {
		return r, nil, err
	}
	var clients []*redis.Client
	for i, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		clients = append(clients, client)
		defer func() { _ = client.Close() }()
		dir := filepath.Join(r.dir, fmt.Sprint("master-", i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return r, masters, err
		}
		p, err := rig.StartRedis(ctx, dir, "", client, s.redisServer, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
		if err != nil {
			return r, masters, err
		}
		masters = append(masters, p)
	}
	r.redisURL = "redis-cluster://" + strings.Join(addrs, ",")
	return r, masters, proc.FormCluster(ctx, clients, nil)
}

// growable starts the server of r and one more process, alike.
func (m *measurement) growable(ctx context.Context, r *setup, flags ...string) ([]peer, error) {
	if err := r.serve(ctx, flags...); err != nil {
		return nil, err
	}
	return r.peers(ctx, 1, flags...)
}

func (m *measurement) growLoad(r *setup) bench.Load {
	return bench.Load{URL: r.data, Namespace: "default", Timeout: requestTimeout, PayloadBytes: m.payload, Rate: growRate,
		Duration: growFor, Partitions: scalePartitions, Entries: 1, Connections: batchConns}
}

// grow changes the shards under load, and says how long after the command the older ones had no entry.
func (m *measurement) grow(ctx context.Context, r *setup, p peer, shards int) (during bench.Result, empty time.Duration, err error) {
	loaded := make(chan error, 1)
	go func() {
		var err error
		during, err = bench.Run(ctx, m.growLoad(r))
		loaded <- err
	}()
	rig.Sleep(ctx, time.Second)
	start := time.Now()
	out, err := exec.CommandContext(ctx, r.bin, "reshard", "default", fmt.Sprint(shards), "--yes", "--admin", p.admin).CombinedOutput()
	if err != nil {
		return during, 0, fmt.Errorf("reshard: %w: %s", err, out)
	}
	for older := int64(1); older > 0 && ctx.Err() == nil; {
		rig.Sleep(ctx, 20*time.Millisecond)
		body, err := bench.Get(ctx, p.admin+"/api/v1/namespaces/default/layouts")
		if err != nil {
			return during, 0, err
		}
		var answer struct {
			Layouts []struct {
				State   string
				Entries int64
			}
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return during, 0, err
		}
		older = 0
		for _, l := range answer.Layouts {
			if l.State == "older" {
				older += l.Entries
			}
		}
	}
	empty = time.Since(start)
	if err := <-loaded; err != nil {
		return during, empty, err
	}
	out, err = exec.CommandContext(ctx, r.bin, "reshard", "default", fmt.Sprint(shards), "--yes", "--wait", "--admin", p.admin).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("reshard: %w: %s", err, out)
	}
	return during, empty, err
}

// withoutMaster is the longest time without an accepted entry while a master is stopped.
func (m *measurement) withoutMaster(ctx context.Context, r *setup, master *proc.Process) (longest time.Duration, err error) {
	loading, stop := context.WithCancel(ctx)
	defer stop()
	l := m.growLoad(r)
	l.Rate, l.Connections, l.Duration = 0, manyConns, time.Minute
	loaded := make(chan error, 1)
	go func() {
		_, err := bench.Run(loading, l)
		loaded <- err
	}()
	rig.Sleep(ctx, 2*time.Second)
	if err := syscall.Kill(master.PID, syscall.SIGSTOP); err != nil {
		return 0, err
	}
	defer func() { _ = syscall.Kill(master.PID, syscall.SIGCONT) }()
	last, at := -1.0, time.Now()
	for end := time.Now().Add(awayFor); time.Now().Before(end); rig.Sleep(ctx, 20*time.Millisecond) {
		text, err := bench.Get(ctx, r.admin+"/metrics")
		if err != nil {
			return 0, err
		}
		if n := bench.Metric(text, `spillway_ingest_entries_total{namespace="default",result="accepted"}`); n != last {
			last, at = n, time.Now()
		}
		longest = max(longest, time.Since(at))
	}
	stop()
	return longest, <-loaded
}
