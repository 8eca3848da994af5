package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
)

// A faultKind is a way to break something for a while, in milliseconds. Target
// is redis, proxy, sink or operator, or a server of that role.
type faultKind struct {
	name, target string
	least, most  int
	inject       func(ctx context.Context, r *setup, f planned) error
}

// clusterKinds need a cluster.
var clusterKinds = []faultKind{
	{"failover", "redis", 3000, 5000, failover},
	{"move-slots", "redis", 500, 1500, moveSlots},
}

var faultKinds = []faultKind{
	{"kill", "redis", 100, 800, killRedis},
	{check.KindStop, "redis", 300, 2500, stopRedis},
	{"pause", "redis", 300, 1500, pauseRedis},
	{"script-flush", "redis", 1, 1, flushScripts},
	{"disconnect", "redis", 1, 1, disconnect},
	// Twice, so that a run has steps in both directions.
	{check.KindClockStep, "redis", 1, 1, stepClock},
	{check.KindClockStep, "redis", 1, 1, stepClock},

	{"lose-replies", "proxy", 400, 1000, onProxy(loseReplies)},
	{"lose-requests", "proxy", 400, 1000, onProxy(loseRequests)},
	{"stall", "proxy", 300, 2500, onProxy(stallBoth)},
	{"reset", "proxy", 1, 1, reset},

	{"kill", "role ingest", 1, 300, killServer},
	{"term", "role ingest", 1, 300, terminateServer},
	{check.KindStop, "role ingest", 300, 1500, stopServer},
	{"kill", "role drain", 1, 1500, killServer},
	{"term", "role drain", 1, 300, terminateServer},
	// Longer than the lease: somebody else has the partition at the thaw.
	{check.KindStop, "role drain", int(lease/time.Millisecond) + 300, int(lease/time.Millisecond) + 1300, stopServer},

	{"reload", "role ingest", 1, 1, reload},
	{"reload", "role drain", 1, 1, reload},
	{"operate", "operator", 300, 1500, operate},
	// Longer than a lease, because partitions are paused meanwhile.
	{"pause-partition", "operator", int(lease/time.Millisecond) + 1500, int(lease/time.Millisecond) + 3500, pausePartition},

	{"fail", "sink", 300, 1500, onSink(sinkFails)},
	{"throttle", "sink", 300, 1500, onSink(sinkThrottles)},
	{"slow", "sink", 500, 2500, onSink(sinkIsSlow)},
	{"hang", "sink", 300, 1500, onSink(sinkHangs)},
	{"hang-up", "sink", 300, 1000, onSink(sinkHangsUp)},
}

// kindNames are the names of all kinds, each once.
func kindNames() (names []string) {
	for _, k := range slices.Concat(faultKinds, clusterKinds) {
		names = append(names, k.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// inject plays the plan's faults from start on and returns those that happened.
func (r *setup) inject(ctx context.Context, start time.Time) (fired []check.Fault) {
	var (
		mu      sync.Mutex
		running sync.WaitGroup
		targets = map[string]*sync.Mutex{} // a fault that takes longer than planned delays the next of its target
	)
	for _, f := range r.plan.faults {
		if targets[f.target] == nil {
			targets[f.target] = &sync.Mutex{}
		}
		target := targets[f.target]
		running.Go(func() {
			if !rig.Sleep(ctx, time.Until(start.Add(f.at))) {
				return
			}
			target.Lock()
			defer target.Unlock()
			from := time.Now()
			err := f.inject(ctx, r, f)
			to := time.Now()
			mu.Lock()
			defer mu.Unlock()
			r.progress("%6.2fs %s %s for %v", from.Sub(start).Seconds(), f.kind, f.target, to.Sub(from).Round(time.Millisecond))
			if err != nil {
				r.progress("        which failed: %v", err)
				return
			}
			fired = append(fired, check.Fault{Kind: f.kind, Target: f.target, From: from, To: to, Offset: f.offset})
		})
	}
	running.Wait()
	return fired
}

func killRedis(ctx context.Context, r *setup, f planned) error {
	n, err := r.victim(ctx, f)
	if err != nil {
		return err
	}
	n.kill()
	rig.Sleep(ctx, f.lasts)
	return r.startNode(context.WithoutCancel(ctx), n)
}

func stopRedis(ctx context.Context, r *setup, f planned) error {
	n, err := r.victim(ctx, f)
	if err != nil {
		return err
	}
	return freeze(ctx, n.process.Signal, f.lasts)
}

// freeze stops a process and lets it go on, also when ctx ends.
func freeze(ctx context.Context, signal func(syscall.Signal) error, lasts time.Duration) error {
	if err := signal(syscall.SIGSTOP); err != nil {
		return err
	}
	rig.Sleep(ctx, lasts)
	return signal(syscall.SIGCONT)
}

// pauseRedis makes it hold commands back while its connections stay open.
func pauseRedis(ctx context.Context, r *setup, f planned) error {
	mode := "WRITE"
	if f.lasts%2 == 0 {
		mode = "ALL"
	}
	n, err := r.victim(ctx, f)
	if err != nil {
		return err
	}
	err = n.client.Do(ctx, "CLIENT", "PAUSE", f.lasts.Milliseconds(), mode).Err()
	rig.Sleep(ctx, f.lasts)
	// Redis ends a pause by its wall clock, which may step.
	return errors.Join(err, n.client.Do(context.WithoutCancel(ctx), "CLIENT", "UNPAUSE").Err())
}

func flushScripts(ctx context.Context, r *setup, f planned) error {
	n, err := r.victim(ctx, f)
	if err != nil {
		return err
	}
	return n.client.ScriptFlush(ctx).Err()
}

func disconnect(ctx context.Context, r *setup, f planned) error {
	n, err := r.victim(ctx, f)
	if err != nil {
		return err
	}
	return n.client.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()
}

// proxies are those of one master and its replica, or that of the only Redis.
func (r *setup) proxies(f planned) (list []*proxy) {
	first := int(f.at/time.Millisecond) % min(masters, len(r.nodes))
	for i := first; i < len(r.nodes); i += masters {
		list = append(list, r.nodes[i].proxy)
	}
	return list
}

func onProxy(m proxyMode) func(context.Context, *setup, planned) error {
	return func(ctx context.Context, r *setup, f planned) error {
		for _, p := range r.proxies(f) {
			p.set(m)
			defer p.set(pass)
		}
		rig.Sleep(ctx, f.lasts)
		return nil
	}
}

func reset(_ context.Context, r *setup, f planned) error {
	for _, p := range r.proxies(f) {
		p.cut()
	}
	return nil
}

func onSink(m sinkMode) func(context.Context, *setup, planned) error {
	return func(ctx context.Context, r *setup, f planned) error {
		r.sink.set(m)
		rig.Sleep(ctx, f.lasts)
		r.sink.set(sinkTakes)
		return nil
	}
}

func killServer(ctx context.Context, r *setup, f planned) error {
	s := r.servers[f.target]
	s.process().Kill()
	rig.Sleep(ctx, f.lasts)
	return s.start(context.WithoutCancel(ctx))
}

func terminateServer(ctx context.Context, r *setup, f planned) error {
	s := r.servers[f.target]
	s.process().Stop()
	rig.Sleep(ctx, f.lasts)
	return s.start(context.WithoutCancel(ctx))
}

func stopServer(ctx context.Context, r *setup, f planned) error {
	return freeze(ctx, r.servers[f.target].process().Signal, f.lasts)
}

// watchPauses notes until ctx ends when this process, and likely all others, did
// not run: on a busy or suspended machine a server is then as good as frozen.
func watchPauses(ctx context.Context) (noted []check.Fault) {
	const every, long = 50 * time.Millisecond, 400 * time.Millisecond
	for last := time.Now(); ctx.Err() == nil; {
		rig.Sleep(ctx, every)
		now := time.Now()
		if now.Sub(last) > long {
			noted = append(noted, check.Fault{Kind: check.KindStop, Target: check.Machine, From: last, To: now})
		}
		last = now
	}
	return noted
}
