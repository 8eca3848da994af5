package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
)

const (
	// badRequests of partitionBatch entries wait for the bad sink.
	badRequests = 1_000
	// badSettle is how long the drain gets to know it. What it learns costs something once.
	badSettle = 2 * time.Second
	// deadURL is a webhook at a port on which nobody listens.
	deadURL = "http://127.0.0.1:1/"
)

// isolation measures a namespace alone, and beside one whose webhook does not take
// anything, or only half of it.
func isolation(ctx context.Context, m *measurement) error {
	hooks, err := newBadHooks()
	if err != nil {
		return err
	}
	defer hooks.close()
	alone, err := m.beside(ctx, "")
	if err != nil {
		return err
	}
	cpu, worst := alone.costs.Server+alone.costs.Redis, 0.0
	for i, url := range []string{deadURL, hooks.url + "hang", hooks.url + "throttle", hooks.url + "half"} {
		seg, err := m.beside(ctx, url)
		if err != nil {
			return err
		}
		m.rows[i].add(alone.endToEnd, seg.endToEnd, &seg.costs)
		worst = max(worst, seg.costs.Server+seg.costs.Redis)
	}
	m.rows[4].add(worst, cpu, nil)
	return nil
}

// beside loads a namespace that is drained to null: while entries of another one wait for a
// sink at url. Without one the other namespace has no entries.
func (m *measurement) beside(ctx context.Context, url string) (seg segment, err error) {
	r, err := newSetup(ctx, m.settings, false)
	if err != nil {
		return seg, err
	}
	defer r.close()
	config := filepath.Join(r.dir, "spillway.yaml")
	sink := url
	if url == "" {
		sink = "null:"
	}
	text := fmt.Sprintf("shutdown_timeout: 1s\nnamespaces:\n  default: {sink: \"null:\"}\n  bad: {sink: %q}\n", sink)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return seg, err
	}
	if err := r.serve(ctx, "--config="+config, "--role=all", roomyFlag); err != nil {
		return seg, err
	}
	if url != "" {
		res, err := bench.Run(ctx, bench.Load{
			URL: r.data, Namespace: "bad", Timeout: requestTimeout, PayloadBytes: m.payload, Duration: time.Minute,
			Requests: badRequests, Partitions: m.partitions, Entries: partitionBatch, Connections: batchConns,
		})
		if err != nil {
			return seg, err
		}
		if res.Acked != badRequests*partitionBatch {
			m.fault("%d entries of the other namespace confirmed, rejected %v", res.Acked, res.Rejected)
		}
	}
	rig.Sleep(ctx, badSettle)
	seg, err = m.load(ctx, r, bench.Load{Duration: m.segment, Partitions: m.partitions, Entries: partitionBatch, Connections: batchConns}, true, nil)
	if err != nil || url == "" {
		return seg, err
	}
	other, err := r.store.Overview(ctx, r.store.Namespace("bad"))
	if err == nil && other.Ledger.Buffered == 0 {
		m.fault("nothing waits for the sink %s any more: it was not bad", url)
	}
	return seg, err
}

// badHooks are receivers that fail, each under its path.
type badHooks struct {
	url    string
	server *fasthttp.Server
	done   chan error
	quit   chan struct{}
}

func newBadHooks() (*badHooks, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &badHooks{url: "http://" + ln.Addr().String() + "/", done: make(chan error, 1), quit: make(chan struct{})}
	h.server = &fasthttp.Server{MaxRequestBodySize: 16 << 20, CloseOnShutdown: true, Handler: func(ctx *fasthttp.RequestCtx) {
		switch string(ctx.Path()) {
		case "/hang":
			<-h.quit
		case "/throttle":
			ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
			ctx.Response.Header.Set("Retry-After", "1")
		case "/half":
			if name := string(ctx.Request.Header.Peek("X-Partition")); strings.ContainsAny(name[len(name)-1:], "02468") {
				ctx.SetStatusCode(fasthttp.StatusInternalServerError)
			}
		}
	}}
	go func() { h.done <- h.server.Serve(ln) }()
	return h, nil
}

func (h *badHooks) close() {
	close(h.quit)
	_ = h.server.Shutdown() // the servers that post to it are stopped
	<-h.done
}
