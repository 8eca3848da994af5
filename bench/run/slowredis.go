package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/lua/proc"
)

// redisAnswersIn is how long a call takes in the row of a slow Redis.
const redisAnswersIn = 100 * time.Millisecond

// acceptedNow measures how long a 202 takes where Redis is slow.
func acceptedNow(ctx context.Context, m *measurement) error {
	r, err := newSetup(ctx, m.settings, false)
	if err != nil {
		return err
	}
	defer r.close()
	far, stop, err := proc.Forward("127.0.0.1:0", strings.TrimPrefix(r.redisURL, "redis://"), func(client, server net.Conn) {
		answerLate(client, server, redisAnswersIn)
	})
	if err != nil {
		return err
	}
	defer stop()
	file := filepath.Join(r.dir, "accept.yaml")
	if err := os.WriteFile(file, []byte("namespaces: {default: {ack: none}}\n"), 0o600); err != nil {
		return err
	}
	r.redisURL = "redis://" + far.String()
	if err := r.serve(ctx, "--role=all", "--sink=null:", roomyFlag, "--config="+file); err != nil {
		return err
	}
	defer r.server.Stop() // before its way to Redis ends
	l := bench.Load{URL: r.data, Namespace: "default", Timeout: requestTimeout, PayloadBytes: m.payload, Duration: warmUp,
		Rate: latencyRate, Partitions: m.partitions, Entries: 1, Connections: latencyConns}
	warm, err := bench.Run(ctx, l)
	if err != nil {
		return err
	}
	before, err := r.usage(ctx)
	if err != nil {
		return err
	}
	l.Duration = 2 * m.segment
	res, err := bench.Run(ctx, l)
	if err != nil {
		return err
	}
	if err := r.storedWhatWaits(ctx); err != nil {
		return err
	}
	if _, err := r.drained(ctx); err != nil {
		return err
	}
	now, err := r.usage(ctx)
	if err != nil {
		return err
	}
	c := now.since(before, res.Acked)
	if n := warm.Errors() + res.Errors(); n > 0 {
		m.fault("%d entries were not answered 202: %v", n, res.Rejected)
	}
	if c.Residual, err = m.audit(ctx, r, warm.Acked+res.Acked); err == nil {
		m.rows[0].add(milliseconds(res.Latency.P99), 0, &c)
	}
	if err != nil {
		return err
	}
	noop, err := m.noop(ctx, l, func(_, url string) (float64, error) {
		l.URL = url
		res, err := bench.Run(ctx, l)
		return milliseconds(res.Latency.P99), err
	})
	if err == nil {
		m.rows[1].add(noop, 0, nil)
	}
	return err
}

// answerLate passes on what two connections write, and each answer late by as much.
func answerLate(client, server net.Conn, late time.Duration) {
	go func() {
		_, _ = io.Copy(server, client) // until either end hangs up
		_ = server.Close()
	}()
	type chunk struct {
		due  time.Time
		data []byte
	}
	chunks := make(chan chunk, 1024)
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, 64<<10)
			n, err := server.Read(buf)
			if n > 0 {
				chunks <- chunk{time.Now().Add(late), buf[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		if _, err := client.Write(c.data); err != nil {
			break
		}
	}
	_, _ = client.Close(), server.Close()
	for range chunks { // their reader ends
	}
}
