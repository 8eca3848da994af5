package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
)

// oneEvent measures row e.
func oneEvent(ctx context.Context, m *measurement) error {
	seg, err := m.segmentOf(ctx, oneEventLoad(m), true, "--role=all", "--sink=null:", roomyFlag)
	if err == nil {
		m.rows[0].add(seg.endToEnd, 0, &seg.costs)
	}
	return err
}

// noop is the requests a second that a handler takes which does nothing, as
// measure finds them once the server is warm.
func (m *measurement) noop(ctx context.Context, warm bench.Load, measure func(dir, url string) (float64, error)) (float64, error) {
	dir, err := os.MkdirTemp("", "spillway-bench-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	addr, err := proc.FreeAddr()
	if err != nil {
		return 0, err
	}
	url := "http://" + addr
	warm.URL, warm.Namespace, warm.Timeout, warm.PayloadBytes, warm.Duration = url, "default", requestTimeout, m.payload, warmUp
	p, err := startSide(ctx, dir, "noop", func(ctx context.Context) error {
		_, err := bench.Run(ctx, warm)
		return err
	}, "-listen", addr)
	if err != nil {
		return 0, err
	}
	defer p.Stop()
	return measure(dir, url)
}

// batches measures rows b, c and d. Each segment has a Redis of its own, for
// the memory that one filled would be the next one's advantage.
func batches(ctx context.Context, m *measurement) error {
	l := bench.Load{Duration: m.segment, Partitions: m.partitions, Entries: partitionBatch, Connections: batchConns}
	in, err := m.segmentOf(ctx, l, false, "--role=ingest", roomyFlag)
	if err != nil {
		return err
	}
	rawIn, rawOut, err := m.rawSides(ctx, in.load.Acked)
	if err != nil {
		return err
	}
	out, outCosts, err := m.drainSide(ctx, in.load.Acked, "--sink=null:")
	if err != nil {
		return err
	}
	both, err := m.segmentOf(ctx, l, true, "--role=all", "--sink=null:", roomyFlag)
	if err != nil {
		return err
	}
	bound := 1 / (1/rawIn + 1/rawOut)
	m.rows[0].add(in.load.Rate(), rawIn, &in.costs)
	m.rows[1].add(out, rawOut, &outCosts)
	m.rows[2].add(both.endToEnd, bound, &both.costs)
	m.rows[3].add(both.endToEnd, 0, nil)
	return nil
}

func (m *measurement) segmentOf(ctx context.Context, l bench.Load, drains bool, flags ...string) (segment, error) {
	r, err := m.fresh(ctx, flags...)
	if err != nil {
		return segment{}, err
	}
	defer r.close()
	return m.load(ctx, r, l, drains, nil)
}

// rawSides are the entries a second of the raw scripts; the drain's backlog is
// of about entries.
func (m *measurement) rawSides(ctx context.Context, entries int64) (in, out float64, err error) {
	r, err := newSetup(ctx, m.settings, false)
	if err != nil {
		return 0, 0, err
	}
	defer r.close()
	l := rawLoad{Partitions: m.partitions, Payload: m.payload, Duration: warmUp}
	if _, err := r.raw(ctx, "produce", l); err != nil { // Redis is warm then, as ours is
		return 0, 0, err
	}
	l.Duration = m.segment
	produced, err := r.raw(ctx, "produce", l)
	if err != nil {
		return 0, 0, err
	}
	r.close()

	if r, err = newSetup(ctx, m.settings, false); err != nil {
		return 0, 0, err
	}
	defer r.close()
	if err := m.fill(ctx, r, entries); err != nil {
		return 0, 0, err
	}
	drained, err := r.raw(ctx, "drain", l)
	if err != nil {
		return 0, 0, err
	}
	a, err := r.ledger(ctx)
	if err == nil && (a.Buffered != 0 || a.Delivered != drained.Entries) {
		err = fmt.Errorf("raw drain: delivered %d, ledger %+v", drained.Entries, a)
	}
	return produced.rate(), drained.rate(), err
}

// fill puts a backlog of about entries into r.
func (m *measurement) fill(ctx context.Context, r *setup, entries int64) error {
	_, err := r.raw(ctx, "produce", rawLoad{Partitions: m.partitions, Payload: m.payload, Entries: entries})
	return err
}

// drainSide starts a drainer on a backlog and times it from the first sight of
// something delivered to an empty buffer, so that its start-up is not in it.
func (m *measurement) drainSide(ctx context.Context, entries int64, flags ...string) (rate float64, c costs, err error) {
	r, err := newSetup(ctx, m.settings, false)
	if err != nil {
		return 0, c, err
	}
	defer r.close()
	if err := m.fill(ctx, r, entries); err != nil {
		return 0, c, err
	}
	filled, err := r.ledger(ctx)
	if err != nil {
		return 0, c, err
	}
	redisBefore, err := r.redis.CPU()
	if err != nil {
		return 0, c, err
	}
	commands, scripts, err := r.redisCalls(ctx)
	if err != nil {
		return 0, c, err
	}
	ready := make(chan error, 1)
	go func() { ready <- r.serve(ctx, append(flags, "--role=drain", roomyFlag)...) }()
	begun, first := filled, time.Time{}
	seen, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for err == nil && begun.Delivered == 0 {
		rig.Sleep(seen, time.Millisecond)
		begun, err = r.ledger(seen)
		first = time.Now()
	}
	// Before an error ends this, too: close must find the server.
	if err := errors.Join(<-ready, err); err != nil {
		return 0, c, fmt.Errorf("drain: %w", err)
	}
	empty, err := r.drained(ctx)
	if err != nil {
		return 0, c, err
	}
	used, err := r.usage(ctx)
	if err != nil {
		return 0, c, err
	}
	// All of the new server's time and batches are for these entries.
	c = used.since(usage{redisCPU: redisBefore, loaderCPU: used.loaderCPU, commands: commands, scripts: scripts}, filled.Accepted)
	c.Residual, err = m.audit(ctx, r, filled.Accepted)
	return float64(filled.Accepted-begun.Delivered) / empty.Sub(first).Seconds(), c, err
}
