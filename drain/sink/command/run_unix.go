//go:build unix

package command

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

const supported = true

const (
	// maxStderr is more than a dead letter shows, see sink.WithDetail.
	maxStderr = 4 * sink.MaxDetail
	// lateOutput bounds the wait for output after the process has ended. Only a process
	// that left the group can still hold the pipes.
	lateOutput = 100 * time.Millisecond
)

// run starts argv in a process group of its own, gives it the input, and waits for its
// end or that of ctx. Then no process of the group is left. The error is exec's.
func run(ctx context.Context, argv, environ []string,
	input []byte) (stdout, stderr []byte, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = environ
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
			return nil, nil, sink.Unsent(err)
		}
		defer p.close()
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in.read, out.write, errs.write
	err = cmd.Start()
	_, _, _ = in.read.Close(), out.write.Close(), errs.write.Close() // the process has them now
	if err != nil {
		return nil, nil, sink.Unsent(err)
	}

	var copying sync.WaitGroup
	copying.Go(func() {
		// A process need not read its input: its exit code counts.
		_, _ = in.write.Write(input)
		_ = in.write.Close()
	})
	copying.Go(func() { stdout = beginning(out.read, sink.MaxResults+1) })
	copying.Go(func() { stderr = beginning(errs.read, maxStderr) })
	err = cmd.Wait()
	_ = killGroup() // what it left behind, mostly nothing
	_ = in.write.Close()
	late := time.Now().Add(lateOutput)
	_, _ = out.read.SetReadDeadline(late), errs.read.SetReadDeadline(late)
	copying.Wait()
	return stdout, stderr, err
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
