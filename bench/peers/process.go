package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	startTimeout = 20 * time.Second
	// grace is how long a process may take to end after SIGTERM before it is
	// killed: longer than Spillway's own shutdown timeout.
	grace = 20 * time.Second
	tick  = 10 * time.Millisecond // of /proc's processor times, wherever Go runs
)

// process is a child that writes to a log file and ends with stop.
type process struct {
	pid    int
	log    string
	cancel context.CancelFunc
	done   chan struct{} // closed when the child has been waited for
}

// startProcess runs a program and waits until ready returns nil.
func startProcess(ctx context.Context, dir, path string, ready func(context.Context) error, args ...string) (*process, error) {
	name := filepath.Base(path)
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	living, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cmd := exec.CommandContext(living, path, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{pid: cmd.Process.Pid, log: log.Name(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended is in its log; stop is the only one who cares that it did
	}()
	if err := p.await(ctx, ready); err != nil {
		p.stop()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (p *process) stop() {
	p.cancel()
	<-p.done
}

func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			err = errors.New("the process ended")
		case <-ctx.Done():
		case <-again.C:
			continue
		}
		text, _ := os.ReadFile(p.log)
		return fmt.Errorf("%w; the end of its log:\n%s", err, text[max(0, len(text)-2000):])
	}
}

// usage is the processor time used until a moment: by this process, by a side's
// servers, and by all there is on the machine.
type usage struct {
	at, own, servers, machine time.Duration
}

func (u usage) since(b usage) usage {
	return usage{u.at - b.at, u.own - b.own, u.servers - b.servers, u.machine - b.machine}
}

var began = time.Now() // what usage.at counts from; only differences matter

func readUsage(servers []*process) (usage, error) {
	u := usage{at: time.Since(began)}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return u, fmt.Errorf("read own usage: %w", err)
	}
	u.own = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	for _, p := range servers {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
		if err != nil {
			return u, fmt.Errorf("read usage: %w", err)
		}
		used, err := processCPU(stat)
		if err != nil {
			return u, err
		}
		u.servers += used
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, fmt.Errorf("read usage: %w", err)
	}
	u.machine, err = machineCPU(stat)
	return u, err
}

// processCPU reads utime and stime, the 14th and 15th field of proc(5)'s stat.
// The second field is the program's name and may itself hold spaces.
func processCPU(stat []byte) (time.Duration, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("read usage: %d fields after the name", len(fields))
	}
	return ticks(fields[11], fields[12])
}

// machineCPU reads the first line of /proc/stat: all but idle and iowait, the
// fourth and fifth number.
func machineCPU(stat []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, fmt.Errorf("read usage: %q is not the machine's", line)
	}
	return ticks(fields[1], fields[2], fields[3], fields[6], fields[7], fields[8])
}

func ticks(fields ...[]byte) (time.Duration, error) {
	var sum int64
	for _, field := range fields {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read usage: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}

// freeAddrs returns n different loopback addresses nobody listens on. Another
// program may take one before we do; the start then fails, and says so.
func freeAddrs(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = ln.Close() }()
		addrs[i] = ln.Addr().String()
	}
	return addrs, nil
}
