//go:build php

package php

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/app/apptest"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// binary is the path of the program.
var binary string

func TestMain(m *testing.M) { apptest.Main(m, &binary) }

// serve starts the service over the queue of the project, and returns where its data port is.
func (p *project) serve(t testing.TB) (data string) {
	t.Helper()
	data, err := proc.FreeAddr()
	must(t, err)
	admin, err := proc.FreeAddr()
	must(t, err)
	config := filepath.Join(p.dir, "spillway.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "listen: %s\nadmin_listen: %s\npools: {shop: \"redis://%s\"}\n"+
		"namespaces:\n  shop: {kind: php, pool: shop, flavor: %s, key_prefix: %q, queues: [%s]}\n",
		data, admin, p.redis.Options().Addr, p.app, p.prefix(), p.queue), 0o600))
	service := run(t, binary, "serve", "--config", config)
	redistest.Until(t, time.Minute, "the service listens", func() bool {
		select {
		case <-service.done:
			t.Fatalf("serve ended: %v\n%s", service.err, service.out())
		default:
		}
		c, err := net.Dial("tcp", data)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return data
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
func run(t testing.TB, binary string, args ...string) *program {
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
