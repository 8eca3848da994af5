package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/bench"
)

// hostile is a tenant, or somebody without a token, who takes what all share, and what
// another tenant asks meanwhile. Of that, # is a number below m.partitions.
type hostile struct {
	does        string // in the row's measure
	other, asks string // the other tenant's requests, in words and as sent
	goal        float64
	flags       []string // of the server
	delayed     int      // jobs that wait in the queue "big"
	conns       int
	// every is the time between two requests of all conns, after one of each at once; 0: each
	// sends as soon as it was answered.
	every   time.Duration
	request string        // empty: silence until the server closes the connection
	body    func() []byte // nil: none
	admin   bool          // the other tenant's requests go to the admin port
	fresh   bool          // each on a new connection
}

const (
	askRate      = 500 // a second
	hostileAddrs = 16  // of loopback, which hostile connections come from
	hostileFile  = "pools: {default: {volatile: true}}\n" +
		"namespaces: {default: {}, bad: {}, mine: {kind: queue}, " + jobNamespace + ": {kind: queue}}\n"

	sizeRequest  = "GET /api/" + jobNamespace + "/big/size"
	readsBuffer  = "GET /v1/bad/bench-0"
	asksProduce  = "POST /v1/default/bench-#"
	asksQueue    = "GET /v1/mine/bench-#"
	eventsOfBomb = 1_398_000 // in 4 MiB
)

var hostiles = []hostile{
	{does: "1,930 idle claims of 64 queues", other: "produces", asks: asksProduce, goal: 1.5,
		conns: 1_930, request: "POST /v1/" + jobNamespace + "/" + queueList(64) + "/claim?wait=10m"},
	{does: "507 idle claims of 256 queues by lmstfy's API", other: "produces", asks: asksProduce, goal: 1.5, flags: []string{"--lmstfy"},
		conns: 507, request: "GET /api/" + jobNamespace + "/" + queueList(256) + "?timeout=600"},
	{does: "4 MiB of events in gzip, without a key, on 24 connections, 25 a second", other: "produces", asks: asksProduce, goal: 1.5,
		conns: 24, every: time.Second / 25, request: "POST /segment/v1/batch", body: bomb},
	{does: "polls of lmstfy's /size of 40,000 delayed jobs, without a token, on 64 connections", other: "produces", asks: asksProduce,
		goal: 1.5, flags: []string{"--lmstfy"}, delayed: 40_000, conns: 64, request: sizeRequest},
	{does: "the same", other: "reads of a queue", asks: asksQueue, goal: 1.5, flags: []string{"--lmstfy"},
		delayed: 40_000, conns: 64, request: sizeRequest},
	{does: "reads of a queue of 40,000 delayed jobs on 40 connections", other: "reads of a queue", asks: asksQueue, goal: 1.5,
		delayed: 40_000, conns: 40, request: "GET /v1/" + jobNamespace + "/big"},
	{does: "reads of a buffer on 40 connections", other: "reads of a buffer",
		asks: "GET /v1/default/bench-#", goal: 1.5, conns: 40, request: readsBuffer},
	{does: "the same", other: "ledgers on the admin port", asks: "GET /api/v1/namespaces/default", goal: 1.5, conns: 40, request: readsBuffer, admin: true},
	{does: "bulks of 16 MiB on 8 connections", other: "produces", asks: asksProduce, goal: 20,
		flags: []string{"--max-body=16MiB", "--max-decompressed=16MiB", "--max-inflight-bytes=128MiB", "--capacity=1000"}, conns: 8, request: "POST /v1/bad/big", body: lines(511, 32<<10)},
	{does: "entries of 1 MiB on 8 connections", other: "produces", asks: asksProduce, goal: 5,
		flags: []string{"--max-body=2MiB", "--max-entry=1MiB", "--capacity=100"}, conns: 8, request: "POST /v1/bad/big", body: lines(1, 1<<20)},
	{does: "4,096 silent connections, 410 new ones a second", other: "produces on new connections", asks: asksProduce, goal: 20,
		conns: 4_096, every: time.Second / 410, fresh: true},
}

// hostileRows are two for each of them.
func hostileRows() (rows []*row) {
	for _, h := range hostiles {
		rows = append(rows, &row{Key: "isolation", Measure: "p99 of " + h.other + " beside " + h.does + " ÷ alone", Goal: h.goal, AtMost: true},
			&row{Key: "isolation", Measure: "of these, not answered 200", AtMost: true})
	}
	rows[0].Note = fmt.Sprintf("ms; one server, role ingest; the tenant alone and then beside the other, "+
		"%d requests/s on %d connections, in time from when each was due", askRate, batchConns)
	return rows
}

// queueList is the names of n queues, as a claim has them.
func queueList(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("idle-", i)
	}
	return strings.Join(names, ",")
}

// lines are n entries of size bytes, line ends included.
func lines(n, size int) func() []byte {
	return sync.OnceValue(func() []byte { return bytes.Repeat(append(bytes.Repeat([]byte("x"), size-1), '\n'), n) })
}

// bomb is a batch for Segment's route that names no key.
var bomb = sync.OnceValue(func() []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(`{"batch":[` + strings.Repeat("{},", eventsOfBomb) + `{}]}`)) // a Buffer takes all
	_ = w.Close()
	return packed.Bytes()
})

// hostileTenants measures a tenant alone, and beside each of the hostile ones.
func hostileTenants(ctx context.Context, m *measurement) error {
	for i, h := range hostiles {
		if err := m.besideHostile(ctx, h, m.rows[2*i], m.rows[2*i+1]); err != nil {
			return fmt.Errorf("%s beside %s: %w", h.other, h.does, err)
		}
	}
	return nil
}

func (m *measurement) besideHostile(ctx context.Context, h hostile, latency, failures *row) error {
	r, err := newRig(ctx, m.settings, false)
	if err != nil {
		return err
	}
	defer r.close()
	file := filepath.Join(r.dir, "hostile.yaml")
	if err := os.WriteFile(file, []byte(hostileFile), 0o600); err != nil {
		return err
	}
	if err := r.serve(ctx, append([]string{"--config=" + file, "--role=ingest"}, h.flags...)...); err != nil {
		return err
	}
	if err := h.fill(ctx, r.data, m.partitions); err != nil {
		return err
	}
	if _, _, err := m.ask(ctx, r, h, warmUp); err != nil {
		return err
	}
	alone, failed, err := m.ask(ctx, r, h, m.segment)
	if err != nil {
		return err
	}
	if failed > 0 {
		m.fault("%d %s failed beside nothing", failed, h.other)
	}
	hostility, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	h.attack(hostility, &running, r.data)
	pause(ctx, badSettle)
	beside, failed, err := m.ask(ctx, r, h, m.segment)
	stop()
	running.Wait()
	if err != nil {
		return err
	}
	latency.add(milliseconds(beside), milliseconds(alone), nil)
	failures.add(float64(failed), 0, nil)
	account, err := bench.ReadAccount(ctx, r.admin, "default", true)
	if err == nil && *account.Residual != 0 {
		m.fault("beside %s: residual %d", h.does, *account.Residual)
	}
	return err
}

// fill stores what is read: an entry in each partition, a job in each queue, and delayed ones.
func (h hostile) fill(ctx context.Context, url string, partitions int) error {
	c, err := dialJobs(ctx, url, 4096)
	if err != nil {
		return err
	}
	defer func() { _ = c.nc.Close() }() // nothing is in flight
	c.body = bytes.Repeat([]byte("{}\n"), 1000)
	for range h.delayed / 1000 {
		if _, err := c.must(200, "POST", "/v1/"+jobNamespace+"/big?delay=1h", "application/x-ndjson"); err != nil {
			return err
		}
	}
	c.body = c.body[:2]
	for i := range partitions {
		for _, namespace := range []string{"default", "bad", "mine"} {
			if _, err := c.must(200, "POST", fmt.Sprintf("/v1/%s/bench-%d", namespace, i), "application/json"); err != nil {
				return err
			}
		}
	}
	return nil
}

// attack starts the hostile connections. They last until ctx ends, whatever they are answered.
func (h hostile) attack(ctx context.Context, running *sync.WaitGroup, url string) {
	var turns atomic.Int64
	start := time.Now()
	turn := func() { pause(ctx, time.Until(start.Add(time.Duration(turns.Add(1)-int64(h.conns))*h.every))) }
	for i := range h.conns {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%hostileAddrs))}}
		running.Go(func() {
			for ctx.Err() == nil {
				h.connection(ctx, from, url, turn)
			}
		})
	}
}

// connection is one that lasts until ctx ends or the server closes it.
func (h hostile) connection(ctx context.Context, from net.Dialer, url string, turn func()) {
	if h.request == "" {
		turn()
	}
	nc, err := from.DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	defer func() { _ = nc.Close() }() // nobody counts what is in flight
	if h.request == "" {
		_, _ = io.Copy(io.Discard, nc)
		return
	}
	c := &jobConn{nc: nc, in: bufio.NewReaderSize(nc, pollBuffer)}
	if h.body != nil {
		c.body = h.body()
	}
	method, target, _ := strings.Cut(h.request, " ")
	for ctx.Err() == nil {
		turn()
		if _, _, err := c.send(method, target, "application/x-ndjson", 10*time.Minute); err != nil || c.resp.ConnectionClose() {
			return
		}
	}
}

// ask sends the other tenant's requests for d. It returns the p99 of their latency, from
// the moment each was due, and how many were not answered 200.
func (m *measurement) ask(ctx context.Context, r *rig, h hostile, d time.Duration) (time.Duration, int64, error) {
	url := r.data
	if h.admin {
		url = r.admin
	}
	var mu sync.Mutex
	met, failed := bench.NewDurations(time.Minute), int64(0)
	var next atomic.Int64
	var askers sync.WaitGroup
	start := time.Now()
	for range batchConns {
		askers.Go(func() {
			var c *jobConn
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				due := start.Add(time.Duration(i) * time.Second / askRate)
				if due.Sub(start) >= d {
					break
				}
				pause(ctx, time.Until(due))
				err := errors.New("overdue")
				if time.Since(due) < requestTimeout {
					c, err = m.askOnce(ctx, c, url, h, i)
				}
				mu.Lock()
				if met.Add(time.Since(due)); err != nil {
					failed++
				}
				mu.Unlock()
			}
			if c != nil {
				_ = c.nc.Close() // nothing is in flight
			}
		})
	}
	askers.Wait()
	return met.Quantiles().P99, failed, ctx.Err()
}

// askOnce sends request i on c, or on a new connection where c is nil or each has its own.
// It returns the connection if another request may follow.
func (m *measurement) askOnce(ctx context.Context, c *jobConn, url string, h hostile, i int64) (_ *jobConn, err error) {
	if c == nil {
		if c, err = dialJobs(ctx, url, 4096); err != nil {
			return nil, err
		}
	}
	method, target, _ := strings.Cut(h.asks, " ")
	if method == "POST" {
		c.body = bench.AppendPayload(c.body[:0], i, bench.Padding(m.payload))
	}
	_, err = c.must(200, method, strings.Replace(target, "#", fmt.Sprint(i%int64(m.partitions)), 1), "application/json")
	if err != nil || h.fresh || c.resp.ConnectionClose() {
		_ = c.nc.Close()
		c = nil
	}
	return c, err
}
