package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/bench"
)

const (
	latencyRate  = 10_000
	shortLinger  = 20 * time.Millisecond
	victimRate   = 100
	latencyConns = 256
)

// confirmLatency measures row f.
func confirmLatency(ctx context.Context, m *measurement) error {
	r, err := m.fresh(ctx, "--role=all", "--sink=null:")
	if err != nil {
		return err
	}
	defer r.close()
	seg, err := m.load(ctx, r, bench.Load{
		Rate: latencyRate, Duration: 2 * m.segment, Partitions: m.partitions, Entries: 1, Connections: latencyConns,
	}, true, nil)
	if err != nil {
		return err
	}
	m.rows[0].add(milliseconds(seg.load.Latency.P99), 0, &seg.costs)
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// receiver is the sink that lags are measured at: a webhook on loopback, in the
// loader's process. Timestamps are Redis's, whose clock is this machine's.
type receiver struct {
	url    string
	linger time.Duration
	server *fasthttp.Server
	done   chan error

	mu   sync.Mutex
	lags map[string]*bench.Durations // by partition; "" is all
}

func newReceiver(linger time.Duration) (*receiver, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &receiver{url: "http://" + ln.Addr().String(), linger: linger, done: make(chan error, 1)}
	v.forget()
	v.server = &fasthttp.Server{Handler: v.take, MaxRequestBodySize: 16 << 20, CloseOnShutdown: true}
	go func() { v.done <- v.server.Serve(ln) }()
	return v, nil
}

func (v *receiver) close() {
	_ = v.server.Shutdown() // the server that posts to it is stopped first
	<-v.done
}

// forget begins anew, after a warm-up.
func (v *receiver) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lags = map[string]*bench.Durations{}
}

// take records the lag of a batch: of its first line, which is its oldest entry.
func (v *receiver) take(ctx *fasthttp.RequestCtx) {
	occurred := time.UnixMilli(gjson.GetBytes(ctx.PostBody(), "ts").Int())
	lag := time.Since(occurred) - v.linger
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, partition := range []string{"", string(ctx.Request.Header.Peek("X-Partition"))} {
		d := v.lags[partition]
		if d == nil {
			d = bench.NewDurations(time.Minute)
			v.lags[partition] = d
		}
		d.Add(lag)
	}
}

// p99 of a partition's batches, of all when it is "", in ms.
func (v *receiver) p99(partition string) (float64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d := v.lags[partition]
	if d == nil {
		return 0, fmt.Errorf("no batch of partition %q arrived", partition)
	}
	return milliseconds(d.Quantiles().P99), nil
}

// sinkLag measures row g.
func sinkLag(ctx context.Context, m *measurement) error {
	v, err := newReceiver(linger)
	if err != nil {
		return err
	}
	defer v.close()
	r, err := m.fresh(ctx, "--role=all", "--sink="+v.url, "--linger="+linger.String())
	if err != nil {
		return err
	}
	defer r.close()
	l := bench.Load{Rate: latencyRate, Duration: 2 * m.segment, Partitions: m.partitions, Entries: 1, Connections: latencyConns}
	seg, err := m.load(ctx, r, l, true, v.forget)
	if err != nil {
		return err
	}
	p99, err := v.p99("")
	if err == nil {
		m.rows[0].add(p99, 0, &seg.costs)
	}
	return err
}

// noisyNeighbour measures row j.
func noisyNeighbour(ctx context.Context, m *measurement) error {
	alone, err := m.victim(ctx, false)
	if err != nil {
		return err
	}
	beside, err := m.victim(ctx, true)
	if err == nil {
		m.rows[0].add(beside, alone, nil)
	}
	return err
}

// victim is the p99 lag of one partition at victimRate, beside another at a
// hundred times that if noisy.
func (m *measurement) victim(ctx context.Context, noisy bool) (p99 float64, err error) {
	v, err := newReceiver(shortLinger)
	if err != nil {
		return 0, err
	}
	defer v.close()
	r, err := m.fresh(ctx, "--role=all", "--sink="+v.url, "--linger="+shortLinger.String())
	if err != nil {
		return 0, err
	}
	defer r.close()
	load := func(prefix string, rate float64, conns int) (bench.Result, error) {
		return bench.Run(ctx, bench.Load{
			URL: r.data, Namespace: "default", Timeout: requestTimeout, PayloadBytes: m.payload, Entries: 1,
			Partitions: 1, Prefix: prefix, Rate: rate, Duration: 2 * m.segment, Connections: conns,
		})
	}
	var other bench.Result
	var otherErr error
	var neighbour sync.WaitGroup
	if noisy {
		neighbour.Go(func() { other, otherErr = load("noisy-", 100*victimRate, latencyConns) })
	}
	res, err := load("victim-", victimRate, 4)
	neighbour.Wait()
	for _, err := range []error{err, otherErr} {
		if err != nil {
			return 0, err
		}
	}
	if n := res.Errors() + other.Errors(); n > 0 {
		m.fault("%d events not confirmed", n)
	}
	if _, err := r.drained(ctx); err != nil {
		return 0, err
	}
	// The neighbour may overflow its own partition; that is no fault.
	a, err := bench.ReadAccount(ctx, r.admin, "default", true)
	if err != nil {
		return 0, err
	}
	if *a.Residual != 0 || a.Ledger.Accepted != res.Acked+other.Acked || a.Ledger.Lost != 0 {
		m.fault("residual %d; confirmed %d; ledger %+v", *a.Residual, res.Acked+other.Acked, a.Ledger)
	}
	return v.p99("victim-0")
}
