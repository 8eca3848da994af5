//go:build php

package php

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// The service over the queue of an application, and spillway work with four of its children: what the
// library pushed runs once, what throws comes again and dies with failed(), what hangs is killed at its
// timeout and comes again, and a restart by PHP's own signal changes the children.
func TestWorkRunsTheJobsOfAnApplication(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		data := p.serve(t)
		const plain = 200
		for range plain / 50 {
			p.push(t, pushed{Class: "Note", Data: map[string]any{"acts": []string{"delete"}}, Count: 50})
		}
		work := run(t, binary(t), append([]string{"work", "shop", p.queue, "--server", "http://" + data, "--children", "4", "--tries", "2",
			"--timeout", "3s", "--backoff", "1ms..5ms", "--dir", p.dir, "--env", "LIBRARY", "--env", "SEEN", "--env", "REDIS_PORT", "--", "php"}, p.child...)...)
		work.env = p.env
		must(t, work.start())
		empty := func() bool {
			c := context.Background()
			return p.redis.Exists(c, p.key, p.key+":delayed", p.key+":reserved").Val() == 0
		}
		redistest.Until(t, time.Minute, "the jobs are done", empty)
		if n := p.count(t, ran); n != plain {
			t.Errorf("%d jobs ran, of %d\n%s", n, plain, work.out())
		}
		p.push(t, note("throw:no"))
		redistest.Until(t, time.Minute, "the one that throws is dead", func() bool {
			return empty() && p.redis.ZCard(context.Background(), "sw:php:"+p.key+":dead").Val() == 1
		})
		if n := p.count(t, failed); n != 1 {
			t.Errorf("failed() ran %d times\n%s", n, work.out())
		}
		must(t, work.cmd.Process.Signal(syscall.SIGTERM))
		if err := work.wait(); err != nil {
			t.Errorf("work ended with %v\n%s", err, work.out())
		}
		if t.Failed() {
			t.Log(work.out())
		}
	}, think3, think2, laravel)
}
