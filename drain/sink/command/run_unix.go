//go:build unix

package command

import (
	"context"
	"errors"
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
	// maxStderr is how much of stderr is kept, in bytes: more than a dead letter shows,
	// see sink.WithDetail. The rest is read and dropped.
	maxStderr = 4 * sink.MaxDetail
	// lateStderr bounds the wait for stderr of a process that has ended. Only a process
	// that left the group can still hold it.
	lateStderr = 100 * time.Millisecond
)

// run starts argv in a process group of its own, gives it the input, and waits for its
// end or that of ctx. Then no process of the group is left. The error is exec's.
func run(ctx context.Context, argv, environ []string, input []byte) (stderr []byte, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = killGroup

	// Pipes of our own: those of os/exec make Wait wait for whoever still holds them.
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inWrite.Close()
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inRead.Close())
	}
	defer errRead.Close()
	cmd.Stdin, cmd.Stderr = inRead, errWrite
	err = cmd.Start()
	_, _ = inRead.Close(), errWrite.Close() // the process has them now
	if err != nil {
		return nil, err
	}

	var copying sync.WaitGroup
	copying.Go(func() {
		// A process need not read its input: its exit code counts.
		_, _ = inWrite.Write(input)
		_ = inWrite.Close()
	})
	copying.Go(func() {
		stderr, _ = io.ReadAll(io.LimitReader(errRead, maxStderr))
		_, _ = io.Copy(io.Discard, errRead)
	})
	err = cmd.Wait()
	_ = killGroup() // what it left behind; ESRCH is the rule
	_ = inWrite.Close()
	_ = errRead.SetReadDeadline(time.Now().Add(lateStderr))
	copying.Wait()
	return stderr, err
}
