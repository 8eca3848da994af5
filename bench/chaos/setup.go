package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
)

// setup is what a run breaks, all of it on loopback and in a folder of its own.
//
//	producers ──HTTP──▶ servers that ingest ──┐
//	                                          proxy ──▶ redis-server ◀── observer
//	sink ◀────HTTP───── servers that drain ───┘
//
// In a cluster each of six redis-servers has a proxy.
type setup struct {
	plan     *plan
	settings settings
	dir      string
	progress func(format string, args ...any)

	nodes   []*node               // of Redis
	store   redis.UniversalClient // of all of them
	sink    *sink
	servers map[string]*server
	names   []string // of the servers, in the plan's order

	mu          sync.Mutex
	pauses      []check.Pause
	queuePauses []check.Pause
}

func newSetup(ctx context.Context, s settings, p *plan, progress func(string, ...any)) (_ *setup, err error) {
	r := &setup{plan: p, settings: s, progress: progress, servers: map[string]*server{}}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.dir, err = os.MkdirTemp("", "spillway-chaos-"); err != nil {
		return r, err
	}
	addrs, err := proc.FreeAddrs(2 * len(p.roles))
	if err != nil {
		return r, err
	}
	if err := r.clock().Set(0); err != nil {
		return r, err
	}
	if err := r.startStore(ctx); err != nil {
		return r, err
	}
	if r.sink, err = newSink(); err != nil {
		return r, err
	}
	config, err := r.writeConfig(2)
	if err != nil {
		return r, err
	}
	for i, role := range p.roles {
		name := p.server(i)
		r.names = append(r.names, name)
		r.servers[name] = &server{
			name: name, dir: r.dir, bin: s.bin, masters: min(masters, len(r.nodes)), data: addrs[2*i], admin: addrs[2*i+1],
			flags: []string{
				"--config", config, "--redis", r.url(), "--role", role, "--sink", "http://" + r.sink.addr + "/" + name,
				"--sink-timeout", sinkTimeout.String(), "--lease", lease.String(),
				"--capacity", fmt.Sprint(p.capacity), "--max-age", p.maxAge.String(), "--linger", "100ms",
				"--shards", fmt.Sprint(p.shards),
			},
		}
		if p.cluster {
			r.servers[name].flags = append(r.servers[name].flags, "--durability", "replica=1")
		}
	}
	for _, name := range r.names {
		if err := r.servers[name].start(ctx); err != nil {
			return r, err
		}
	}
	return r, nil
}

// ingests are the data ports.
func (r *setup) ingests() (urls []string) {
	for _, name := range r.plan.servers("ingest") {
		urls = append(urls, "http://"+r.servers[name].data)
	}
	return urls
}

// scrape has look keep the figures of servers until ctx ends, so that those of a killed one
// are not all lost.
func (r *setup) scrape(ctx context.Context, names []string, look func(*server)) {
	for ctx.Err() == nil {
		for _, name := range names {
			look(r.servers[name])
		}
		rig.Sleep(ctx, 250*time.Millisecond)
	}
}

// close ends what is left, servers first. The folder stays for whoever asks why.
func (r *setup) close() {
	for _, s := range r.servers {
		if len(s.instances) > 0 {
			s.process().Stop()
		}
	}
	if r.sink != nil {
		r.sink.close()
	}
	if r.store != nil {
		_ = r.store.Close()
	}
	for _, n := range r.nodes {
		n.close()
	}
}
