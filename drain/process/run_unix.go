//go:build unix

package process

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Supported reports whether Run works here.
const Supported = true

// lateOutput bounds the wait for output after the process has ended. Only a process that left
// the group can still hold the pipes.
const lateOutput = 100 * time.Millisecond

// Run starts the command in a process group of its own, gives it the input, and waits for its
// end or that of ctx. Then no process of the group is left. The error is exec's.
func (c Command) Run(ctx context.Context) (o Output, err error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Env = c.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killGroup := func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != syscall.ESRCH {
			return err
		}
		return os.ErrProcessDone // it ended just before, and its exit code counts
	}
	cmd.Cancel = killGroup

	// Pipes of our own: those of os/exec make Wait wait for whoever still holds them.
	var in, out, errs pipe
	for _, p := range []*pipe{&in, &out, &errs} {
		if p.read, p.write, err = os.Pipe(); err != nil {
			return o, err
		}
		defer p.close()
	}
	cmd.Stdin = in.read
	cmd.Stdout = out.write
	cmd.Stderr = errs.write
	err = cmd.Start()
	_, _, _ = in.read.Close(), out.write.Close(), errs.write.Close() // the process has them now
	if err != nil {
		return o, err
	}
	o.Started = true

	var copying sync.WaitGroup
	copying.Go(func() {
		// A process need not read its input: its exit code counts.
		_, _ = in.write.Write(c.Input)
		_ = in.write.Close()
	})
	copying.Go(func() { o.Stdout = beginning(out.read, c.MaxStdout) })
	copying.Go(func() { o.Stderr = beginning(errs.read, c.MaxStderr) })
	err = cmd.Wait()
	_ = killGroup() // what it left behind, mostly nothing
	_ = in.write.Close()
	late := time.Now().Add(lateOutput)
	_, _ = out.read.SetReadDeadline(late), errs.read.SetReadDeadline(late)
	copying.Wait()
	return o, err
}

type pipe struct{ read, write *os.File }

// close closes what is still open; a second Close is harmless.
func (p *pipe) close() { _, _ = p.read.Close(), p.write.Close() }

// beginning reads r to its end and returns the first max bytes.
func beginning(r io.Reader, max int64) []byte {
	kept, _ := io.ReadAll(io.LimitReader(r, max))
	_, _ = io.Copy(io.Discard, r)
	return kept
}
