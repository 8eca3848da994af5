package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/lua/proc"
)

// sinkBacklog is how many entries are drained into each target.
const sinkBacklog = 6_000 * partitionBatch

// A sinkTarget gets a backlog. received is how many entries arrived, by its own count.
type sinkTarget struct {
	url      string
	received func(ctx context.Context) (int64, error)
	close    func()
}

// sinks measures how fast a backlog goes into targets that need only Go and Redis, by
// what it takes to null:.
func sinks(ctx context.Context, m *measurement) error {
	null, _, err := m.drainInto(ctx, nil)
	if err != nil {
		return err
	}
	for i, open := range []func(context.Context, settings) (*sinkTarget, error){fileTarget, webhookTarget, streamTarget} {
		rate, c, err := m.drainInto(ctx, open)
		if err != nil {
			return err
		}
		m.rows[i].add(rate, null, &c)
	}
	return nil
}

// drainInto is the entries a second that reach a target; without one null:.
func (m *measurement) drainInto(ctx context.Context, open func(context.Context, settings) (*sinkTarget, error)) (rate float64, c costs, err error) {
	if open == nil {
		return m.drainSide(ctx, sinkBacklog, "--sink=null:")
	}
	target, err := open(ctx, m.settings)
	if err != nil {
		return 0, c, err
	}
	defer target.close()
	rate, c, err = m.drainSide(ctx, sinkBacklog, "--sink="+target.url)
	if err != nil {
		return 0, c, err
	}
	// Each worker of fill rounds its share up to whole pipelines, so there may be more.
	got, err := target.received(ctx)
	if err == nil && got < sinkBacklog {
		m.fault("%s: %d of %d entries arrived", target.url, got, int64(sinkBacklog))
	}
	return rate, c, err
}

func fileTarget(context.Context, settings) (*sinkTarget, error) {
	dir, err := os.MkdirTemp("", "spillway-bench-")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "out.ndjson")
	return &sinkTarget{
		url:      "file://" + path,
		received: func(context.Context) (int64, error) { return countLines(path) },
		close:    func() { _ = os.RemoveAll(dir) }, // a temp folder
	}, nil
}

func countLines(path string) (n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // read-only
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		if _, err := r.ReadSlice('\n'); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, err
		}
		n++
	}
}

func webhookTarget(ctx context.Context, _ settings) (*sinkTarget, error) {
	dir, err := os.MkdirTemp("", "spillway-bench-")
	if err != nil {
		return nil, err
	}
	addr, err := proc.FreeAddr()
	if err != nil {
		return nil, err
	}
	received := func(ctx context.Context) (int64, error) {
		text, err := bench.Get(ctx, "http://"+addr+"/")
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(string(text), 10, 64)
	}
	p, err := startSide(ctx, dir, "receive", func(ctx context.Context) error { _, err := received(ctx); return err }, "-listen", addr)
	if err != nil {
		return nil, err
	}
	return &sinkTarget{
		url:      "http://" + addr + "/",
		received: received,
		close:    func() { p.Stop(); _ = os.RemoveAll(dir) }, // a temp folder
	}, nil
}

// receive is the side of that name: it takes what is posted, and answers how many lines
// that were to anyone who gets.
func receive(ctx context.Context, args []string, _ io.Writer) error {
	flags := flag.NewFlagSet("receive", flag.ContinueOnError)
	listen := flags.String("listen", "", "address")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var lines atomic.Int64
	server := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			if ctx.IsGet() {
				ctx.SetBodyString(strconv.FormatInt(lines.Load(), 10))
				return
			}
			lines.Add(int64(bytes.Count(ctx.PostBody(), []byte{'\n'})))
		},
		MaxRequestBodySize: 16 << 20, CloseOnShutdown: true,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Shutdown() }) // the process ends with it
	defer stop()
	return server.ListenAndServe(*listen)
}

// streamTarget is a redis-server of its own, which bounds the stream, so that its
// memory is not what is measured.
func streamTarget(ctx context.Context, s settings) (*sinkTarget, error) {
	r, err := newSetup(ctx, s, false)
	if err != nil {
		return nil, err
	}
	return &sinkTarget{
		url: "redis-stream://" + r.client.Options().Addr + "/0?stream=out&max_len=100000",
		received: func(ctx context.Context) (int64, error) {
			info, err := r.client.XInfoStream(ctx, "out").Result()
			if err != nil {
				return 0, fmt.Errorf("count the stream: %w", err)
			}
			return info.EntriesAdded, nil
		},
		close: r.close,
	}, nil
}
