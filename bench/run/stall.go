package main

import (
	"context"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/bench"
)

const (
	stallLength   = 5 * time.Second
	inflightBytes = 16 << 20
	// perConn is what ingest.Config says a connection may hold beside the bytes in flight.
	perConn = 64 << 10
)

// stalled measures row k.
func stalled(ctx context.Context, m *measurement) error {
	r, err := m.fresh(ctx, "--role=all", "--sink=null:", roomyFlag,
		"--max-inflight-bytes=16MiB", "--max-body=64KiB", "--max-decompressed=1MiB")
	if err != nil {
		return err
	}
	defer r.close()
	l := bench.Load{
		URL: r.data, Namespace: "default", Timeout: 3 * requestTimeout, PayloadBytes: m.payload,
		Partitions: m.partitions, Entries: partitionBatch, Connections: manyConns, Duration: m.segment,
	}
	warm, err := bench.Run(ctx, l)
	if err != nil {
		return err
	}
	before, err := r.server.RSSPeak()
	if err != nil {
		return err
	}
	if err := syscall.Kill(r.redis.PID, syscall.SIGSTOP); err != nil {
		return err
	}
	l.Duration = stallLength
	during, err := bench.Run(ctx, l)
	if cont := syscall.Kill(r.redis.PID, syscall.SIGCONT); err == nil {
		err = cont
	}
	if err != nil {
		return err
	}
	after, err := r.server.RSSPeak()
	if err != nil {
		return err
	}
	l.Duration = warmUp
	l.Connections = batchConns
	again, err := m.recovers(ctx, r, l)
	if err != nil {
		return err
	}
	if _, err := r.drained(ctx); err != nil {
		return err
	}
	a, err := bench.ReadAccount(ctx, r.admin, "default", true)
	if err != nil {
		return err
	}
	acked := warm.Acked + during.Acked + again.Acked
	unknown := warm.Unknown + during.Unknown + again.Unknown
	if g := a.Ledger; *a.Residual != 0 || g.Lost != 0 || g.Accepted < acked || g.Accepted > acked+unknown {
		m.fault("residual %d; confirmed %d and %d unknown; ledger %+v", *a.Residual, acked, unknown, g)
	}
	if during.Rejected["overloaded"] == 0 {
		m.fault("no request was answered 503 overloaded: %v", during.Rejected)
	}
	bound := float64(2*inflightBytes + manyConns*perConn)
	m.rows[0].add(float64(after-before), bound, nil)
	return nil
}

// recovers loads until the server confirms again, which it must.
func (m *measurement) recovers(ctx context.Context, r *setup, l bench.Load) (sum bench.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for sum.Acked == 0 {
		res, err := bench.Run(ctx, l)
		if err != nil {
			return sum, err
		}
		sum.Acked, sum.Unknown = sum.Acked+res.Acked, sum.Unknown+res.Unknown
		if err := ctx.Err(); err != nil {
			return sum, err
		}
	}
	return sum, nil
}
