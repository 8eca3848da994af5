package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
)

const (
	scaleRate       = 1000 // one-event requests a second
	scalePartitions = 1000
	scaleSettle     = 4 * time.Second // after the last process is ready: all know each other
	scaleWatched    = 7 * time.Second
	afterKill       = 5 * time.Second
	manyShards      = 48
	// idleAfter is how long nothing happens before idle processes are watched, so that those which
	// look less and less often do.
	idleAfter = 35 * time.Second
)

// scaleGroups are about several processes on one Redis.
var scaleGroups = []group{{"several processes", func() []*row {
	return []*row{
		{Key: "scale", Measure: "claims that brought nothing ÷ leases, 4 drainers", Goal: 0.05, AtMost: true,
			Note: "one shard, 1,000 one-event requests/s over 1,000 partitions to another process, to null:; killed: the one of the " +
				"drainers that is first for the shard, by SIGKILL; idle: role all, nothing sent, by MONITOR"},
		{Key: "scale", Measure: "the same, 16 drainers", Goal: 0.05, AtMost: true},
		{Key: "scale", Measure: "how long a partition is due at most, in the 5 s after the owner of 4 was killed", Unit: "ms", Goal: 300, AtMost: true},
		{Key: "scale", Measure: "commands/s on the keys of 48 idle shards, 10 processes ÷ 2", Goal: 1.2, AtMost: true},
	}
}, severalProcesses}}

// severalProcesses measures rows scale.
func severalProcesses(ctx context.Context, m *measurement) error {
	for i, drainers := range []int{4, 16} {
		wasted, overdue, err := m.drainersOf(ctx, drainers)
		if err != nil {
			return err
		}
		m.rows[i].add(wasted, 0, nil)
		if i == 0 {
			m.rows[2].add(overdue, 0, nil)
		}
	}
	ten, err := m.idleCommands(ctx, 10)
	if err != nil {
		return err
	}
	two, err := m.idleCommands(ctx, 2)
	if err == nil {
		m.rows[3].add(ten, two, nil)
	}
	return err
}

// A peer is one more process on the Redis of a setup.
type peer struct {
	*proc.Process
	data, admin string
}

// peers starts so many processes with these flags, beside the server of r.
func (r *setup) peers(ctx context.Context, n int, flags ...string) (list []peer, err error) {
	for i := range n {
		ports, err := proc.FreeAddrs(2)
		if err != nil {
			return list, err
		}
		admin := "http://" + ports[1]
		p, err := rig.Start(ctx, r.dir, fmt.Sprint("peer-", i), rig.Answers(admin+"/readyz"), r.bin, append([]string{"serve",
			"--redis", r.redisURL, "--listen", ports[0], "--admin-listen", ports[1]}, flags...)...)
		if err != nil {
			return list, err
		}
		list = append(list, peer{p, "http://" + ports[0], admin})
	}
	return list, nil
}

func stopAll(list []peer) {
	for _, p := range list {
		p.Stop()
	}
}

// drainersOf is the claims that brought nothing, a lease, while so many processes drain, and how
// long a partition is due at most, in ms, after the owner of the shard was killed.
func (m *measurement) drainersOf(ctx context.Context, n int) (wasted, overdue float64, err error) {
	r, err := m.fresh(ctx, "--role=ingest")
	if err != nil {
		return 0, 0, err
	}
	defer r.close()
	drainers, err := r.peers(ctx, n, "--role=drain", "--sink=null:")
	defer func() { stopAll(drainers) }()
	if err != nil {
		return 0, 0, err
	}
	rig.Sleep(ctx, scaleSettle)
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var sent bench.Result
	loaded := make(chan error, 1)
	go func() {
		var err error
		sent, err = bench.Run(loading, bench.Load{URL: r.data, Namespace: "default", Timeout: requestTimeout, PayloadBytes: m.payload, Rate: scaleRate,
			Duration: time.Minute, Partitions: scalePartitions, Entries: 1, Connections: batchConns})
		loaded <- err
	}()
	rig.Sleep(ctx, 3*linger)
	leased, idle, _, err := claims(ctx, drainers)
	if err != nil {
		return 0, 0, err
	}
	rig.Sleep(ctx, scaleWatched)
	leasedNow, idleNow, owner, err := claims(ctx, drainers)
	if err != nil {
		return 0, 0, err
	}
	wasted = (idleNow - idle) / max(1, leasedNow-leased)
	if owner < 0 {
		m.fault("none of %d drainers is first for the shard", n)
		return wasted, 0, nil
	}
	drainers[owner].Kill()
	overdue, err = r.longestDue(ctx, afterKill)
	stop()
	if err := <-loaded; err != nil {
		return 0, 0, err
	}
	if n := sent.Errors(); n > 0 && sent.Unknown < n {
		m.fault("%d entries not confirmed: rejected %v", n, sent.Rejected)
	}
	return wasted, overdue, err
}

// claims counts the claims of drainers, and says which one is first for the shard; -1: none.
func claims(ctx context.Context, drainers []peer) (leased, idle float64, owner int, err error) {
	owner = -1
	for i, d := range drainers {
		text, err := bench.Get(ctx, d.admin+"/metrics")
		if err != nil {
			return 0, 0, owner, err
		}
		of := func(outcome string) float64 {
			return bench.Metric(text, `spillway_drain_claims_total{namespace="default",outcome="`+outcome+`"}`)
		}
		leased, idle = leased+of("leased"), idle+of("idle")
		if bench.Metric(text, `spillway_drain_owned_shards{namespace="default"}`) > 0 {
			owner = i
		}
	}
	return leased, idle, owner, nil
}

// longestDue watches the active set for a while.
func (r *setup) longestDue(ctx context.Context, during time.Duration) (ms float64, err error) {
	for end := time.Now().Add(during); time.Now().Before(end); {
		pipe := r.client.Pipeline()
		clock, first := pipe.Time(ctx), pipe.ZRangeWithScores(ctx, "sw:{default.0}:ready", 0, 0)
		if _, err := pipe.Exec(ctx); err != nil {
			return 0, err
		}
		for _, z := range first.Val() {
			ms = max(ms, float64(clock.Val().UnixMilli())-z.Score)
		}
		rig.Sleep(ctx, 5*time.Millisecond)
	}
	return ms, nil
}

// idleCommands is the commands a second on the keys of shards that n processes send while nothing
// happens, those inside scripts included.
func (m *measurement) idleCommands(ctx context.Context, n int) (float64, error) {
	flags := []string{"--role=all", "--sink=null:", fmt.Sprint("--shards=", manyShards)}
	r, err := m.fresh(ctx, flags...)
	if err != nil {
		return 0, err
	}
	defer r.close()
	others, err := r.peers(ctx, n-1, flags...)
	defer func() { stopAll(others) }()
	if err != nil {
		return 0, err
	}
	rig.Sleep(ctx, idleAfter)
	conn, err := net.Dial("tcp", r.client.Options().Addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return 0, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(idleWatched)); err != nil {
		return 0, err
	}
	seen := 0
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if strings.Contains(lines.Text(), "{default.") {
			seen++
		}
	}
	if seen == 0 {
		m.fault("no command of %d processes on %d idle shards", n, manyShards)
	}
	return float64(seen) / idleWatched.Seconds(), ctx.Err()
}
