package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
)

// A hostile is a tenant, or somebody without a token, who takes what all share, and what
// another tenant asks meanwhile.
type hostile struct {
	Does, Other, Asks string // in the row's measure; Asks as sent
	Goal              float64
	Admin             bool     // Asks goes to the admin port
	Fresh             bool     // each on a new connection
	Flags             []string // of the server
	Delayed           int64    // jobs that wait in the queue "big"

	Conns     int
	PerSecond int // of all Conns; 0: each sends as soon as it was answered
	Request   string
	Queues    int // that @ in Request stands for
	Body      struct {
		Head, Line, Tail string
		Size, Times      int // of Line, filled up before it, in bytes
		Gzip             bool
	}
}

//go:embed hostiles.json
var hostilesFile []byte

// hostiles are what hostiles.json lists.
var hostiles = func() (all []hostile) {
	if err := json.Unmarshal(hostilesFile, &all); err != nil {
		panic(err)
	}
	return all
}()

const (
	askRate      = 500 // a second
	hostileAddrs = 16  // of a subnet
	hostileConf  = "pools: {default: {volatile: true}}\nnamespaces: {default: {}, bad: {}, mine: {kind: queue}, " + jobNamespace + ": {kind: queue}}\n"
)

// hostileRows are two for each of them.
func hostileRows() (rows []*row) {
	for _, h := range hostiles {
		rows = append(rows, &row{Key: "isolation", Measure: "p99 of " + h.Other + " beside " + h.Does + " ÷ alone", Goal: h.Goal, AtMost: true},
			&row{Key: "isolation", Measure: "of these, not answered 200", AtMost: true})
	}
	rows[0].Note = fmt.Sprintf("ms; one server, role ingest; the tenant alone and then beside the other, "+
		"%d requests/s on %d connections, in time from when each was due", askRate, batchConns)
	return rows
}

// hostileTenants measures a tenant alone, and beside each of the hostile ones.
func hostileTenants(ctx context.Context, m *measurement) error {
	for i, h := range hostiles {
		if err := m.besideHostile(ctx, h, m.rows[2*i], m.rows[2*i+1]); err != nil {
			return fmt.Errorf("%s beside %s: %w", h.Other, h.Does, err)
		}
	}
	return nil
}

func (m *measurement) besideHostile(ctx context.Context, h hostile, latency, failures *row) error {
	r, err := newSetup(ctx, m.settings, false)
	if err != nil {
		return err
	}
	defer r.close()
	file := filepath.Join(r.dir, "hostile.yaml")
	if err := os.WriteFile(file, []byte(hostileConf), 0o600); err != nil {
		return err
	}
	if err := r.serve(ctx, append([]string{"--config=" + file, "--role=ingest"}, h.Flags...)...); err != nil {
		return err
	}
	payload := []byte(bench.Padding(m.payload))
	// What is read: an entry in each partition, a job in each queue, and delayed ones.
	for _, fill := range []traffic{
		{request: "POST /v1/default/#", body: payload, total: int64(m.partitions)}, {request: "POST /v1/bad/#", body: payload, total: int64(m.partitions)},
		{request: "POST /v1/mine/#", body: payload, total: int64(m.partitions)},
		{request: "POST /v1/" + jobNamespace + "/big?delay=1h", body: bytes.Repeat([]byte("{}\n"), 1000), total: h.Delayed / 1000},
	} {
		fill.conns, fill.patience = 1, drainTimeout
		if failed := fill.run(ctx, r.data, m.partitions, func(time.Time) {}); failed > 0 {
			return fmt.Errorf("%d × %s failed", failed, fill.request)
		}
	}
	asks := traffic{request: h.Asks, fresh: h.Fresh, conns: batchConns, every: time.Second / askRate,
		total: int64(m.segment.Seconds() * askRate), patience: requestTimeout}
	if strings.HasPrefix(h.Asks, "POST") {
		asks.body = payload
	}
	takes := traffic{request: strings.Replace(h.Request, "@", strings.Join(benchNames(h.Queues), ","), 1), body: h.body(), conns: h.Conns,
		burst: int64(h.Conns), total: math.MaxInt64, patience: 10 * time.Minute, subnet: 1}
	if h.PerSecond > 0 {
		takes.every = time.Second / time.Duration(h.PerSecond)
	}
	url := r.data
	if h.Admin {
		url = r.admin
	}
	ask := func() (p99 float64, failed int64) {
		var mu sync.Mutex
		met := bench.NewDurations(time.Minute)
		failed = asks.run(ctx, url, m.partitions, func(due time.Time) {
			mu.Lock()
			defer mu.Unlock()
			met.Add(time.Since(due))
		})
		return milliseconds(met.Quantiles().P99), failed
	}
	alone, _ := ask()
	hostility, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { takes.run(hostility, r.data, m.partitions, func(time.Time) {}) })
	rig.Sleep(ctx, badSettle)
	beside, failed := ask()
	stop()
	running.Wait()
	latency.add(beside, alone, nil)
	failures.add(float64(failed), 0, nil)
	return ctx.Err()
}

// body is what each hostile request has.
func (h hostile) body() []byte {
	b := h.Body
	text := []byte(b.Head + strings.Repeat(strings.Repeat("x", max(0, b.Size-len(b.Line)))+b.Line, b.Times) + b.Tail)
	if !b.Gzip {
		return text
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(text) // a Buffer takes all
	_ = w.Close()
	return packed.Bytes()
}

// traffic is requests, each sent when it is due and its connection was answered.
type traffic struct {
	request  string // # is a partition; empty: silence until the server closes the connection
	body     []byte
	conns    int
	burst    int64         // are due at once,
	every    time.Duration // and then one after this
	total    int64
	patience time.Duration // for an answer, from when it was due
	subnet   byte          // of 127.0, where it comes from
	fresh    bool          // each on a new connection
}

// run sends the requests until ctx ends, which closes the connections. It tells done of each
// when it was due, and returns how many were not answered 200.
func (t traffic) run(ctx context.Context, url string, partitions int, done func(due time.Time)) int64 {
	var next, failed atomic.Int64
	var running sync.WaitGroup
	start := time.Now()
	for i := range t.conns {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, t.subnet, byte(1+i%hostileAddrs))}, Timeout: requestTimeout}
		running.Go(func() {
			var c *jobConn
			for ctx.Err() == nil {
				n := next.Add(1) - 1
				if n >= t.total {
					break
				}
				due := start.Add(time.Duration(max(0, n-t.burst)) * t.every)
				rig.Sleep(ctx, time.Until(due))
				answered := false
				if time.Since(due) < t.patience {
					c, answered = t.send(ctx, c, from, url, fmt.Sprint("bench-", n%int64(partitions)))
				}
				if done(due); !answered {
					failed.Add(1)
				}
			}
			if c != nil {
				_ = c.nc.Close() // nothing is in flight
			}
		})
	}
	running.Wait()
	return failed.Load()
}

// send sends one request, on a new connection where c is nil. It returns the connection if
// another may follow.
func (t traffic) send(ctx context.Context, c *jobConn, from net.Dialer, url, partition string) (_ *jobConn, answered bool) {
	if c == nil {
		nc, err := from.DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			return nil, false
		}
		context.AfterFunc(ctx, func() { _ = nc.Close() })
		c = &jobConn{nc: nc, in: bufio.NewReaderSize(nc, pollBuffer), body: t.body}
	}
	method, target, _ := strings.Cut(t.request, " ")
	if method == "" {
		_, _ = io.Copy(io.Discard, c.nc)
	} else {
		status, _, err := c.send(method, strings.Replace(target, "#", partition, 1), "application/x-ndjson", t.patience)
		if answered = status == 200; err == nil && !t.fresh && !c.resp.ConnectionClose() {
			return c, answered
		}
	}
	_ = c.nc.Close()
	return nil, answered
}
