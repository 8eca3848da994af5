//go:build unix

package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// Supported reports whether children can be run here.
const Supported = true

// Signals by which people pause a supervisor of children and let it go on.
const (
	PauseSignal  = syscall.SIGUSR2
	ResumeSignal = syscall.SIGCONT
)

// Start starts the command in a process group of its own, with pipes as its descriptors 0 to 2,
// and 3 if extra. On Linux it gets no other descriptor. The error is exec's.
func (c Command) Start(extra bool) (*Child, error) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env = c.Env
	cmd.Dir = c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.User != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.User.UID, Gid: c.User.GID,
			Groups: c.User.Groups}
	}
	bound(cmd.SysProcAttr)

	// Pipes of our own: those of os/exec make Wait wait for whoever still holds them.
	child := &Child{cmd: cmd}
	var theirs []*os.File
	output := func(ours **Pipe) (their *os.File, err error) {
		r, their, err := os.Pipe()
		if err == nil {
			*ours, theirs = &Pipe{file: r}, append(theirs, their)
		}
		return their, err
	}
	in, w, err := os.Pipe()
	if err == nil {
		child.Stdin, cmd.Stdin, theirs = w, in, append(theirs, in)
		cmd.Stdout, err = output(&child.Stdout)
	}
	if err == nil {
		cmd.Stderr, err = output(&child.Stderr)
	}
	if err == nil && extra {
		var third *os.File
		third, err = output(&child.Extra)
		cmd.ExtraFiles = []*os.File{third}
	}
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range theirs { // the process has them now
		_ = f.Close()
	}
	if err == nil && c.Nice != 0 {
		if err = syscall.Setpriority(syscall.PRIO_PGRP, child.PID(), c.Nice); err != nil {
			err = fmt.Errorf("set the priority to %d: %w", c.Nice, err)
			child.Kill()
			_ = child.Wait()
		}
	}
	if err != nil {
		child.Close()
		return nil, err
	}
	return child, nil
}

// Kill kills the group of the process, unless Wait has.
func (c *Child) Kill() { c.SignalGroup(syscall.SIGKILL) }

// SignalGroup sends a signal to each process of the group, as long as there are any.
func (c *Child) SignalGroup(signal syscall.Signal) { c.signal(-c.PID(), signal) }

// Signal sends a signal to the process alone, unless it has ended.
func (c *Child) Signal(signal syscall.Signal) { c.signal(c.PID(), signal) }

func (c *Child) signal(pid int, signal syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		_ = syscall.Kill(pid, signal)
	}
}

// readNow reads what lies in a pipe, without waiting and whatever its deadline.
func readNow(pipe *os.File, to []byte) (n int) {
	if raw, err := pipe.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), to) })
	}
	return n
}

// Memory is how many bytes of the process are in memory (RSS), without those of its children; 0
// where the system does not tell.
func (c *Child) Memory() int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(c.PID()) + "/statm")
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}
