package main

import (
	"context"
	"flag"
	"io"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"
)

// parking is the no-op side, but that each request waits until Redis has its body: one
// RPUSH, in a pipeline with those of the others. It keeps no account, checks nothing and drains nothing.
func parking(ctx context.Context, args []string, _ io.Writer) error {
	flags := flag.NewFlagSet("parking", flag.ContinueOnError)
	listen, addr := flags.String("listen", "", "address"), flags.String("redis", "", "address")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: *addr})
	lanes := [2]*parkingLane{}
	for i := range lanes {
		lanes[i] = &parkingLane{}
		lanes[i].arrived = sync.NewCond(&lanes[i].mu)
		go lanes[i].run(ctx, client) // the process ends with it
	}
	pool := sync.Pool{New: func() any { return &parked{done: make(chan struct{}, 1)} }}
	return serveNoop(ctx, *listen, func(c *fasthttp.RequestCtx) {
		p := pool.Get().(*parked)
		p.key, p.entry = string(c.Path()), c.PostBody()
		lanes[p.key[len(p.key)-1]%2].add(p)
		<-p.done
		pool.Put(p)
	})
}

// A parked request waits for the answer to its RPUSH.
type parked struct {
	key   string
	entry []byte
	done  chan struct{}
}

// parkingLane gathers requests while a pipeline is on its way, as a lane of Spillway does.
type parkingLane struct {
	mu      sync.Mutex
	arrived *sync.Cond
	waiting []*parked
}

func (l *parkingLane) add(p *parked) {
	l.mu.Lock()
	l.waiting = append(l.waiting, p)
	l.mu.Unlock()
	l.arrived.Signal()
}

func (l *parkingLane) run(ctx context.Context, client *redis.Client) {
	var turn []*parked
	for {
		l.mu.Lock()
		for len(l.waiting) == 0 {
			l.arrived.Wait()
		}
		turn, l.waiting = l.waiting, turn[:0]
		l.mu.Unlock()
		groups := map[string][]any{}
		for _, p := range turn {
			groups[p.key] = append(groups[p.key], p.entry)
		}
		pipe := client.Pipeline()
		for key, entries := range groups {
			pipe.RPush(ctx, key, entries...)
		}
		_, _ = pipe.Exec(ctx)
		for _, p := range turn {
			p.done <- struct{}{}
		}
	}
}
