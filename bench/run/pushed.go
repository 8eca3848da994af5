package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/bench/rig"
)

// pushGroups are the rows of queues that are pushed.
var pushGroups = []group{
	{"a pushed queue that hangs", func() []*row {
		return []*row{
			{Key: "push", Measure: "jobs/s pushed to a webhook beside a queue whose own webhook never answers ÷ alone", Goal: 0.9,
				Note: "one process, 8 writes a queue of one job each; 38,400 jobs in 100 queues from the first publish until the receiver has them; " +
					"1,000 jobs of the other queue wait for 2 s before"},
			{Key: "push", Measure: "the same, both queues have one webhook, which never answers the one", Goal: 0.9},
		}
	}, pushedBeside},
}

const (
	pushedCalls = 300 // of 128 jobs
	pushedJobs  = pushedCalls * bulk
	stuckQueue  = "stuck"
	stuckJobs   = 1000
)

// pushedBeside measures queues alone, and beside one that hangs.
func pushedBeside(ctx context.Context, m *measurement) error {
	alone, err := m.pushed(ctx, "")
	if err != nil {
		return err
	}
	for i, sink := range []string{"hang", "in"} {
		beside, err := m.pushed(ctx, sink)
		if err != nil {
			return err
		}
		m.rows[i].add(beside, alone, nil)
	}
	return nil
}

// pushed is how many jobs a second are pushed, beside one further queue, whose sink does not answer
// it; without a sink there is none.
func (m *measurement) pushed(ctx context.Context, sink string) (rate float64, err error) {
	hooks, err := newPushHooks()
	if err != nil {
		return 0, err
	}
	defer hooks.close()
	r, err := m.jobRig(ctx, true)
	if err != nil {
		return 0, err
	}
	defer r.close()
	stuck := 0
	if sink != "" {
		stuck = stuckJobs
		if err := r.publisher(ctx, []string{stuckQueue}, messages(stuckJobs, m.payload))(0); err != nil {
			return 0, err
		}
	}
	file := filepath.Join(r.dir, "push.yaml")
	text := fmt.Sprintf(`shutdown_timeout: 1s
sinks: {in: %[1]q, hang: %[1]q}
namespaces:
  %[2]s: {kind: queue, push: [{match: %[3]s, sink: %[4]s}, {sink: in}]}
`, hooks.url, jobNamespace, stuckQueue, cmp.Or(sink, "in"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return 0, err
	}
	if err := r.serve(ctx, "--config="+file, "--role=all"); err != nil {
		return 0, err
	}
	rig.Sleep(ctx, badSettle)
	began := time.Now()
	publish := r.publisher(ctx, m.queueNames(), messages(bulk, m.payload))
	for i := range pushedCalls {
		if err := publish(i); err != nil {
			return 0, err
		}
	}
	wait, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for hooks.got.Load() < pushedJobs && wait.Err() == nil {
		rig.Sleep(wait, time.Millisecond)
	}
	rate = pushedJobs / time.Since(began).Seconds()
	if held := hooks.held.Load(); (held > 0) != (stuck > 0) {
		m.fault("%d jobs of the queue that hangs were written", held)
	}
	r.server.Stop()
	l, err := r.jobs.Ledger(ctx, r.ns)
	if err != nil {
		return 0, err
	}
	want := l
	want.Published, want.Acked = int64(pushedJobs+stuck), pushedJobs
	_, err = m.law(ctx, r, want)
	return rate, err
}

// pushHooks are a receiver that counts, and does not answer jobs of stuckQueue.
type pushHooks struct {
	url       string
	got, held atomic.Int64
	server    *fasthttp.Server
	done      chan error
	quit      chan struct{}
}

func newPushHooks() (*pushHooks, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &pushHooks{url: "http://" + ln.Addr().String() + "/", done: make(chan error, 1), quit: make(chan struct{})}
	h.server = &fasthttp.Server{CloseOnShutdown: true, Handler: func(ctx *fasthttp.RequestCtx) {
		if string(ctx.Request.Header.Peek("X-Spillway-Queue")) == stuckQueue {
			h.held.Add(1)
			<-h.quit
			return
		}
		h.got.Add(1)
	}}
	go func() { h.done <- h.server.Serve(ln) }()
	return h, nil
}

func (h *pushHooks) close() {
	close(h.quit)
	_ = h.server.Shutdown() // the servers that post to it are stopped
	<-h.done
}
