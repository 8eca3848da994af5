package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench"
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
	far, err := distant(strings.TrimPrefix(r.redisURL, "redis://"), redisAnswersIn)
	if err != nil {
		return err
	}
	defer func() { _ = far.Close() }()
	file := filepath.Join(r.dir, "accept.yaml")
	if err := os.WriteFile(file, []byte("namespaces: {default: {ack: none}}\n"), 0o600); err != nil {
		return err
	}
	r.redisURL = "redis://" + far.Addr().String()
	if err := r.serve(ctx, "--role=all", "--sink=null:", roomyFlag, "--config="+file); err != nil {
		return err
	}
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
	l.Namespace = "default"
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

// distant is a TCP proxy of target whose answers come late. It ends as it is closed, its
// connections as one of their ends hangs up.
func distant(target string, late time.Duration) (net.Listener, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy of %s: %w", target, err)
	}
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			go carry(server, client, 0)
			go carry(client, server, late)
		}
	}()
	return ln, nil
}

// carry copies one direction, each read late by as much, until either end hangs up.
func carry(to, from net.Conn, late time.Duration) {
	type chunk struct {
		due  time.Time
		data []byte
	}
	chunks := make(chan chunk, 1024)
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, 64<<10)
			n, err := from.Read(buf)
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
		if _, err := to.Write(c.data); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range chunks { // the reader ends as its connection is closed
	}
}
