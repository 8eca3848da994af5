package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
)

// signals are what a process gets when those around it go away.
var signals = []situation{
	{"the reader of stdout goes away: a failing sink", stdoutGone},
	{"the reader of stderr goes away: log lines are lost", stderrGone},
	{"SIGHUP is survived", hangUp},
}

// piped starts a server whose stdout and stderr are pipes, which the returned
// function closes at the reading end.
func (s *stage) piped(ctx context.Context, flags ...string) (v *server, hangUp func(stream string), err error) {
	addrs, err := proc.FreeAddrs(2)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, s.bin, append([]string{"serve", "--redis", s.redisURL, "--listen", addrs[0], "--admin-listen", addrs[1]}, flags...)...)
	proc.KillWithParent(cmd)
	readers := map[string]*os.File{}
	var writers []*os.File
	for _, name := range []string{"stdout", "stderr"} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		readers[name], writers = r, append(writers, w)
	}
	cmd.Stdout, cmd.Stderr = writers[0], writers[1] // files, so nobody copies
	err = cmd.Start()
	for _, w := range writers {
		_ = w.Close()
	}
	if err != nil {
		return nil, nil, err
	}
	log, err := s.file("piped.log", "")
	v = &server{Process: &proc.Process{PID: cmd.Process.Pid, Log: log, Done: make(chan struct{})}, data: addrs[0], admin: addrs[1],
		namespaces: []string{"default"}}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait(); close(v.Done) }()
	s.closing = append(s.closing, func() {
		_ = cmd.Process.Kill()
		<-ended
		for _, r := range readers {
			_ = r.Close()
		}
	})
	if err != nil {
		return nil, nil, err
	}
	ready, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return v, func(stream string) { _ = readers[stream].Close() }, v.Await(ready, "spillway serve", v.ready)
}

// serves shows that a process is there and takes entries.
func (v *server) serves(ctx context.Context) error {
	select {
	case <-v.Done:
		return errors.New("the process has ended")
	default:
	}
	if _, err := v.get(ctx, "/livez"); err != nil {
		return err
	}
	return v.take(ctx, "p", `{"n":1}`)
}

// stdoutGone: the entries that came before were delivered, the others wait.
func stdoutGone(ctx context.Context, s *stage) error {
	v, hangUp, err := s.piped(ctx, "--sink=stdout:", "--linger=100ms")
	if err != nil {
		return err
	}
	if err := v.delivers(ctx, 3, 3); err != nil {
		return err
	}
	hangUp("stdout")
	if err := v.take(ctx, "p", numbered(3)...); err != nil {
		return err
	}
	if err := until(ctx, 15*time.Second, func() error {
		if err := v.serves(ctx); err != nil {
			return err
		}
		failures, err := v.metric(ctx, "spillway_drain_sink_failures_total")
		if err == nil && failures == 0 {
			err = errors.New("the sink has not failed")
		}
		return err
	}); err != nil {
		return err
	}
	a, err := v.account(ctx, true)
	if err == nil && a.Ledger.Delivered != 3 {
		err = fmt.Errorf("3 were delivered: %+v", a.Ledger)
	}
	if err != nil {
		return err
	}
	return lawful(a)
}

// stderrGone: a sink that fails and recovers is worth two lines of the log.
func stderrGone(ctx context.Context, s *stage) error {
	var fails atomic.Bool
	hook, err := s.receive(func(delivery) reply {
		if fails.Swap(false) {
			return reply{status: http.StatusInternalServerError}
		}
		return reply{status: http.StatusOK}
	})
	if err != nil {
		return err
	}
	v, hangUp, err := s.piped(ctx, "--sink="+hook.url, "--linger=100ms")
	if err != nil {
		return err
	}
	if err := v.delivers(ctx, 3, 3); err != nil {
		return err
	}
	hangUp("stderr")
	fails.Store(true)
	if err := v.delivers(ctx, 3, 6); err != nil {
		return err
	}
	return v.serves(ctx)
}

// delivers sends entries and waits until that many were delivered in all.
func (v *server) delivers(ctx context.Context, entries int, all int64) error {
	if err := v.take(ctx, "p", numbered(entries)...); err != nil {
		return err
	}
	return until(ctx, 15*time.Second, func() error {
		a, err := v.account(ctx, false)
		if err == nil && a.Ledger.Delivered != all {
			err = fmt.Errorf("want %d delivered: %+v", all, a.Ledger)
		}
		return err
	})
}

func hangUp(ctx context.Context, s *stage) error {
	v, err := s.serve(ctx, "--sink=null:")
	if err != nil {
		return err
	}
	for range 3 {
		if err := v.Signal(syscall.SIGHUP); err != nil {
			return err
		}
		rig.Sleep(ctx, 100*time.Millisecond)
		if err := v.serves(ctx); err != nil {
			return err
		}
	}
	return nil
}
