package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/lua/proc"
)

// The shed scenario: a server with small bounds, a load well within them, and
// each bound flooded in turn.
const (
	shedConns      = 256
	shedPartitions = 1000
	shedRate       = 1000 // requests a second of the load whose latency is looked at
	shedBodies     = 150  // of 1 MB, a second, of the flood of bytes
	shedTime       = 10 * time.Second
	// shedBound is what the load's p99 must stay below beside any flood. The
	// flooding clients share the CPUs with server, Redis and loader.
	shedBound = 250 * time.Millisecond

	shedToken, floodToken = "load", "flood"
)

// shedFile limits what the flood's token may bring in. Partitions that drain
// have to be taken again, so without it a flood would take the load's places.
func shedFile() string {
	return fmt.Sprintf("namespaces: {default: {tokens: [{hash: \"sha256:%x\", name: load}, {hash: \"sha256:%x\", name: flood, new_partitions: %d/h}]}}\n",
		sha256.Sum256([]byte(shedToken)), sha256.Sum256([]byte(floodToken)), shedPartitions/2)
}

// shedReport is the latency of one load beside each flood.
type shedReport struct {
	Scenario string       `json:"scenario"`
	Machine  proc.Machine `json:"machine"`
	Phases   []phase      `json:"phases"`
	Residual int64        `json:"residual"`
	checks
}

// phase is what the load met beside one flood, and what the flood met.
type phase struct {
	Flood    string           `json:"flood"`
	Load     bench.Result     `json:"load"`
	Acked    int64            `json:"flood_acked"`
	Unknown  int64            `json:"flood_unknown"`
	Rejected map[string]int64 `json:"flood_rejected"` // entries, or connections, by code
}

func (r *shedReport) sheet(bool) *sheet {
	s := &sheet{name: r.Scenario, machine: r.Machine, head: []string{"beside", "latency of the load", "flood accepted", "flood rejected"}, checks: r.Checks,
		notes: []string{fmt.Sprintf("The load is %d requests/s.", shedRate)}}
	for _, b := range r.Phases {
		if len(b.Rejected) == 0 {
			s.row(b.Flood, quantiles(b.Load.Latency), "", "")
			continue
		}
		s.row(b.Flood, quantiles(b.Load.Latency), fmt.Sprint(b.Acked), fmt.Sprint(b.Rejected))
	}
	return s
}

// shed measures requests that are accepted, beside others that are not.
func shed(ctx context.Context, s settings) (scenarioReport, error) {
	r, err := newSetup(ctx, s, false)
	if err != nil {
		return nil, err
	}
	defer r.close()
	file := filepath.Join(r.dir, "shed.yaml")
	if err := os.WriteFile(file, []byte(shedFile()), 0o600); err != nil {
		return nil, err
	}
	if err := r.serve(ctx, "--config="+file, "--sink=null:", roomyFlag, fmt.Sprint("--max-conns=", shedConns), fmt.Sprint("--max-partitions=", shedPartitions),
		"--max-inflight-bytes=16MiB", "--max-body=1MiB", "--max-decompressed=1MiB"); err != nil {
		return nil, err
	}
	rep := &shedReport{Scenario: "shed", Machine: proc.ThisMachine(ctx, s.redisServer, s.bin)}
	var acked, unknown int64
	for _, f := range []struct {
		name, code string // what its rejections say
		may, but   string // memory is everybody's, so there the load may be rejected, too
		run        flood
	}{
		{"nothing", "", "", "", nil},
		{"connections", "overloaded", "", "", r.floodConns},
		{"partitions", "too_many_partitions", "", "", r.floodPartitions},
		{"bytes", "overloaded", "overloaded", " but as overloaded", r.floodBytes},
		{"nothing, again", "", "", "", nil},
	} {
		b, err := r.beside(ctx, s, f.name, f.run)
		if err != nil {
			return nil, fmt.Errorf("beside %s: %w", f.name, err)
		}
		rep.Phases = append(rep.Phases, b)
		acked += b.Load.Acked + b.Acked
		unknown += b.Load.Unknown + b.Unknown
		failed := b.Load.Errors()
		if f.may != "" {
			failed -= b.Load.Rejected[f.may]
		}
		rep.must(failed == 0, "beside "+f.name+" no request within the bounds fails"+f.but, "%d unknown, rejected %v", b.Load.Unknown, b.Load.Rejected)
		rep.must(b.Load.Latency.P99 < shedBound, "beside "+f.name+" their p99 is bounded", "%.2f ms of %.0f", milliseconds(b.Load.Latency.P99),
			milliseconds(shedBound))
		if f.run != nil {
			rep.must(b.Rejected[f.code] > 0, f.name+" beyond the bound are rejected", "%v", b.Rejected)
		}
	}
	if _, err := r.drained(ctx); err != nil {
		return nil, err
	}
	a, err := bench.ReadAccount(ctx, r.admin, "default", true)
	if err != nil {
		return nil, err
	}
	rep.Residual = *a.Residual
	rep.must(acked <= a.Ledger.Accepted && a.Ledger.Accepted <= acked+unknown, "acknowledged <= accepted <= acknowledged + unknown",
		"%d <= %d <= %d", acked, a.Ledger.Accepted, acked+unknown)
	rep.must(*a.Residual == 0, "an audit finds what the ledger says", "residual %d", *a.Residual)
	return rep, nil
}

// flood runs until its context ends and tells what it met.
type flood func(context.Context, settings) (bench.Result, error)

// beside runs the load, and the flood as soon as the load's connections are up.
func (r *setup) beside(ctx context.Context, s settings, name string, run flood) (phase, error) {
	b := phase{Flood: name}
	flooding, stop := context.WithCancel(ctx)
	defer stop()
	var met bench.Result
	var failed error
	var running sync.WaitGroup
	if run != nil {
		running.Go(func() {
			if failed = r.connected(flooding, s.connections); failed == nil {
				met, failed = run(flooding, s)
			}
		})
	}
	var err error
	b.Load, err = bench.Run(ctx, bench.Load{
		URL: r.data, Namespace: "default", Timeout: requestTimeout, PayloadBytes: s.payload, Entries: 1,
		Token: shedToken, Partitions: s.partitions, Rate: shedRate, Duration: shedTime, Connections: s.connections,
	})
	stop()
	running.Wait()
	b.Acked, b.Unknown, b.Rejected = met.Acked, met.Unknown, maps.Clone(met.Rejected)
	return b, errors.Join(err, failed)
}

// connected waits until the server has that many connections.
func (r *setup) connected(ctx context.Context, n int) error {
	return r.server.Await(ctx, "the load's connections", func(ctx context.Context) error {
		metrics, err := bench.Get(ctx, r.admin+"/metrics")
		if got := int(bench.Metric(metrics, "spillway_ingest_connections")); err == nil && got < n {
			err = fmt.Errorf("%d connections of %d", got, n)
		}
		return err
	})
}

// floodPartitions posts to ever new partitions.
func (r *setup) floodPartitions(ctx context.Context, s settings) (bench.Result, error) {
	return bench.Run(ctx, bench.Load{
		URL: r.data, Namespace: "default", Timeout: requestTimeout, PayloadBytes: s.payload, Entries: 1,
		Token: floodToken, Partitions: 100 * shedPartitions, Prefix: "flood-", Duration: time.Hour, Connections: s.connections,
	})
}

// floodBytes posts bodies of nearly 1 MiB, more of them at once than may be in
// memory: shedBodies a second, or it would measure how fast this machine copies.
func (r *setup) floodBytes(ctx context.Context, s settings) (bench.Result, error) {
	return bench.Run(ctx, bench.Load{
		URL: r.data, Namespace: "default", Timeout: 3 * requestTimeout, PayloadBytes: 1000, Entries: 1000,
		Token: floodToken, Partitions: s.partitions, Prefix: "flood-", Rate: shedBodies, Duration: time.Hour, Connections: s.connections,
	})
}

// floodConns opens a connection each millisecond and says nothing on it. More
// would only use up this machine's ports.
func (r *setup) floodConns(ctx context.Context, _ settings) (met bench.Result, err error) {
	met.Rejected = map[string]int64{}
	var mu sync.Mutex
	var open sync.WaitGroup
	defer open.Wait()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return met, nil
		case <-tick.C:
		}
		c, err := net.Dial("tcp", strings.TrimPrefix(r.data, "http://"))
		if err != nil {
			return met, err
		}
		open.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			answer, _ := io.ReadAll(c) // until the server closes, or we do
			_ = c.Close()
			if _, body, found := bytes.Cut(answer, []byte("\r\n\r\n")); found {
				mu.Lock()
				defer mu.Unlock()
				met.Rejected[gjson.GetBytes(body, "error").String()]++
			}
		})
	}
}
