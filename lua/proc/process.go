// Package proc runs the processes of benchmarks and tests: redis-servers,
// Spillways and what they are compared with. Each writes to a log file, and on
// Linux ends with the process that started it.
package proc

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
	"sync"
	"syscall"
	"time"
)

// grace is how long a process may take to end after SIGTERM before it is
// killed: longer than the server's own shutdown timeout.
const grace = 20 * time.Second

// Process is a child that writes to a log file and ends with Stop or Kill.
type Process struct {
	PID    int
	Log    string        // path of what it prints, both streams
	Done   chan struct{} // closed when the child has been waited for
	cancel context.CancelFunc
}

// Start runs the program at path in dir; what it prints goes to name.log there, anew.
func Start(dir, name, path string, args ...string) (*Process, error) {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	KillWithParent(cmd)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		cancel()
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{PID: cmd.Process.Pid, Log: log.Name(), cancel: cancel, Done: make(chan struct{})}
	go func() {
		defer close(p.Done)
		_ = cmd.Wait() // how it ended is in its log; Stop is the only one who cares that it did
	}()
	return p, nil
}

// Stop sends SIGTERM and waits for the end, which it forces after a while. It
// may come twice, and after Kill.
func (p *Process) Stop() {
	p.cancel()
	<-p.Done
}

// Kill ends it with SIGKILL and waits for that. It may come twice.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // it may have ended
	<-p.Done
	p.cancel()
}

// Signal sends sig. It is an error once the child has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	select {
	case <-p.Done: // the pid may be another's by now
		return errors.New("the process has ended")
	default:
		return syscall.Kill(p.PID, sig)
	}
}

// Await polls until ready returns nil, the child ends or ctx does. Its error
// shows the end of the child's log, for that is where the reason is.
func (p *Process) Await(ctx context.Context, what string, ready func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done:
			err = errors.New("the process ended")
		case <-ctx.Done():
		case <-tick.C:
			continue
		}
		text, _ := os.ReadFile(p.Log)
		return fmt.Errorf("await %s: %w; the end of its log:\n%s", what, err, text[max(0, len(text)-2000):])
	}
}

// CPU is the processor time the child used so far, user and system.
func (p *Process) CPU() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return 0, err
	}
	return parseCPU(stat)
}

// RSSPeak is the most memory the child ever held resident, in bytes.
func (p *Process) RSSPeak() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		return 0, err
	}
	return parseStatus(status, "VmHWM")
}

// RSS is the memory the child holds resident now, in bytes.
func (p *Process) RSS() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		return 0, err
	}
	return parseStatus(status, "VmRSS")
}

// parseCPU reads utime and stime, the 14th and 15th field of proc(5)'s stat.
// The second field is the program's name and may itself hold spaces. A tick is
// 10 ms on every architecture Go runs on.
func parseCPU(stat []byte) (time.Duration, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("parse stat: %d fields after the name", len(fields))
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// parseStatus reads a field of proc(5)'s status that is in kB, in bytes.
func parseStatus(status []byte, field string) (int64, error) {
	for line := range bytes.Lines(status) {
		if rest, found := bytes.CutPrefix(line, []byte(field+":")); found {
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("parse status: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("parse status: no %s", field)
}

// Forward listens at addr until stop, and connects every client with target, both host:port. serve
// passes on what they write, as the caller wants it; both connections close when it returns, or at
// stop, which waits for that.
func Forward(addr, target string, serve func(client, server net.Conn)) (at net.Addr, stop func(), err error) {
	l, err := Listen(addr)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			end := func() { _, _ = client.Close(), server.Close() }
			context.AfterFunc(ctx, end)
			serving.Go(func() {
				defer end()
				serve(client, server)
			})
		}
	})
	return l.Addr(), func() { cancel(); _ = l.Close(); serving.Wait() }, nil
}
