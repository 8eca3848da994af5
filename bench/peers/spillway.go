package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
)

// spillway is the real binary, ingest and drain in one process, reached over
// HTTP, draining to its null sink. Whatever it could be told to be faster here
// is left at its default.
type spillway struct {
	*store
	server *proc.Process
	client *fasthttp.HostClient
	data   string // base URL
	admin  string
	paths  []string // of each partition
}

const (
	requestTimeout = 10 * time.Second
	// peek is how often its ledger is read for what it has delivered.
	peek = 50 * time.Millisecond
)

func openSpillway(ctx context.Context, c conditions) (_ side, err error) {
	st, err := openStore(ctx, c, 1)
	if err != nil {
		return nil, err
	}
	s := &spillway{store: st}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	addrs, err := proc.FreeAddrs(2)
	if err != nil {
		return nil, err
	}
	bin, err := filepath.Abs(c.spillway)
	if err != nil {
		return nil, err
	}
	s.data, s.admin = "http://"+addrs[0], "http://"+addrs[1]
	s.server, err = rig.Start(ctx, st.dir, "spillway", rig.Answers(s.data+"/readyz"), bin, "serve", "--redis", "redis://"+st.addr,
		"--listen", addrs[0], "--admin-listen", addrs[1], "--sink", "null:", "--log-level", "warn",
		"--capacity", strconv.Itoa(c.capacity), "--max-age", maxAge.String(), "--linger", linger.String(), "--batch", strconv.Itoa(batch))
	if err != nil {
		return nil, err
	}
	s.client = &fasthttp.HostClient{
		Addr: addrs[0], MaxConns: c.senders, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
		MaxIdemponentCallAttempts: 1, // a repeated request would store an event twice
	}
	for _, name := range partitionNames(c.partitions) {
		s.paths = append(s.paths, s.data+"/v1/default/"+name)
	}
	return s, nil
}

// send posts one event as it is, or a lot, all of one partition, as NDJSON.
func (s *spillway) send(_ context.Context, events []event) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.SetRequestURI(s.paths[events[0].partition])
	if len(events) == 1 {
		req.Header.SetContentType("application/json")
		req.SetBodyRaw(events[0].payload)
	} else {
		req.Header.SetContentType("application/x-ndjson")
		for _, e := range events {
			req.AppendBody(e.payload)
			req.AppendBodyString("\n")
		}
	}
	if err := s.client.Do(req, resp); err != nil {
		return err
	}
	if n := accepted(resp.Body()); resp.StatusCode() != fasthttp.StatusOK || n != len(events) {
		return fmt.Errorf("%d of %d events accepted: %d %.200s", n, len(events), resp.StatusCode(), resp.Body())
	}
	return nil
}

// accepted reads the count that an answer begins with.
func accepted(answer []byte) int {
	rest, _ := bytes.CutPrefix(answer, []byte(`{"accepted":`))
	digits, _, _ := bytes.Cut(rest, []byte(","))
	n, err := strconv.Atoi(string(digits))
	if err != nil {
		return 0
	}
	return n
}

// deliver watches the ledger: the sink is in the other process and keeps
// nothing. Unlike the others' tally it cannot see repetitions.
func (s *spillway) deliver(ctx context.Context, t *tally) error {
	for ctx.Err() == nil {
		delivered, err := s.delivered(ctx)
		if err != nil {
			return ended(ctx, "read ledger", err)
		}
		t.report(delivered)
		rig.Sleep(ctx, peek)
	}
	batches, err := s.batches(context.WithoutCancel(ctx))
	t.batches.Store(batches)
	return err
}

func (s *spillway) delivered(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	a, err := bench.ReadAccount(ctx, s.admin, "default", false)
	return a.Ledger.Delivered, err
}

// batches is how many were handed to the sink.
func (s *spillway) batches(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	metrics, err := bench.Get(ctx, s.admin+"/metrics")
	return int64(bench.Metric(metrics, `spillway_drain_batches_total{namespace="default"}`)), err
}

func (s *spillway) servers() []*proc.Process { return append(s.store.servers(), s.server) }

// close stops the server before its Redis, as an operator would.
func (s *spillway) close() {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	if s.server != nil {
		s.server.Stop()
	}
	s.store.close()
}
