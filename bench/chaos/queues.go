package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
)

// The namespace of the queues, beside the buffer's.
const (
	queueNamespace = "work"
	queueShards    = 2
	// calmTime is how long jobs are published after the last fault: then nothing may hold them up.
	calmTime = 5 * time.Second
)

// Buffers: that of the workers' sink, one that is delivered at most once, and one whose batches
// share a Write.
const (
	bufferNamespace = "default"
	onceNamespace   = "once"
	bulkNamespace   = "bulk"
)

var (
	sideNamespaces = []string{onceNamespace, bulkNamespace}
)

// writeConfig writes the file that names the namespaces, and the lanes that a reload
// changes. All else the servers have as flags.
func (r *setup) writeConfig(lanes int) (path string, err error) {
	path = filepath.Join(r.dir, "config.yaml")
	text := fmt.Sprintf("lanes: %d\nnamespaces:\n  %s: {}\n  %s: {kind: queue, shards: %d, spread: {%s: %d}, queues: %s}\n", lanes, bufferNamespace,
		queueNamespace, queueShards, r.plan.queues[0], queueShards, limitRules())
	text += fmt.Sprintf("  %s: {kind: queue, shards: %d}\n", clockNamespace, queueShards)
	text += fmt.Sprintf("  %[1]s: {delivery: at-most-once, sink: \"http://%[2]s/%[1]s\"}\n  %[3]s: {sink: \"clickhouse://%[2]s/default?table=t\"}\n",
		onceNamespace, r.sink.addr, bulkNamespace)
	if r.plan.fsync == "none" {
		text += "pools: {default: {volatile: true}}\n"
	}
	next := fmt.Sprintf("%s.%d", path, lanes)
	err = os.WriteFile(next, []byte(text), 0o600)
	return path, errors.Join(err, os.Rename(next, path))
}

// jobLoad is the clients of the queues, and what they saw.
type jobLoad struct {
	observer   *jobObserver
	publishers []*publisher
	workers    []*worker
	calm       atomic.Bool
	uids       atomic.Uint64
}

func newJobLoad(r *setup) *jobLoad {
	l := &jobLoad{observer: newJobObserver(r)}
	for i := range publishers {
		l.publishers = append(l.publishers, newPublisher(i, r.plan, r.ingests(), &l.uids))
	}
	for i := range workers {
		l.workers = append(l.workers, newWorker(i, r.plan, r.ingests(), &l.calm))
	}
	return l
}

// run loads the queues until loading ends and a while longer, and then works off what
// is left, at most for quiet.
func (l *jobLoad) run(ctx, loading context.Context, quiet time.Duration) (*check.Jobs, error) {
	defer func() { _ = l.observer.client.Close() }()
	working, stop := context.WithCancel(ctx)
	defer stop()
	publishing, over := context.WithCancel(ctx)
	defer over()
	var publish, work sync.WaitGroup
	work.Go(func() { l.observer.run(working) })
	for _, w := range l.workers {
		work.Go(func() { w.run(working) })
	}
	for _, p := range l.publishers {
		publish.Go(func() { p.run(publishing) })
	}
	<-loading.Done()
	rig.Sleep(ctx, calmTime)
	over()
	publish.Wait()
	l.calm.Store(true)
	limit, end := context.WithTimeout(ctx, quiet)
	defer end()
	for left := int64(-1); left != 0 && rig.Sleep(limit, 300*time.Millisecond); {
		if samples, err := l.observer.read(limit); err == nil {
			left = leftOf(samples)
		}
	}
	stop()
	work.Wait()
	return l.history(ctx)
}

// history is what all saw, with a last look at the store.
func (l *jobLoad) history(ctx context.Context) (*check.Jobs, error) {
	h := &check.Jobs{}
	for _, p := range l.publishers {
		h.Published = append(h.Published, p.history...)
	}
	for _, w := range l.workers {
		h.Deliveries, h.Settled, h.Polls = append(h.Deliveries, w.deliveries...), append(h.Settled, w.settled...), append(h.Polls, w.polls...)
	}
	last, err := l.observer.read(ctx)
	if err != nil {
		return nil, err
	}
	h.Samples, h.Left = append(l.observer.samples, last...), leftOf(last)
	h.Dead, err = l.observer.dead(ctx)
	return h, err
}

// leftOf is how many jobs are ready, delayed or leased.
func leftOf(samples []check.JobSample) (left int64) {
	for _, s := range samples {
		for _, q := range s.Queues {
			left += q.Jobs - q.Dead
		}
	}
	return left
}

// jobsFloor is what a run of this length reaches several times over.
func (p *plan) jobsFloor() check.JobsFloor {
	seconds := p.weighed()
	return check.JobsFloor{Published: 10 * seconds, Acked: 5 * seconds, Redelivered: seconds / 2, Samples: 5 * seconds}
}
