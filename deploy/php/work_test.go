//go:build php

package php

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// The service over the queue of an application, and spillway work with four of its children: what the
// library pushed runs once, what throws comes again and dies with failed(), what hangs is killed at its
// timeout and comes again, and a restart by PHP's own signal changes the children.
func TestWorkRunsTheJobsOfAnApplication(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "spillway")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/spillway").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	onEach(t, func(t *testing.T, p *project) {
		data, err := proc.FreeAddr()
		must(t, err)
		admin, err := proc.FreeAddr()
		must(t, err)
		config := filepath.Join(p.dir, "spillway.yaml")
		prefix := strings.TrimSuffix(strings.TrimSuffix(p.base, "queues:%s"), "{queues:%s}")
		must(t, os.WriteFile(config, fmt.Appendf(nil, "listen: %s\nadmin_listen: %s\npools: {shop: \"redis://%s\"}\n"+
			"namespaces:\n  shop: {kind: php, pool: shop, flavor: %s, key_prefix: %q, queues: [%s]}\n",
			data, admin, p.redis.Options().Addr, p.app, prefix, p.queue), 0o600))
		run(t, binary, "serve", "--config", config)
		redistest.Until(t, 20*time.Second, "the service listens", func() bool {
			c, err := net.Dial("tcp", data)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
		const plain = 200
		for range plain / 50 {
			p.push(t, pushed{Class: "Note", Data: map[string]any{"acts": []string{"delete"}}, Count: 50})
		}
		work := run(t, binary, append([]string{"work", "shop", p.queue, "--server", "http://" + data, "--children", "4", "--tries", "2",
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

// program is a process of the test.
type program struct {
	cmd  *exec.Cmd
	env  []string
	text lockedBuffer
	done chan struct{}
	err  error
}

// run makes a program that ends with the test. All but spillway work start at once.
func run(t *testing.T, binary string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.text, &p.text
	t.Cleanup(func() {
		if p.cmd.Process != nil {
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	})
	if args[0] != "work" {
		must(t, p.start())
	}
	return p
}

func (p *program) start() error {
	p.cmd.Env = p.env
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	return nil
}

func (p *program) wait() error {
	<-p.done
	return p.err
}

func (p *program) out() string { return p.text.String() }

// lockedBuffer is what a program prints.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
