package control_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

// patience bounds the wait for what takes a second at most on an idle machine.
const patience = 20 * time.Second

// process is the Control of one process.
type process struct {
	*control.Control
	t     testing.TB
	logs  *observer.ObservedLogs
	pools control.Pools
}

var prefixes atomic.Int64

func newPrefix() string { return fmt.Sprint("sw", prefixes.Add(1)) }

// file is a configuration with one namespace of each kind, and admin tokens.
func file() control.File {
	return control.File{
		Namespaces: []control.Namespace{{Name: "filed", Pool: "default", Policy: job.DefaultPolicy()}, {Name: "open", Pool: "default", Policy: job.DefaultPolicy()}},
		Buffers:    []string{"buffer"}, Open: []string{"open"}, Pools: []string{"fast"}, Volatile: []string{"default", "fast"},
		Tokens: []control.Token{{Namespace: "filed", Hash: control.HashToken("filed"), Name: "filed"}},
		Admins: []control.Admin{{Name: "root", Role: "admin", Hash: control.HashToken("root")}},
	}
}

// start starts a process on the Redis at url.
func start(t testing.TB, url, prefix string) *process {
	t.Helper()
	p := prepare(t, url, prefix)
	if err := p.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return p
}

// prepare makes a process that looks for changes only when it is told to.
func prepare(t testing.TB, url, prefix string) *process {
	t.Helper()
	reg := prometheus.NewRegistry()
	core, logs := observer.New(zapcore.InfoLevel)
	b, err := backend.Open(backend.Config{URL: url, Patience: backendtest.Patience}, reg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	p := &process{control.Open(prefix, reg, zap.New(core)), t, logs, control.Pools{"default": b, "fast": b}}
	p.Use(file(), p.pools)
	t.Cleanup(func() {
		_ = p.Stop(context.Background())
		_ = b.Close()
	})
	return p
}

// shared is a prefix of its own on the server of all tests.
func shared(t testing.TB) (url, prefix string) {
	return "redis://" + redistest.Shared(t), newPrefix()
}

func namespace(name string) control.Namespace {
	return control.Namespace{Name: name, Policy: job.DefaultPolicy(), CreatedBy: "root"}
}

func token(namespace, text string) control.Token {
	return control.Token{Namespace: namespace, Hash: control.HashToken(text)}
}

func (p *process) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// await waits until a snapshot of the process satisfies a condition.
func (p *process) await(what string, satisfied func(*control.Snapshot) bool) {
	p.t.Helper()
	reached := make(chan struct{})
	var once atomic.Bool
	cancel := p.Subscribe(func(s *control.Snapshot) {
		if satisfied(s) && !once.Swap(true) {
			close(reached)
		}
	})
	defer cancel()
	select {
	case <-reached:
	case <-time.After(patience):
		p.t.Fatalf("%v later: not yet %s", patience, what)
	}
}
